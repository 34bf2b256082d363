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

TEST(Makespan, BlocksShareWhatIdleSlotsLeave) {
  EXPECT_DOUBLE_EQ(makespan({{8, 4, 4}}, 1, 4), 8) << "every slot is busy";
  EXPECT_DOUBLE_EQ(makespan({{8, 2, 4}}, 1, 4), 8) << "as many as ever";
  EXPECT_DOUBLE_EQ(makespan({{8, 2, 4}, {4, 2, 4}}, 1, 4), 4 + 4 / 2.0) << "from when others have ended";
  EXPECT_DOUBLE_EQ(makespan({{8, 1, 4}, {4, 1, 4}}, 1, 4), 4 + 4 / 2.0) << "of slots that had a block";
  EXPECT_DOUBLE_EQ(makespan({{8, 2, 7}, {4, 6, 4}}, 1, 8), 4 + 4 * 7 / 8.0) << "as fast as it is alone";
  EXPECT_DOUBLE_EQ(makespan({{8, 2}, {4, 2}}, 1, 4), 8) << "nothing is shared";
}

// Two blocks on each of two SMs; a step takes 1 alone and 2 beside another block.
TEST(SharedMakespan, ABlockAloneStepsFaster) {
  const std::vector<double> steps = {1, 2};
  EXPECT_DOUBLE_EQ(shared_makespan({{4, 0, 2}}, 1, 2, 2, steps).seconds, 4) << "an SM for each";
  EXPECT_DOUBLE_EQ(shared_makespan({{4, 0, 3}}, 1, 3, 2, steps).seconds, 8) << "one SM has two";
  EXPECT_DOUBLE_EQ(shared_makespan({{6, 0, 2}, {2, 0, 2}}, 1, 4, 2, steps).seconds, 8) << "long and short";
  EXPECT_DOUBLE_EQ(shared_makespan({{6, 0, 1}, {2, 0, 1}, {6, 0, 1}, {2, 0, 1}}, 1, 4, 2, steps).seconds, 12)
      << "two long ones on one SM";
  EXPECT_DOUBLE_EQ(shared_makespan({{4, 0, 2}}, 1, 4, 2, steps).seconds, 8)
      << "blocks without work have taken the other SM's places";
  EXPECT_DOUBLE_EQ(shared_makespan({}, 1, 0, 2, steps).seconds, 0);
}

TEST(SharedMakespan, AnEndLeavesTheUnitsToOthers) {
  const std::vector<double> steps = {1, 2};
  // To 8 both step, to 11 both end.
  EXPECT_DOUBLE_EQ(shared_makespan({{4, 3, 2}}, 1, 2, 1, steps).seconds, 11);
  // To 4 both step, to 7 the first ends while the second does three steps alone, then one more and its end.
  EXPECT_DOUBLE_EQ(shared_makespan({{2, 3, 1}, {6, 3, 1}}, 1, 2, 1, steps).seconds, 11);
  // Many: ends are hidden, 4 steps of each take the SM 4.
  const SharedFinish many = shared_makespan({{4, 3, 10000}}, 1, 10000, 1, steps);
  EXPECT_DOUBLE_EQ(many.balanced, 40000);
  EXPECT_NEAR(many.seconds, 40000, 10);
}

}  // namespace
}  // namespace trigen
