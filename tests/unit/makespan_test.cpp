#include "generator/cost/makespan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trigen {
namespace {

// The same by brute force: each block goes to the slot that is free first.
double simulate(llvm::ArrayRef<BlockRun> runs, int64_t repeats, int64_t slots) {
  std::vector<double> free(slots, 0.0);
  for (int64_t r = 0; r < repeats; ++r)
    for (const BlockRun& run : runs)
      for (int64_t i = 0; i < run.count; ++i) *std::min_element(free.begin(), free.end()) += run.seconds;
  return *std::max_element(free.begin(), free.end());
}

TEST(Makespan, OneWaveTakesTheLongestBlock) {
  EXPECT_DOUBLE_EQ(makespan({{4, 2}, {1, 3}}, 1, 8), 4);
  EXPECT_DOUBLE_EQ(makespan({}, 1, 8), 0);
}

TEST(Makespan, EqualBlocksRunInWholeWaves) {
  EXPECT_DOUBLE_EQ(makespan({{1, 16}}, 1, 8), 2);
  EXPECT_DOUBLE_EQ(makespan({{1, 17}}, 1, 8), 3);
  EXPECT_NEAR(makespan({{1, 8000001}}, 1, 8), 1000001, 1e-6);
}

TEST(Makespan, AgreesWithBruteForce) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<BlockRun> runs;
    const int64_t width = 1 + random() % 12;
    for (int64_t rows = 1 + random() % 20; rows > 0; --rows)
      runs.push_back({static_cast<double>(rows) + 0.3, width});
    const int64_t repeats = 1 + random() % 6, slots = 1 + random() % 40;
    const double exact = simulate(runs, repeats, slots);
    // The part before the simulated end counts as balanced: an error of less than one of its longest blocks.
    EXPECT_NEAR(makespan(runs, repeats, slots), exact, 0.06 * exact) << "run " << i;
  }
}

TEST(Makespan, LongestFirstBeatsShortestFirst) {
  std::vector<BlockRun> longest, shortest;
  for (int row = 32; row > 0; --row) longest.push_back({static_cast<double>(row), 8});
  shortest.assign(longest.rbegin(), longest.rend());
  EXPECT_LT(makespan(longest, 1, 132), makespan(shortest, 1, 132));
}

}  // namespace
}  // namespace trigen
