// Warpgroup products of any width that is a multiple of 16 columns, both operands in shared memory. PTX ISA
// section 9.7.15 (wgmma), sm_90a only. wgmma.cuh says how sums and descriptors look; it has the usual widths.
#pragma once

#include "config.h"

namespace trigen::ptx {

// The lists of sum registers, in groups of 8 (16 columns), as PTX operands and as asm constraints.
#define TRIGEN_SUMS_W1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TRIGEN_SUMS_W2 \
  TRIGEN_SUMS_W1       \
  ", "                 \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define TRIGEN_SUMS_W3 \
  TRIGEN_SUMS_W2       \
  ", "                 \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define TRIGEN_SUMS_W4 \
  TRIGEN_SUMS_W3       \
  ", "                 \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define TRIGEN_SUMS_W5 \
  TRIGEN_SUMS_W4       \
  ", "                 \
  "%32, %33, %34, %35, %36, %37, %38, %39"
#define TRIGEN_SUMS_W6 \
  TRIGEN_SUMS_W5       \
  ", "                 \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define TRIGEN_SUMS_W7 \
  TRIGEN_SUMS_W6       \
  ", "                 \
  "%48, %49, %50, %51, %52, %53, %54, %55"
#define TRIGEN_SUMS_W8 \
  TRIGEN_SUMS_W7       \
  ", "                 \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define TRIGEN_SUMS_W9 \
  TRIGEN_SUMS_W8       \
  ", "                 \
  "%64, %65, %66, %67, %68, %69, %70, %71"
#define TRIGEN_SUMS_W10 \
  TRIGEN_SUMS_W9        \
  ", "                  \
  "%72, %73, %74, %75, %76, %77, %78, %79"
#define TRIGEN_SUMS_W11 \
  TRIGEN_SUMS_W10       \
  ", "                  \
  "%80, %81, %82, %83, %84, %85, %86, %87"
#define TRIGEN_SUMS_W12 \
  TRIGEN_SUMS_W11       \
  ", "                  \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define TRIGEN_SUMS_W13 \
  TRIGEN_SUMS_W12       \
  ", "                  \
  "%96, %97, %98, %99, %100, %101, %102, %103"
#define TRIGEN_SUMS_W14 \
  TRIGEN_SUMS_W13       \
  ", "                  \
  "%104, %105, %106, %107, %108, %109, %110, %111"
#define TRIGEN_SUMS_W15 \
  TRIGEN_SUMS_W14       \
  ", "                  \
  "%112, %113, %114, %115, %116, %117, %118, %119"
#define TRIGEN_SUMS_W16 \
  TRIGEN_SUMS_W15       \
  ", "                  \
  "%120, %121, %122, %123, %124, %125, %126, %127"

#define TRIGEN_BIND_8(i)                                                                                  \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]), "+f"(sum[i + 5]), \
      "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define TRIGEN_BIND_W1 TRIGEN_BIND_8(0)
#define TRIGEN_BIND_W2 TRIGEN_BIND_W1, TRIGEN_BIND_8(8)
#define TRIGEN_BIND_W3 TRIGEN_BIND_W2, TRIGEN_BIND_8(16)
#define TRIGEN_BIND_W4 TRIGEN_BIND_W3, TRIGEN_BIND_8(24)
#define TRIGEN_BIND_W5 TRIGEN_BIND_W4, TRIGEN_BIND_8(32)
#define TRIGEN_BIND_W6 TRIGEN_BIND_W5, TRIGEN_BIND_8(40)
#define TRIGEN_BIND_W7 TRIGEN_BIND_W6, TRIGEN_BIND_8(48)
#define TRIGEN_BIND_W8 TRIGEN_BIND_W7, TRIGEN_BIND_8(56)
#define TRIGEN_BIND_W9 TRIGEN_BIND_W8, TRIGEN_BIND_8(64)
#define TRIGEN_BIND_W10 TRIGEN_BIND_W9, TRIGEN_BIND_8(72)
#define TRIGEN_BIND_W11 TRIGEN_BIND_W10, TRIGEN_BIND_8(80)
#define TRIGEN_BIND_W12 TRIGEN_BIND_W11, TRIGEN_BIND_8(88)
#define TRIGEN_BIND_W13 TRIGEN_BIND_W12, TRIGEN_BIND_8(96)
#define TRIGEN_BIND_W14 TRIGEN_BIND_W13, TRIGEN_BIND_8(104)
#define TRIGEN_BIND_W15 TRIGEN_BIND_W14, TRIGEN_BIND_8(112)
#define TRIGEN_BIND_W16 TRIGEN_BIND_W15, TRIGEN_BIND_8(120)

// Operand numbers that follow the sums: A's descriptor, B's, scale, B's major.
#define TRIGEN_SS_W(M, N, TYPE, A, B, S, TB)                                                         \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #S                                         \
               ", 0;\n"                                                                              \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TRIGEN_SUMS_W##M \
               "}, %" #A ", %" #B ", keep, 1, 1, 0, %" #TB ";\n}"                                    \
               : TRIGEN_BIND_W##M                                                                    \
               : "l"(a), "l"(b), "r"(keep), "n"(kTransposeB))

// sum = a * b + (keep ? sum : 0) for one step of k = 16, in the first kN / 2 sums. A is K-major, B as
// kTransposeB says (0 along k, 1 along n).
template <DType kType, int kN, int kTransposeB, int kCount>
__device__ __forceinline__ void wgmma_ss_width(float (&sum)[kCount], unsigned long long a,
                                               unsigned long long b, int keep) {
  static_assert(kN % 16 == 0 && kN >= 16 && kN <= 256 && kN / 2 <= kCount, "widths that have a wrapper");
#define TRIGEN_WIDTH(M, N, A, B, S, TB)       \
  if constexpr (kN == N) {                    \
    if constexpr (kType == DType::kBF16)      \
      TRIGEN_SS_W(M, N, "bf16", A, B, S, TB); \
    else                                      \
      TRIGEN_SS_W(M, N, "f16", A, B, S, TB);  \
  }
  TRIGEN_WIDTH(1, 16, 8, 9, 10, 11)
  TRIGEN_WIDTH(2, 32, 16, 17, 18, 19)
  TRIGEN_WIDTH(3, 48, 24, 25, 26, 27)
  TRIGEN_WIDTH(4, 64, 32, 33, 34, 35)
  TRIGEN_WIDTH(5, 80, 40, 41, 42, 43)
  TRIGEN_WIDTH(6, 96, 48, 49, 50, 51)
  TRIGEN_WIDTH(7, 112, 56, 57, 58, 59)
  TRIGEN_WIDTH(8, 128, 64, 65, 66, 67)
  TRIGEN_WIDTH(9, 144, 72, 73, 74, 75)
  TRIGEN_WIDTH(10, 160, 80, 81, 82, 83)
  TRIGEN_WIDTH(11, 176, 88, 89, 90, 91)
  TRIGEN_WIDTH(12, 192, 96, 97, 98, 99)
  TRIGEN_WIDTH(13, 208, 104, 105, 106, 107)
  TRIGEN_WIDTH(14, 224, 112, 113, 114, 115)
  TRIGEN_WIDTH(15, 240, 120, 121, 122, 123)
  TRIGEN_WIDTH(16, 256, 128, 129, 130, 131)
#undef TRIGEN_WIDTH
}

#undef TRIGEN_SS_W
#undef TRIGEN_BIND_8

}  // namespace trigen::ptx
