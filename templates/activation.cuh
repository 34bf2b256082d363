// GELU (nn.GELU's erf form) and SiLU, to the accuracy that an output's type asks for.
#pragma once

#include "config.h"
#include "ptx/approximate.cuh"

namespace trigen {

// log2 of the normal distribution's upper tail at u >= 0, from -1 on, as polynomials that fall without end above the 6 they were fitted to.
template <DType kType>
__device__ __forceinline__ float log2_of_tail(float u) {
  float t;
  if constexpr (kType == DType::kBF16) {
    t = fmaf(-0.00043503838242031634f, u, 0.006842340808361769f);
    t = fmaf(t, u, -0.05134883522987366f);
    t = fmaf(t, u, -0.4602862298488617f);
    t = fmaf(t, u, -1.1508064270019531f);
    return fmaf(t, u, -1.0000108480453491f);
  } else if constexpr (kType == DType::kF16) {
    t = fmaf(2.87577149720164e-05f, u, -0.0007272603688761592f);
    t = fmaf(t, u, 0.007928169332444668f);
    t = fmaf(t, u, -0.053152572363615036f);
    t = fmaf(t, u, -0.45897892117500305f);
    t = fmaf(t, u, -1.1511331796646118f);
    return fmaf(t, u, -0.999999463558197f);
  } else {
    t = fmaf(-3.205248333415511e-08f, u, 9.083649388230697e-07f);
    t = fmaf(t, u, -1.1185304174432531e-05f);
    t = fmaf(t, u, 7.612923945998773e-05f);
    t = fmaf(t, u, -0.00027381692780181766f);
    t = fmaf(t, u, -2.0194678654661402e-05f);
    t = fmaf(t, u, 0.006979149766266346f);
    t = fmaf(t, u, -0.05246652662754059f);
    t = fmaf(t, u, -0.45921197533607483f);
    t = fmaf(t, u, -1.151105284690857f);
    return fmaf(t, u, -1.0f);
  }
}

// v Phi(v) is v less u Q(u) above zero and -u Q(u) below, with u = |v| and Q the normal distribution's upper tail: no bits cancel, and the
// special-function unit, which takes eight cycles for a warp's values, is asked once. u is held at 12, where the term is nothing.
// Errors against erf's in double precision, 0 < v relative, -2 < v < 0 relative, -3 < v < -2 absolute: bf16 2^-17, 2^-16, 1.6e-6; f16 2^-21.4, 2^-19.4,
// 1.9e-7; f32 2^-22.9, 2^-20.8, 2^-19.7 relative (tests/emulated/activation_test.cpp).
template <DType kType>
__device__ __forceinline__ float gelu(float v) {
  const float u = fminf(fabsf(v), 12.0f);
  return fmaf(-u, ptx::exp2_approx(log2_of_tail<kType>(u)), ptx::max_or_nan(v, 0.0f));
}

template <Activation A, DType kType>
__device__ __forceinline__ float activate(float v) {
  if constexpr (A == Activation::kGELU) return gelu<kType>(v);
  if constexpr (A == Activation::kSiLU) return __fdividef(v, 1.0f + __expf(-v));
  return v;
}

// activate() of two values. SiLU has one reciprocal for both, whose product must stay finite: v is held above -41.5, where the result is nothing.
template <Activation A, DType kType>
__device__ __forceinline__ void activate_pair(float& low, float& high) {
  if constexpr (A == Activation::kSiLU && kType != DType::kF32) {
    low = ptx::max_or_nan(low, -41.5f), high = ptx::max_or_nan(high, -41.5f);
    constexpr float kScale = -1.4426950408889634f;
    const float a = 1.0f + ptx::exp2_approx(kScale * low), b = 1.0f + ptx::exp2_approx(kScale * high);
    const float r = ptx::reciprocal_approx(a * b);
    low *= b * r;
    high *= a * r;
  } else {
    low = activate<A, kType>(low), high = activate<A, kType>(high);
  }
}

}  // namespace trigen
