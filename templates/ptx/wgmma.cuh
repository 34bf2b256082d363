// Warpgroup matrix multiply-accumulate. PTX ISA section 9.7.15 (wgmma), sm_90a only. A from shared memory
// (ss) or from registers (rs), B from shared memory, f32 sums in registers. Each thread holds N/2 sums of the
// 64 x N tile:
//   sum[4j + 0, 1]: row 16 * warp + lane / 4,     columns 8j + 2 * (lane % 4) + {0, 1}
//   sum[4j + 2, 3]: row 16 * warp + lane / 4 + 8, same columns
#pragma once

#include "config.h"

namespace trigen::ptx {

// Before the first wgmma, and whenever other instructions touched the registers that the next one uses.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The compiler keeps what it computes with these registers on its side of this point. Without it, arithmetic
// on sums may rise above the wait for them and that on A's registers may sink below the fence: ptxas then
// adds fences of its own and runs the products one after the other (C7514, C7520).
template <int kCount>
__device__ __forceinline__ void pin(float (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(v[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(unsigned (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(v[i])::"memory");
}

// Matrix descriptor of an operand in swizzled panels of kRow bytes a row (section 9.7.15.5.1: start, leading and
// stride byte offsets in units of 16 bytes; swizzle modes 1, 2, 3: 128, 64, 32 bytes). Panels must start on 8 rows
// of bytes. Of 128 bytes:
//   K-major:   rows of 64 elements along k; 8 rows are 1024 bytes (stride offset); the leading offset is not
//              used.
//   MN-major:  rows of 64 elements along m or n, one row per k; 8 rows are 1024 bytes (stride offset); the
//              next 64 columns are `panel` bytes further (leading offset).
template <int kRow = 128>
__device__ __forceinline__ unsigned long long descriptor(unsigned shared, unsigned panel) {
  constexpr unsigned long long kMode = kRow == 128 ? 1 : kRow == 64 ? 2 : 3;
  return static_cast<unsigned long long>((shared & 0x3FFFF) >> 4) |
         static_cast<unsigned long long>(panel >> 4) << 16 |
         static_cast<unsigned long long>(8 * kRow >> 4) << 32 | kMode << 62;
}

// The same for an operand without a swizzle: core matrices of 8 rows of 16 bytes, 128 bytes each, those of
// the next 8 k `along_k` bytes further (leading offset, K-major).
__device__ __forceinline__ unsigned long long descriptor_plain(unsigned shared, unsigned along_k) {
  return static_cast<unsigned long long>((shared & 0x3FFFF) >> 4) |
         static_cast<unsigned long long>(along_k >> 4) << 16 |
         static_cast<unsigned long long>(128 >> 4) << 32;
}

// MN-major without a swizzle: core matrices of 8 k by 8 elements of m or n (16 bytes), 128 bytes each. The
// next 8 k are 128 bytes further, so that k runs on through them in steps of 16 bytes (leading offset); the
// next 8 of m or n `along_mn` bytes (stride offset).
__device__ __forceinline__ unsigned long long descriptor_plain_mn(unsigned shared, unsigned along_mn) {
  return static_cast<unsigned long long>((shared & 0x3FFFF) >> 4) |
         static_cast<unsigned long long>(128 >> 4) << 16 |
         static_cast<unsigned long long>(along_mn >> 4) << 32;
}

// A descriptor that is stepped through an operand: the start, which moves, has no carry.
struct Descriptor {
  unsigned low, high;
  __device__ __forceinline__ explicit Descriptor(unsigned long long bits)
      : low(static_cast<unsigned>(bits)), high(static_cast<unsigned>(bits >> 32)) {}
  // Units of 16 bytes further.
  __device__ __forceinline__ Descriptor operator+(int units) const {
    Descriptor moved = *this;
    moved.low += static_cast<unsigned>(units);
    return moved;
  }
  __device__ __forceinline__ unsigned long long bits() const {
    return static_cast<unsigned long long>(high) << 32 | low;
  }
  // The same in all lanes of a warp, as wgmma asks, which no compiler can see. Told so by a shuffle it keeps what is added to it in
  // uniform registers, where wgmma reads its descriptors.
  __device__ __forceinline__ Descriptor uniform() const {
    Descriptor same = *this;
    same.low = __shfl_sync(~0u, low, 0);
    return same;
  }
};

// The lists of sum registers, as PTX operands and as asm constraints.

#define TRIGEN_SUMS_0                                                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

#define TRIGEN_SUMS_32                                                                                   \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define TRIGEN_SUMS_64                                                                                   \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

#define TRIGEN_SUMS_96                                                                                       \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define TRIGEN_8(s, i)                                                                        \
  "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), \
      "+f"(s[i + 6]), "+f"(s[i + 7])

#define TRIGEN_32(s, i) TRIGEN_8(s, i), TRIGEN_8(s, i + 8), TRIGEN_8(s, i + 16), TRIGEN_8(s, i + 24)

#define TRIGEN_SUMS_N64 TRIGEN_SUMS_0
#define TRIGEN_SUMS_N128 TRIGEN_SUMS_N64 ", " TRIGEN_SUMS_32
#define TRIGEN_SUMS_N192 TRIGEN_SUMS_N128 ", " TRIGEN_SUMS_64
#define TRIGEN_SUMS_N256 TRIGEN_SUMS_N192 ", " TRIGEN_SUMS_96
#define TRIGEN_BIND_N64(s) TRIGEN_32(s, 0)
#define TRIGEN_BIND_N128(s) TRIGEN_BIND_N64(s), TRIGEN_32(s, 32)
#define TRIGEN_BIND_N192(s) TRIGEN_BIND_N128(s), TRIGEN_32(s, 64)
#define TRIGEN_BIND_N256(s) TRIGEN_BIND_N192(s), TRIGEN_32(s, 96)

// Operand numbers that follow N/2 sums: A descriptor, B descriptor, scale, A major, B major; or four A
// registers first.
#define TRIGEN_SS(N, TYPE, A, B, S, TA, TB)                                                          \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #S                                         \
               ", 0;\n"                                                                              \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TRIGEN_SUMS_N##N \
               "}, %" #A ", %" #B ", keep, 1, 1, %" #TA ", %" #TB ";\n}"                             \
               : TRIGEN_BIND_N##N(sum)                                                               \
               : "l"(a), "l"(b), "r"(keep), "n"(kTransposeA), "n"(kTransposeB))
#define TRIGEN_RS(N, TYPE, A0, A1, A2, A3, B, S, TB)                                                 \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #S                                         \
               ", 0;\n"                                                                              \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TRIGEN_SUMS_N##N \
               "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", keep, 1, 1, %" #TB ";\n}"      \
               : TRIGEN_BIND_N##N(sum)                                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(kTransposeB))

// sum = a * b + (keep ? sum : 0) for one step of k = 16. Major: 0 along k, 1 along m or n.
template <DType kType, int kN, int kTransposeA, int kTransposeB>
__device__ __forceinline__ void wgmma_ss(float (&sum)[kN / 2], unsigned long long a, unsigned long long b,
                                         int keep) {
  static_assert(kN == 64 || kN == 128 || kN == 192 || kN == 256, "widths that have a wrapper");
  if constexpr (kType == DType::kBF16) {
    if constexpr (kN == 64) TRIGEN_SS(64, "bf16", 32, 33, 34, 35, 36);
    if constexpr (kN == 128) TRIGEN_SS(128, "bf16", 64, 65, 66, 67, 68);
    if constexpr (kN == 192) TRIGEN_SS(192, "bf16", 96, 97, 98, 99, 100);
    if constexpr (kN == 256) TRIGEN_SS(256, "bf16", 128, 129, 130, 131, 132);
  } else {
    if constexpr (kN == 64) TRIGEN_SS(64, "f16", 32, 33, 34, 35, 36);
    if constexpr (kN == 128) TRIGEN_SS(128, "f16", 64, 65, 66, 67, 68);
    if constexpr (kN == 192) TRIGEN_SS(192, "f16", 96, 97, 98, 99, 100);
    if constexpr (kN == 256) TRIGEN_SS(256, "f16", 128, 129, 130, 131, 132);
  }
}

// The same with the 64 x 16 tile of A in registers: mma.m16n8k16's A fragment of each warp's 16 rows.
template <DType kType, int kN, int kTransposeB>
__device__ __forceinline__ void wgmma_rs(float (&sum)[kN / 2], const unsigned (&a)[4], unsigned long long b,
                                         int keep) {
  static_assert(kN == 64 || kN == 128 || kN == 192 || kN == 256, "widths that have a wrapper");
  if constexpr (kType == DType::kBF16) {
    if constexpr (kN == 64) TRIGEN_RS(64, "bf16", 32, 33, 34, 35, 36, 37, 38);
    if constexpr (kN == 128) TRIGEN_RS(128, "bf16", 64, 65, 66, 67, 68, 69, 70);
    if constexpr (kN == 192) TRIGEN_RS(192, "bf16", 96, 97, 98, 99, 100, 101, 102);
    if constexpr (kN == 256) TRIGEN_RS(256, "bf16", 128, 129, 130, 131, 132, 133, 134);
  } else {
    if constexpr (kN == 64) TRIGEN_RS(64, "f16", 32, 33, 34, 35, 36, 37, 38);
    if constexpr (kN == 128) TRIGEN_RS(128, "f16", 64, 65, 66, 67, 68, 69, 70);
    if constexpr (kN == 192) TRIGEN_RS(192, "f16", 96, 97, 98, 99, 100, 101, 102);
    if constexpr (kN == 256) TRIGEN_RS(256, "f16", 128, 129, 130, 131, 132, 133, 134);
  }
}

// Eight columns, B K-major.
template <DType kType, int kTransposeA>
__device__ __forceinline__ void wgmma_ss_n8(float (&sum)[4], unsigned long long a, unsigned long long b,
                                            int keep) {
#define TRIGEN_SS_N8(TYPE)                                       \
  asm volatile(                                                  \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %6, 0;\n"          \
      "wgmma.mma_async.sync.aligned.m64n8k16.f32." TYPE "." TYPE \
      " {%0, %1, %2, %3}, %4, %5, keep, 1, "                     \
      "1, %7, 0;\n}"                                             \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])   \
      : "l"(a), "l"(b), "r"(keep), "n"(kTransposeA))
  if constexpr (kType == DType::kBF16)
    TRIGEN_SS_N8("bf16");
  else
    TRIGEN_SS_N8("f16");
#undef TRIGEN_SS_N8
}

#undef TRIGEN_SS
#undef TRIGEN_RS

}  // namespace trigen::ptx
