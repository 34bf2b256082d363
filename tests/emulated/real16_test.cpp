// Rounding to f16, bf16 and tf32 against the definition: of the two neighbours of a number, the one that the
// rounding names. Every neighbour of every finite f16 and bf16 number is tried.
#include "emulator/real16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace trigen::emulator {
namespace {

constexpr Rounding kRoundings[] = {Rounding::kNearest, Rounding::kZero, Rounding::kDown, Rounding::kUp};

// The finite numbers of a format of 16 bits in order, and their bits.
template <class Load>
std::vector<std::pair<double, uint16_t>> numbers(const Load& load) {
  std::vector<std::pair<double, uint16_t>> out;
  for (int bits = 0; bits < 1 << 16; ++bits)
    if (const double value = load(static_cast<uint16_t>(bits)); std::isfinite(value) && bits != 0x8000)
      out.emplace_back(value, static_cast<uint16_t>(bits));
  std::sort(out.begin(), out.end());
  return out;
}

// The result of rounding `value`, between two neighbours; `even`: is the lower one's last bit 0?
double expected(double value, double low, double high, bool even, Rounding rounding) {
  switch (rounding) {
    case Rounding::kDown:
      return low;
    case Rounding::kUp:
      return high;
    case Rounding::kZero:
      return value < 0 ? high : low;
    default:
      if (value - low == high - value) return even ? low : high;
      return value - low < high - value ? low : high;
  }
}

template <class Load, class Store>
void check_format(const Load& load, const Store& store) {
  const auto all = numbers(load);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const auto [low, low_bits] = all[i];
    const double high = all[i + 1].first, middle = (low + high) / 2;
    // The numbers themselves, the middle, and what lies just beside these.
    const auto near = static_cast<float>(middle);
    for (const float value :
         {static_cast<float>(low), std::nextafter(near, -HUGE_VALF), near, std::nextafter(near, HUGE_VALF)}) {
      if (value < low || value >= high) continue;
      for (const Rounding rounding : kRoundings) {
        const double exact = value;
        const double want = exact == low ? low : expected(exact, low, high, (low_bits & 1) == 0, rounding);
        ASSERT_EQ(static_cast<double>(load(store(value, rounding))), want)
            << value << ", rounding " << static_cast<int>(rounding);
      }
    }
  }
}

TEST(Real16, F16RoundsByItsDefinition) {
  check_format(f16_to_f32, f32_to_f16);
  EXPECT_EQ(f32_to_f16(65519.99F), 0x7BFF) << "the largest";
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00) << "infinity from half a unit beyond it";
  EXPECT_EQ(f32_to_f16(1e10F, Rounding::kZero), 0x7BFF);
  EXPECT_EQ(f32_to_f16(-0.0F), 0x8000);
}

TEST(Real16, BF16RoundsByItsDefinition) {
  check_format(bf16_to_f32, f32_to_bf16);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max(), Rounding::kZero), 0x7F7F);
  EXPECT_EQ(f32_to_bf16(1.00390625F, Rounding::kNearestAway), 0x3F81) << "a tie, away from zero";
  EXPECT_EQ(f32_to_bf16(-1.00390625F, Rounding::kNearestAway), 0xBF81);
}

TEST(Real16, NaNIsOneNaN) {
  for (const uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(f32_to_f16(std::bit_cast<float>(bits)), kF16Nan);
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(bits)), kBF16Nan);
    EXPECT_EQ(f32_to_tf32(std::bit_cast<float>(bits), Rounding::kNearest), 0x7fffe000u);
  }
}

// 10 bits of a fraction: 13 bits are rounded away.
TEST(Real16, TF32RoundsTiesAsAsked) {
  const auto rounded = [](uint32_t bits, Rounding rounding) {
    return f32_to_tf32(std::bit_cast<float>(bits), rounding);
  };
  constexpr uint32_t kOne = 0x3F800000, kUnit = 0x2000, kTie = 0x1000;
  EXPECT_EQ(rounded(kOne + kTie, Rounding::kNearest), kOne) << "to even";
  EXPECT_EQ(rounded(kOne + kUnit + kTie, Rounding::kNearest), kOne + 2 * kUnit);
  EXPECT_EQ(rounded(kOne + kTie, Rounding::kNearestAway), kOne + kUnit);
  EXPECT_EQ(rounded(kOne + kTie - 1, Rounding::kNearestAway), kOne);
  EXPECT_EQ(rounded(kOne + kTie + 1, Rounding::kNearest), kOne + kUnit);
  EXPECT_EQ(rounded(0x7F7FFFFF, Rounding::kNearest), 0x7F800000u) << "beyond the largest: infinity";
}

// A double rounded to odd and then to f16 is the double rounded to f16: no second rounding shows.
TEST(Real16, RoundingToOddHidesTheFirstRounding) {
  const auto all = numbers(f16_to_f32);
  for (size_t i = 0; i + 1 < all.size(); i += 7) {
    const auto [low, low_bits] = all[i];
    const double high = all[i + 1].first, middle = (low + high) / 2, little = std::ldexp(high - low, -40);
    for (const double value : {middle - little, middle, middle + little}) {
      const double want = expected(value, low, high, (low_bits & 1) == 0, Rounding::kNearest);
      ASSERT_EQ(static_cast<double>(f16_to_f32(f32_to_f16(round_to_odd(value)))), want) << value;
    }
  }
  EXPECT_EQ(round_to_odd(0.5), 0.5F) << "exact numbers stay";
  EXPECT_TRUE(std::isinf(round_to_odd(1e300)));
}

}  // namespace
}  // namespace trigen::emulator
