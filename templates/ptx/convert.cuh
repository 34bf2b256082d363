// Conversions between f32 and 16-bit floats. PTX ISA section 9.7.9.22 (cvt). bf16 conversions exist from
// sm_80 on; before that, round to nearest even on the bits.
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ float f16_to_f32(unsigned short v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
}
__device__ __forceinline__ unsigned short f32_to_f16(float v) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ float bf16_to_f32(unsigned short v) {
  return __uint_as_float(static_cast<unsigned>(v) << 16);
}
__device__ __forceinline__ unsigned short f32_to_bf16(float v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
#else
  const unsigned bits = __float_as_uint(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN
  return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// Two values in one word, `low` in the low half.
__device__ __forceinline__ unsigned f32x2_to_f16x2(float low, float high) {
  unsigned r;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  asm("mov.b32 %0, {%1, %2};" : "=r"(r) : "h"(f32_to_f16(low)), "h"(f32_to_f16(high)));
#endif
  return r;
}
__device__ __forceinline__ unsigned f32x2_to_bf16x2(float low, float high) {
  unsigned r;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  r = f32_to_bf16(low) | (static_cast<unsigned>(f32_to_bf16(high)) << 16);
#endif
  return r;
}
// To tf32, to nearest, ties away (the only rounding that sm_80 has). The bits stay those of an f32.
__device__ __forceinline__ unsigned f32_to_tf32(unsigned v) {
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(v)));
  return r;
}

}  // namespace trigen::ptx
