// Warpgroup matrix products of tf32, with the sums and descriptors of wgmma.cuh. PTX ISA section 9.7.15
// (wgmma), sm_90a only. Both operands in shared memory are K-major: there is no other form. A step is k = 8.
#pragma once

#include "ptx/wgmma.cuh"

namespace trigen::ptx {

#define TRIGEN_TF32_SS(N, A, B, S)                                                          \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #S                                \
               ", 0;\n"                                                                     \
               "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" TRIGEN_SUMS_N##N \
               "}, %" #A ", %" #B ", keep, 1, 1;\n}"                                        \
               : TRIGEN_BIND_N##N(sum)                                                      \
               : "l"(a), "l"(b), "r"(keep))
#define TRIGEN_TF32_RS(N, A0, A1, A2, A3, B, S)                                             \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #S                                \
               ", 0;\n"                                                                     \
               "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" TRIGEN_SUMS_N##N \
               "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", keep, 1, 1;\n}"       \
               : TRIGEN_BIND_N##N(sum)                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

// sum = a * b + (keep ? sum : 0) for one step of k = 8.
template <int kN>
__device__ __forceinline__ void wgmma_tf32_ss(float (&sum)[kN / 2], unsigned long long a,
                                              unsigned long long b, int keep) {
  static_assert(kN == 64 || kN == 128 || kN == 192 || kN == 256, "widths that have a wrapper");
  if constexpr (kN == 64) TRIGEN_TF32_SS(64, 32, 33, 34);
  if constexpr (kN == 128) TRIGEN_TF32_SS(128, 64, 65, 66);
  if constexpr (kN == 192) TRIGEN_TF32_SS(192, 96, 97, 98);
  if constexpr (kN == 256) TRIGEN_TF32_SS(256, 128, 129, 130);
}

// The same with the 64 x 8 tile of A in registers. Of each warp's 16 rows, a[0]: row lane / 4, k lane % 4;
// a[1]: row + 8; a[2]: k + 4; a[3]: both.
template <int kN>
__device__ __forceinline__ void wgmma_tf32_rs(float (&sum)[kN / 2], const unsigned (&a)[4],
                                              unsigned long long b, int keep) {
  static_assert(kN == 64 || kN == 128 || kN == 192 || kN == 256, "widths that have a wrapper");
  if constexpr (kN == 64) TRIGEN_TF32_RS(64, 32, 33, 34, 35, 36, 37);
  if constexpr (kN == 128) TRIGEN_TF32_RS(128, 64, 65, 66, 67, 68, 69);
  if constexpr (kN == 192) TRIGEN_TF32_RS(192, 96, 97, 98, 99, 100, 101);
  if constexpr (kN == 256) TRIGEN_TF32_RS(256, 128, 129, 130, 131, 132, 133);
}

// Eight columns.
__device__ __forceinline__ void wgmma_tf32_ss_n8(float (&sum)[4], unsigned long long a, unsigned long long b,
                                                 int keep) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, %4, %5, keep, 1, 1;\n}"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "l"(a), "l"(b), "r"(keep));
}

#undef TRIGEN_TF32_SS
#undef TRIGEN_TF32_RS

}  // namespace trigen::ptx
