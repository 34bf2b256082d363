// The storage formats on the host: exact decoding, rounding to nearest even, and the random numbers of every
// check.
#pragma once

#include <cstdint>
#include <cstring>

#include "generator/problem.h"

namespace trigen {

// Half the distance between 1 and the next value: the largest relative rounding error of the format. 2^-11
// for f16, 2^-8 for bf16, 2^-24 for f32 (IEEE 754-2019 table 3.5; bf16 keeps 8 significant bits).
double unit_roundoff(DType dtype);

float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
inline float bf16_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
uint16_t float_to_bf16(float value);
// Rounds to the format and back.
float round_to(DType dtype, float value);

// Element `index` of an array of `dtype`.
inline float load_element(DType dtype, const void* data, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(data) + 4 * index, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + 2 * index, sizeof bits);
  return dtype == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
}
void store_element(DType dtype, void* data, int64_t index, float value);

// Counter-based: element i of stream s is a function of (seed, s, i) alone, so any element can be made
// anywhere, in any order, by any number of threads. SplitMix64's output function (Steele, Lea, Flood, OOPSLA
// 2014) over the counter.
inline uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t z = (seed + 0x632be59bd9b4e019ull * (stream + 1)) + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
// Uniform on a grid of 2^16 values in (-scale, scale), zero excluded; exact in f32, rounded when stored in 16
// bits.
inline float random_value(uint64_t seed, uint64_t stream, uint64_t index, float scale) {
  const uint64_t bits = random_bits(seed, stream, index >> 2) >> (16 * (index & 3));
  const auto step = static_cast<int16_t>(static_cast<uint16_t>(bits));
  return scale * ((static_cast<float>(step) + 0.5F) * 0x1p-15F);
}

// The activations as the kernels define them: GELU with erf (torch.nn.GELU's default), SiLU x / (1 +
// exp(-x)).
double activate(Activation act, double value);
// Their derivatives.
double activation_slope(Activation act, double value);

}  // namespace trigen
