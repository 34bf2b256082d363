// GELU (nn.GELU's erf form) and SiLU, in three ways: what an output's precision asks for and what registers
// and instructions a kernel has left for it.
//   activate        one value, to f32's accuracy: kernels with threads to spare
//   activate_fast   one value, errors around f32's last bits, few registers: f32 outputs beside full sums
//   activate_pair   two values, to the accuracy of a 16-bit output: the fewest instructions
#pragma once

#include "config.h"
#include "ptx/approximate.cuh"

namespace trigen {

template <Activation A>
__device__ __forceinline__ float activate(float v) {
  if constexpr (A == Activation::kGELU)
    return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));  // nn.GELU: erf form
  if constexpr (A == Activation::kSiLU) return v / (1.0f + __expf(-v));
  return v;
}

// activate() with few instructions and few registers. GELU: v * erfc(-v / sqrt(2)) / 2 by
// Abramowitz and Stegun 7.1.26 (absolute error of erfc 1.5e-7), taken on the side where erfc is small, so
// that no bits cancel.
template <Activation A>
__device__ __forceinline__ float activate_fast(float v) {
  if constexpr (A == Activation::kGELU) {
    const float x = fabsf(v) * 0.70710678118654752f;
    const float t = __fdividef(1.0f, fmaf(0.3275911f, x, 1.0f));
    float tail = fmaf(1.061405429f, t, -1.453152027f);
    tail = fmaf(tail, t, 1.421413741f);
    tail = fmaf(tail, t, -0.284496736f);
    tail = fmaf(tail, t, 0.254829592f);
    tail *= 0.5f * t * __expf(-x * x);  // erfc(x) / 2
    return v * (v < 0.0f ? tail : 1.0f - tail);
  } else if constexpr (A == Activation::kSiLU) {
    return __fdividef(v, 1.0f + __expf(-v));
  } else {
    return v;
  }
}

// activate() of two values with few instructions, for outputs of 16 bits: one thread has up to 128 values to
// do for every tile. Both activations are v / (1 + 2^t): SiLU with t = -v log2(e); GELU with t = log2 of (1 -
// Phi(v)) / Phi(v), an odd function of v, here v times a polynomial in v^2. The special-function unit makes
// 2^t, and one reciprocal for both values, whose product must stay finite: v is held above `least`, where t =
// 60 and the result is nothing. Above zero t falls without end and the result is v. Errors of GELU against
// erf's in double precision, 0 < v relative, -2 < v < 0 relative, anywhere absolute (|v| < 1, else relative):
// for bf16 2^-14, 2^-13, 1.7e-5; for f16 2^-20, 2^-18, 3e-7 (tests/emulated/activation_test.cpp).
template <Activation A, DType kType>
__device__ __forceinline__ void activate_pair(float& low, float& high) {
  if constexpr (A != Activation::kNone) {
    constexpr bool kShort = kType == DType::kBF16;
    constexpr float kLeast = A == Activation::kSiLU ? -41.5f : kShort ? -6.73f : -6.63f;
    const auto denominator = [](float v) {
      float t = -1.4426950408889634f;
      if constexpr (A == Activation::kGELU) {
        const float u = v * v;
        if constexpr (kShort) {
          t = fmaf(-1.9617864381871186e-06f, u, 5.664228956447914e-05f);
          t = fmaf(t, u, 0.000606472953222692f);
          t = fmaf(t, u, -0.10589908808469772f);
          t = fmaf(t, u, -2.301560878753662f);
        } else {
          t = fmaf(-4.635571926314697e-09f, u, 3.606217262586142e-07f);
          t = fmaf(t, u, -1.1074218491557986e-05f);
          t = fmaf(t, u, 0.0001567238796269521f);
          t = fmaf(t, u, 0.00010428585665067658f);
          t = fmaf(t, u, -0.10485025495290756f);
          t = fmaf(t, u, -2.3022027015686035f);
        }
      }
      return 1.0f + ptx::exp2_approx(t * v);
    };
    low = ptx::max_or_nan(low, kLeast), high = ptx::max_or_nan(high, kLeast);
    const float a = denominator(low), b = denominator(high), r = ptx::reciprocal_approx(a * b);
    low *= b * r;
    high *= a * r;
  }
}

}  // namespace trigen
