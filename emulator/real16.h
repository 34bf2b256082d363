// f16, bf16 and tf32 values and their roundings.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <bit>
#include <cmath>
#include <cstdint>

namespace trigen::emulator {

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kNearestAway };

#ifdef __x86_64__
inline float f16_to_f32(uint16_t bits) { return _cvtsh_ss(bits); }
#else
inline float f16_to_f32(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
#endif
inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Input formats of tensor cores.
enum class Input : uint8_t { kF16, kBF16, kTF32 };
inline float input16(Input kind, uint16_t bits) {
  return kind == Input::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

inline constexpr uint16_t kF16Nan = 0x7fff;
inline constexpr uint16_t kBF16Nan = 0x7fff;

#ifdef __x86_64__
inline uint16_t f32_to_f16(float value, Rounding rounding = Rounding::kNearest) {
  if (value != value) return kF16Nan;
  switch (rounding) {
    case Rounding::kZero:
      return _cvtss_sh(value, _MM_FROUND_TO_ZERO);
    case Rounding::kDown:
      return _cvtss_sh(value, _MM_FROUND_TO_NEG_INF);
    case Rounding::kUp:
      return _cvtss_sh(value, _MM_FROUND_TO_POS_INF);
    default:
      return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
  }
}
#else
// Other processors convert to the nearest alone; the other roundings step back from it where it lies beyond the value.
inline uint16_t f32_to_f16(float value, Rounding rounding = Rounding::kNearest) {
  if (value != value) return kF16Nan;
  const uint16_t bits = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  const float near = f16_to_f32(bits);
  const bool negative = (bits & 0x8000) != 0;
  const bool above = near > value, below = near < value;
  const bool towards_zero = negative ? below : above;  // the nearest is the longer one
  const bool step_down =
      above && (rounding == Rounding::kDown || (rounding == Rounding::kZero && towards_zero));
  const bool step_up = below && (rounding == Rounding::kUp || (rounding == Rounding::kZero && towards_zero));
  if (!step_down && !step_up) return bits;
  return static_cast<uint16_t>(step_down == negative ? bits + 1 : bits - 1);
}
#endif

inline uint16_t f32_to_bf16(float value, Rounding rounding = Rounding::kNearest) {
  if (value != value) return kBF16Nan;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t low = bits & 0xffff, high = bits >> 16;
  bool negative = (bits >> 31) != 0;
  switch (rounding) {
    case Rounding::kNearest:
      high += low > 0x8000 || (low == 0x8000 && (high & 1) != 0) ? 1 : 0;
      break;
    case Rounding::kNearestAway:
      high += low >= 0x8000 ? 1 : 0;
      break;
    case Rounding::kDown:
      high += negative && low != 0 ? 1 : 0;
      break;
    case Rounding::kUp:
      high += !negative && low != 0 ? 1 : 0;
      break;
    case Rounding::kZero:
      break;
  }
  return static_cast<uint16_t>(high);
}

// tf32: the upper 19 bits of an f32. cvt.rna rounds half away from zero, cvt.rn to even. The ISA leaves the
// form of NaN open: an H200's cvt.rn gives one NaN, and its cvt.rna cuts NaN off as it does infinities, so
// that a NaN with nothing but low bits becomes an infinity (tests/emulated/recorded).
inline uint32_t f32_to_tf32(float value, Rounding rounding) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value && rounding != Rounding::kNearestAway) return 0x7fffe000u;
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits & ~0x1fffu;
  uint32_t low = bits & 0x1fff;
  bits &= ~0x1fffu;
  bool up = rounding == Rounding::kNearestAway ? low >= 0x1000
            : rounding == Rounding::kNearest   ? low > 0x1000 || (low == 0x1000 && (bits & 0x2000) != 0)
                                               : false;
  return up ? bits + 0x2000 : bits;
}

// The f32 next to a double with an odd last bit when inexact: rounding it again to a shorter format rounds
// only once.
inline float round_to_odd(double value) {
  float near = static_cast<float>(value);
  if (value != value || static_cast<double>(near) == value || std::isinf(near)) return near;
  uint32_t bits = std::bit_cast<uint32_t>(near);
  bool away = std::fabs(static_cast<double>(near)) > std::fabs(value);
  if (away) --bits;
  return std::bit_cast<float>(bits | 1u);
}

struct F16 {
  static float load(uint16_t bits) { return f16_to_f32(bits); }
  static uint16_t store(float value) { return f32_to_f16(value); }
};
struct BF16 {
  static float load(uint16_t bits) { return bf16_to_f32(bits); }
  static uint16_t store(float value) { return f32_to_bf16(value); }
};

}  // namespace trigen::emulator
