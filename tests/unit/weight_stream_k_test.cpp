// The split_k values that grad_weight's families try.
#include "generator/families/weight_stream_k.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "generator/candidate.h"
#include "problem_testing.h"
#include "templates/persistent/three_panels.h"
#include "templates/schedule.h"

namespace trigen {
namespace {

using trigen::testing::problem_of;
using trigen::testing::target_of;

constexpr Config kConfig = {.tile_m = 128,
                            .tile_n = 256,
                            .tile_k = 64,
                            .warps_m = 8,
                            .warps_n = 1,
                            .stages = 4,
                            .split_k = 1,
                            .raster = 0,
                            .vec_a = 8,
                            .vec_b = 8,
                            .vec_c = 8,
                            .cluster = 1,
                            .box = 0,
                            .blocks = 1};

std::vector<int> splits_of(const persistent::StreamK& stream_k) {
  std::vector<int> out;
  for (const Config& c : with_splits(kConfig, stream_k)) {
    EXPECT_TRUE(c.tile_n == kConfig.tile_n && c.stages == kConfig.stages) << "nothing else changes";
    out.push_back(c.split_k);
  }
  return out;
}
double filled(const persistent::StreamK& s, int split) {
  const int left = s.wide % s.blocks, rounds = schedule::ceil_div(left * split, s.blocks);
  return static_cast<double>(left) * split / (static_cast<double>(rounds) * s.blocks);
}

TEST(WeightSplits, AreDistinctInOrderAndNoDeeperThanTheSum) {
  for (const char* text :
       {"grad_weight,dtype=bf16,B=1,T=512,D=64", "grad_weight,dtype=bf16,B=32,T=512,D=1024",
        "grad_weight,dtype=f16,B=2,H=3,T=1000,D=200", "grad_weight,dtype=bf16,B=64,T=8192,D=64",
        "grad_weight,dtype=f32,B=4,T=300,D=100,math=tf32"})
    for (const int grid : {1, 16, 132}) {
      const persistent::StreamK stream_k = weight_stream_k(problem_of(text), kConfig, grid);
      const std::vector<int> splits = splits_of(stream_k);
      ASSERT_FALSE(splits.empty());
      EXPECT_EQ(splits.front(), 1) << text;
      EXPECT_LE(splits.back(), stream_k.depth) << text;
      EXPECT_TRUE(std::is_sorted(splits.begin(), splits.end()));
      EXPECT_EQ(std::set<int>(splits.begin(), splits.end()).size(), splits.size()) << text;
    }
}

// Among them is a split that leaves no more blocks without a part than any other up to four parts for each.
TEST(WeightSplits, OneFillsTheMachineBest) {
  for (const char* text :
       {"grad_weight,dtype=bf16,B=32,T=512,D=1024", "grad_weight,dtype=bf16,B=32,T=1024,D=1024",
        "grad_weight,dtype=bf16,B=16,H=5,T=700,D=512"}) {
    const persistent::StreamK stream_k = weight_stream_k(problem_of(text), kConfig, 132);
    const int left = stream_k.wide % stream_k.blocks;
    ASSERT_GT(left, 0);
    const int all = stream_k.blocks / left;
    double best = 0, tried = 0;
    for (int split = 1; split <= std::min(4 * all, stream_k.depth); ++split)
      best = std::max(best, filled(stream_k, split));
    for (const int split : splits_of(stream_k)) tried = std::max(tried, filled(stream_k, split));
    EXPECT_NEAR(tried, best, 1e-9) << text;
  }
}

TEST(WeightSplits, ClustersThatDoNotFitTheGroupsOfSMsAreCountedAsTheyRun) {
  const Target& hopper = target_of("sm_90a");
  EXPECT_EQ(clusters_at_once(hopper, 1), 132);
  EXPECT_EQ(clusters_at_once(hopper, 2), 66);
  EXPECT_EQ(clusters_at_once(hopper, 4), 30) << "an H200's answer";
}

// 64 features a block, but for the last of a batch, which is multiplied by 16.
TEST(WeightStreamK, ABatchIsMultipliedAsFarAsItHasFeatures) {
  const auto depth = [](const char* text) { return multiplied_depth(problem_of(text), kConfig); };
  EXPECT_DOUBLE_EQ(depth("grad_weight,dtype=bf16,B=4,H=4,T=512,D=64"), 64);
  EXPECT_DOUBLE_EQ(depth("grad_weight,dtype=bf16,B=4,H=8,T=512,D=24"), 32);
  EXPECT_DOUBLE_EQ(depth("grad_weight,dtype=bf16,B=4,H=4,T=512,D=96"), 48);
  EXPECT_DOUBLE_EQ(depth("grad_weight,dtype=bf16,B=4,T=512,D=200"), 208 / 4.0);
  EXPECT_DOUBLE_EQ(depth("grad_weight,dtype=bf16,B=4,T=512,D=96,K=2"), 64);
}

// The narrowest tiles that are one wave: of 128 rows and of 64.
TEST(FittedTiles, AreTheNarrowestOfOneWave) {
  const Target& target = target_of("sm_90a");
  const auto fitted = [&](const char* text) {
    const Problem problem = problem_of(text);
    std::map<int, int> columns;  // by rows
    for (const Candidate& candidate : llvm::cantFail(list_candidates(problem, target))) {
      const Config& c = candidate.config;
      if (candidate.family->name() != "wgmma_sm90" || !persistent::weight::fitted(c)) continue;
      EXPECT_TRUE(columns.emplace(c.tile_m, c.tile_n).second) << "one of so many rows";
      const persistent::StreamK s = weight_stream_k(problem, c, 1);
      EXPECT_LE(persistent::weight::sliced_tiles(c, s), target.sms);
      Config narrower = c;
      narrower.tile_n -= 16;
      EXPECT_GT(persistent::weight::three_panel_tiles(narrower, s), target.sms);
    }
    return columns;
  };
  using Columns = std::map<int, int>;
  EXPECT_EQ(fitted("gram,dtype=bf16,B=1,T=2048,D=2048,epilogue=mirror"), (Columns{{128, 144}}));
  EXPECT_EQ(fitted("gram,dtype=bf16,B=1,T=1536,D=1536,epilogue=mirror"), (Columns{{64, 160}, {128, 80}}));
  EXPECT_EQ(fitted("gram,dtype=bf16,B=1,T=1024,D=1024,epilogue=mirror"), (Columns{{64, 80}}));
  EXPECT_EQ(fitted("gram,dtype=bf16,B=1,T=1024,D=1024"), Columns{}) << "both triangles";
  EXPECT_EQ(fitted("gram,dtype=bf16,B=1,T=1024,D=1024,layout=bdt,epilogue=mirror"), (Columns{{64, 80}}))
      << "packed";
  EXPECT_EQ(fitted("grad_weight,dtype=bf16,B=1,T=2048,D=2048"), Columns{});
}

TEST(WeightStreamK, SizesThatTheKernelCannotCountAreRefused) {
  EXPECT_EQ(too_many_work_tiles(problem_of("grad_weight,dtype=bf16,B=1024,T=8192,D=4096"), 64), std::nullopt);
  Problem p = problem_of("grad_weight,dtype=bf16,B=1,T=64,D=64");
  p.H = 8, p.T = 32768, p.B = 1 << 20;  // 8 * 256 row tiles, 2^20 blocks of 64 features
  const auto why = too_many_work_tiles(p, 64);
  ASSERT_TRUE(why.has_value());
  const std::string text =
      "counts at most 2^21 rows of tiles of dW, 2^30 tiles and 2^30 blocks of their depth";
  EXPECT_EQ(*why, text);
  // 34 GB of bf16, and 520 items of the reduction for each head: more than 2^31 (stacked.cuh).
  EXPECT_EQ(too_many_work_tiles(problem_of("grad_weight,dtype=bf16,B=1,T=64,D=8,H=4194304"), 64), text);
  EXPECT_EQ(too_many_work_tiles(problem_of("grad_weight,dtype=bf16,B=1,T=64,D=8,H=2097152"), 64),
            std::nullopt);
}

}  // namespace
}  // namespace trigen
