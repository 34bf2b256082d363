// mma.m16n8k8, f16 with f32 sums, sm_75 and later. PTX ISA section 9.7.14.5.7 (fragments of m16n8k8).
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ void mma_m16n8k8_f16(float (&c)[4], unsigned a0, unsigned a1, unsigned b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

}  // namespace trigen::ptx
