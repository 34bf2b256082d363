// Fast functions of one f32 in the special-function unit. PTX ISA section 9.7.3 (ex2, rcp): relative errors
// of about 2^-22 and 1 unit in the last place; subnormals count as zero.
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ float exp2_approx(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ float reciprocal_approx(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
// The larger one; NaN where one is NaN. PTX ISA section 9.7.3 (max), an instruction from sm_80 on.
__device__ __forceinline__ float max_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a < b || b != b ? b : a;
#endif
}

}  // namespace trigen::ptx
