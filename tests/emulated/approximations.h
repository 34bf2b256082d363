// The PTX ISA's error bounds of approximate instructions: the furthest that a right device's result lies from the
// exact value. Source: PTX ISA, "Floating Point Instructions" (f32) and "Half Precision Floating
// Point Instructions", the instruction of that name; where editions differ (rcp, ex2), the later one.
#pragma once

#include <algorithm>
#include <cmath>

namespace trigen::testing {

struct Approximation {
  const char* op;
  const char* target;  // the first that has it
  double (*exact)(double);
  double low, high;  // magnitudes of the operand that the bound is for; negative low: both signs
  double ulp, relative, absolute;  // units in the last place of f32, 2^-23 of the result's power of two
  bool flushes = false;            // results below 2^-126 may be zero

  // The furthest from `value`, an exact result.
  double bound(double value) const {
    const int exponent = value == 0 ? -126 : std::max(std::ilogb(value), -126);
    return ulp * std::ldexp(1.0, exponent - 23) + relative * std::fabs(value) + absolute +
           (flushes ? 0x1p-126 : 0);
  }
};

inline double exact_rcp(double x) { return 1 / x; }
inline double exact_rsqrt(double x) { return 1 / std::sqrt(x); }

// rsqrt: 2^-22.9; 2^-9.9 and 2^-10.987 of the half formats likewise, as numbers.
inline const double kRsqrtError = std::exp2(-22.9);
inline constexpr double kLeast = 0x1p-149, kMost = 0x1.fffffep127, kNormal = 0x1p-126;

// f32. Operands are all that give a finite result.
inline const Approximation kApproximations[] = {
    // ex2: at most 2 ulp over the full range
    {"ex2.approx.f32", "sm_70", std::exp2, -kLeast, 128, 2, 0, 0},
    {"ex2.approx.ftz.f32", "sm_70", std::exp2, -kLeast, 128, 2, 0, 0, true},
    // lg2: absolute 2^-22 for operands in (0.5, 2), relative 2^-22 elsewhere
    {"lg2.approx.f32", "sm_70", std::log2, 0.5, 2, 0, 0, 0x1p-22},
    {"lg2.approx.f32", "sm_70", std::log2, 2, kMost, 0, 0x1p-22, 0},
    {"lg2.approx.f32", "sm_70", std::log2, kLeast, 0.5, 0, 0x1p-22, 0},
    // rcp: at most 1 ulp over the full range
    {"rcp.approx.f32", "sm_70", exact_rcp, -0x1p-127, kMost, 1, 0, 0},
    {"rcp.approx.ftz.f32", "sm_70", exact_rcp, -kNormal, kMost, 1, 0, 0, true},
    // sqrt: relative 2^-23 over the positive finite range
    {"sqrt.approx.f32", "sm_70", std::sqrt, kLeast, kMost, 0, 0x1p-23, 0},
    {"sqrt.approx.ftz.f32", "sm_70", std::sqrt, kNormal, kMost, 0, 0x1p-23, 0},
    // rsqrt: relative 2^-22.9 over the positive finite range
    {"rsqrt.approx.f32", "sm_70", exact_rsqrt, kLeast, kMost, 0, kRsqrtError, 0},
    {"rsqrt.approx.ftz.f32", "sm_70", exact_rsqrt, kNormal, kMost, 0, kRsqrtError, 0},
    // tanh: relative 2^-11 over the full range
    {"tanh.approx.f32", "sm_75", std::tanh, -kLeast, kMost, 0, 0x1p-11, 0},
    // sin, cos: absolute 2^-20.5 for operands in [-2 pi, 2 pi]
    {"sin.approx.f32", "sm_70", std::sin, -kLeast, 6.28, 0, 0, 0x1p-21 * 1.41},
    {"cos.approx.f32", "sm_70", std::cos, -kLeast, 6.28, 0, 0, 0x1p-21 * 1.41},
};

// div.full: 2 ulp over the full range. div.approx: 2 ulp for divisors of 2^-126 to 2^126; beyond, the
// quotient of a finite dividend is 0, and that of an infinite one is NaN.
inline constexpr double kDivisionUlp = 2;
inline constexpr double kLargestDivisor = 0x1p126;

// f16 and bf16, every operand. A result has the format's own rounding, too, where it is subnormal.
struct HalfApproximation {
  const char* op;
  const char* target;
  double (*exact)(double);
  bool bf16;
  double relative, absolute;
};
inline const HalfApproximation kHalfApproximations[] = {
    {"ex2.approx.f16", "sm_75", std::exp2, false, std::exp2(-9.9), 0x1p-25},  // ex2: relative 2^-9.9
    {"ex2.approx.ftz.bf16", "sm_90", std::exp2, true, 0x1p-7, 0x1p-126},      // ex2: relative 2^-7
    {"tanh.approx.f16", "sm_75", std::tanh, false, 0, std::exp2(-10.987)},    // tanh: absolute 2^-10.987
    {"tanh.approx.bf16", "sm_90", std::tanh, true, 0, 0x1p-8},                // tanh: absolute 2^-8
};

}  // namespace trigen::testing
