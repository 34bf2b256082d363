#include "tuner/statistics.h"

#include <gmock/gmock.h>

#include "numerics/numbers.h"

namespace trigen {
namespace {

// A synthetic timing table: `rounds` samples around `median` with uniform noise of +-`noise`, and what slows
// a round slows every arm of it.
std::vector<std::vector<double>> table(const std::vector<double>& medians, double noise, size_t rounds,
                                       uint64_t seed) {
  std::vector<std::vector<double>> out(medians.size());
  for (size_t i = 0; i < medians.size(); ++i) {
    for (size_t r = 0; r < rounds; ++r) {
      const double common = 1 + 0.05 * random_value(seed, 99, r, 1);
      out[i].push_back(medians[i] * common * (1 + random_value(seed, i, r, static_cast<float>(noise))));
    }
  }
  return out;
}

TEST(Summary, QuartilesByInterpolation) {
  const Summary s = summarize({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.lower, 1.75);
  EXPECT_DOUBLE_EQ(s.upper, 3.25);
  EXPECT_DOUBLE_EQ(s.minimum, 1);
  EXPECT_DOUBLE_EQ(s.maximum, 4);
  EXPECT_DOUBLE_EQ(s.notch, 1.57 * 1.5 / 2);
  EXPECT_EQ(summarize({}).count, 0U);
  EXPECT_DOUBLE_EQ(summarize({7}).median, 7);
}

TEST(Drift, SeenWhenTheLastThirdIsSlower) {
  EXPECT_FALSE(drifts({1, 1.01, 1, 0.99, 1, 1.01, 1, 1, 1.02}));
  EXPECT_TRUE(drifts({1, 1.01, 1, 1.02, 1.03, 1.03, 1.06, 1.07, 1.06}));
  EXPECT_FALSE(drifts({1, 2}));
}

TEST(Outliers, OnesFarOutsideTheQuartiles) {
  EXPECT_THAT(outliers({1, 1.01, 1.02, 0.99, 1, 1.9, 1.01}), testing::ElementsAre(5));
  EXPECT_THAT(outliers({1, 1.01, 1.02, 0.99}), testing::IsEmpty());
}

TEST(Choose, TheFastestOutsideTheNoise) {
  const Choice choice = choose(table({110, 100, 120}, 0.01, 25, 1));
  EXPECT_EQ(choice.winner, 1U);
  EXPECT_EQ(choice.fastest, 1U);
  EXPECT_THAT(choice.in_band, testing::ElementsAre(false, true, false));
  EXPECT_NEAR(choice.ratio[0], 1.1, 0.01);
}

TEST(Choose, TheFirstInTheFixedOrderInsideTheNoise) {
  // arms 1 and 2 are equal up to noise: whichever is faster today, the earlier one wins
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Choice choice = choose(table({130, 100.3, 100, 140}, 0.01, 25, seed));
    EXPECT_EQ(choice.winner, 1U) << seed;
  }
}

TEST(Choose, PairsRoundsSoThatASlowMachineDoesNotHideADifference) {
  // 3 % apart under 5 % common noise: medians alone would overlap
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(choose(table({103, 100}, 0.005, 25, seed)).winner, 1U) << seed;
  }
}

}  // namespace
}  // namespace trigen
