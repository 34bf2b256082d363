#include "generator/cost/limits.h"

#include <gtest/gtest.h>

#include "problem_testing.h"

namespace trigen {
namespace {

using trigen::testing::target_of;

TEST(SoftMax, OneLimitIsItselfAndEqualOnesSlowEachOther) {
  EXPECT_DOUBLE_EQ(soft_max({3.0}), 3);
  EXPECT_DOUBLE_EQ(soft_max({3.0, 0.0, 0.0}), 3);
  EXPECT_NEAR(soft_max({1.0, 0.1}), 1, 1e-4) << "a limit of a tenth is not felt";
  EXPECT_DOUBLE_EQ(soft_max({1.0, 2.0}), soft_max({2.0, 1.0}));
  EXPECT_NEAR(soft_max({1.0, 1.0}), 1.19, 0.01);
  EXPECT_GT(soft_max({1.0, 0.9}), soft_max({1.0, 0.5}));
}

// As the CUDA occupancy calculator counts for compute capability 8.0: 65536 registers, 164 KB of shared memory
// with 1 KB of each block the system's, 2048 threads, 32 blocks.
TEST(ResidentBlocks, TheScarcestOfRegistersSharedMemoryAndThreads) {
  const Target& ampere = target_of("sm_80");
  EXPECT_EQ(resident_blocks(ampere, 128, 256, 0), 2);
  EXPECT_EQ(resident_blocks(ampere, 64, 256, 0), 4);
  EXPECT_EQ(resident_blocks(ampere, 32, 1024, 0), 2) << "threads";
  EXPECT_EQ(resident_blocks(ampere, 32, 128, 40 << 10), 4) << "shared memory: 41 KB each";
  EXPECT_EQ(resident_blocks(ampere, 32, 128, 54 << 10), 2);
  EXPECT_EQ(resident_blocks(ampere, 16, 32, 0), 32) << "blocks";
  EXPECT_EQ(resident_blocks(ampere, 255, 1024, 0), 1) << "one at least: such a kernel is refused elsewhere";
  EXPECT_EQ(resident_blocks(target_of("sm_70"), 32, 128, 48 << 10), 2) << "the system takes nothing there";
}

TEST(NameLimiter, TheLongestTerm) {
  const auto limiter = [](double compute, double dram, double l2, double tail, double launch) {
    Prediction p;
    p.compute_s = compute, p.dram_s = dram, p.l2_s = l2, p.tail_s = tail, p.fixed_s = launch;
    name_limiter(p, "tensor");
    return std::string(p.limiter);
  };
  EXPECT_EQ(limiter(2, 1, 0, 0, 0), "tensor");
  EXPECT_EQ(limiter(2, 3, 0, 0, 0), "dram");
  EXPECT_EQ(limiter(2, 3, 4, 0, 0), "l2");
  EXPECT_EQ(limiter(2, 0, 0, 5, 4), "tail");
  EXPECT_EQ(limiter(2, 0, 0, 0, 6), "launch");
}

}  // namespace
}  // namespace trigen
