// Products of 64 rows by columns that are no multiple of 64, as wgmma.cuh has the others: both operands in shared memory, K-major.
// PTX ISA section 9.7.15.
#pragma once

#include "ptx/wgmma.cuh"

namespace trigen::ptx {

#define TRIGEN_SUMS_AT32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define TRIGEN_SUMS_AT40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define TRIGEN_SUMS_AT48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define TRIGEN_SUMS_AT64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define TRIGEN_SUMS_AT72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define TRIGEN_SUMS_AT80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define TRIGEN_SUMS_N80 TRIGEN_SUMS_N64 ", " TRIGEN_SUMS_AT32
#define TRIGEN_SUMS_N96 TRIGEN_SUMS_N80 ", " TRIGEN_SUMS_AT40
#define TRIGEN_SUMS_N112 TRIGEN_SUMS_N96 ", " TRIGEN_SUMS_AT48
#define TRIGEN_SUMS_N144 TRIGEN_SUMS_N128 ", " TRIGEN_SUMS_AT64
#define TRIGEN_SUMS_N160 TRIGEN_SUMS_N144 ", " TRIGEN_SUMS_AT72
#define TRIGEN_SUMS_N176 TRIGEN_SUMS_N160 ", " TRIGEN_SUMS_AT80
#define TRIGEN_BIND_N80(s) TRIGEN_BIND_N64(s), TRIGEN_8(s, 32)
#define TRIGEN_BIND_N96(s) TRIGEN_BIND_N80(s), TRIGEN_8(s, 40)
#define TRIGEN_BIND_N112(s) TRIGEN_BIND_N96(s), TRIGEN_8(s, 48)
#define TRIGEN_BIND_N144(s) TRIGEN_BIND_N128(s), TRIGEN_8(s, 64)
#define TRIGEN_BIND_N160(s) TRIGEN_BIND_N144(s), TRIGEN_8(s, 72)
#define TRIGEN_BIND_N176(s) TRIGEN_BIND_N160(s), TRIGEN_8(s, 80)

#define TRIGEN_SS(N, TYPE, A, B, S)                                                                  \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #S                                         \
               ", 0;\n"                                                                              \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TRIGEN_SUMS_N##N \
               "}, %" #A ", %" #B ", keep, 1, 1, 0, 0;\n}"                                           \
               : TRIGEN_BIND_N##N(sum)                                                               \
               : "l"(a), "l"(b), "r"(keep))

#define TRIGEN_SS_WIDTHS(TYPE)                               \
  if constexpr (kN == 80) TRIGEN_SS(80, TYPE, 40, 41, 42);   \
  if constexpr (kN == 96) TRIGEN_SS(96, TYPE, 48, 49, 50);   \
  if constexpr (kN == 112) TRIGEN_SS(112, TYPE, 56, 57, 58); \
  if constexpr (kN == 144) TRIGEN_SS(144, TYPE, 72, 73, 74); \
  if constexpr (kN == 160) TRIGEN_SS(160, TYPE, 80, 81, 82); \
  if constexpr (kN == 176) TRIGEN_SS(176, TYPE, 88, 89, 90)

template <int kN>
inline constexpr bool kFittedWidth = kN == 80 || kN == 96 || kN == 112 || kN == 144 || kN == 160 || kN == 176;

// sum = a * b + (keep ? sum : 0) for one step of k = 16.
template <DType kType, int kN>
__device__ __forceinline__ void wgmma_ss_fitted(float (&sum)[kN / 2], unsigned long long a,
                                                unsigned long long b, int keep) {
  static_assert(kFittedWidth<kN>, "widths that have a wrapper");
  if constexpr (kType == DType::kBF16) {
    TRIGEN_SS_WIDTHS("bf16");
  } else {
    TRIGEN_SS_WIDTHS("f16");
  }
}

#undef TRIGEN_SS_WIDTHS
#undef TRIGEN_SS

}  // namespace trigen::ptx
