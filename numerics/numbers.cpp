#include "numerics/numbers.h"

#include <bit>
#include <cmath>

namespace trigen {

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF32:
      return 0x1p-24;
  }
  return 1;
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity: 65520 and above
  if (magnitude < 0x38800000u) {  // subnormal: units of 2^-24; the addition rounds to nearest even
    const float scaled = std::bit_cast<float>(magnitude) + 0.5F;  // ulp of [0.5, 1) is 2^-24
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(scaled) - 0x3f000000u);
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::kF16:
      return f16_to_float(float_to_f16(value));
    case DType::kBF16:
      return bf16_to_float(float_to_bf16(value));
    case DType::kF32:
      return value;
  }
  return value;
}

void store_element(DType dtype, void* data, int64_t index, float value) {
  if (dtype == DType::kF32) {
    std::memcpy(static_cast<char*>(data) + 4 * index, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
  std::memcpy(static_cast<char*>(data) + 2 * index, &bits, sizeof bits);
}

double activate(Activation act, double value) {
  switch (act) {
    case Activation::kNone:
      return value;
    case Activation::kGELU:
      return 0.5 * value * std::erfc(-value * 0.70710678118654752440);
    case Activation::kSiLU:
      return value / (1 + std::exp(-value));
  }
  return value;
}

double activation_slope(Activation act, double value) {
  switch (act) {
    case Activation::kNone:
      return 1;
    case Activation::kGELU:  // the normal distribution, and v times its density
      return 0.5 * std::erfc(-value * 0.70710678118654752440) +
             value * 0.39894228040143267794 * std::exp(-0.5 * value * value);
    case Activation::kSiLU: {
      const double sigmoid = 1 / (1 + std::exp(-value));
      return sigmoid * (1 + value * (1 - sigmoid));
    }
  }
  return 1;
}

}  // namespace trigen
