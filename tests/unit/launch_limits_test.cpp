// Sizes at the ends of what validate() takes: no family makes a launch that no device takes, and what the
// kernels count in 32 bits is refused, not wrapped around.
#include <gmock/gmock.h>

#include <cmath>

#include "generator/candidate.h"
#include "generator/cost/cost.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;

const Target& target_of(const char* name) { return *llvm::cantFail(find_target(name)); }
Problem problem(const std::string& text) { return llvm::cantFail(parse_problem(text)); }

// Of every launch of the plan.
void expect_launchable(const Problem& p, const Target& target, const Family& family, const Config& config) {
  const LaunchPlan plan = family.launch_plan(p, target, config);
  for (const Launch& launch : plan.launches) {
    const bool fits = launch.grid[0] <= kMostBlocks && launch.grid[1] <= kMostBlocksAcross &&
                      launch.grid[2] <= kMostBlocksAcross &&
                      std::min({launch.grid[0], launch.grid[1], launch.grid[2]}) >= 1;
    ASSERT_TRUE(fits) << family.name().str() << " " << launch.entry << " of " << to_string(p) << " for "
                      << target.name.str() << " as " << to_string(config) << ": grid " << launch.grid[0]
                      << " x " << launch.grid[1] << " x " << launch.grid[2];
  }
  ASSERT_GE(plan.workspace_bytes, 0) << to_string(p) << " as " << to_string(config);
}

TEST(LaunchLimits, NoFamilyPassesThemWhateverTheSizes) {
  const std::vector<std::string> kinds = {
      "forward,dtype=f16",
      "forward,dtype=f16,wdtype=f32",
      "forward,dtype=bf16,layout=bdt",
      "forward,dtype=f32,math=tf32",
      "forward,dtype=f32,math=f16x3",
      "grad_input,dtype=bf16,walign=2",
      "grad_input,dtype=f32,math=tf32",
      "grad_input,dtype=bf16,layout=bdt,epilogue=residual",
      "grad_weight,dtype=bf16,epilogue=bias",
      "grad_weight,dtype=f32,math=tf32,layout=bdt",
      "grad_weight,dtype=f32,math=f16x3",
      "forward,dtype=bf16,K=4",
      "grad_weight,dtype=bf16,K=8",
      "decode,dtype=bf16",
      "grad_epilogue,dtype=bf16,epilogue=gelu",
      "decode,dtype=f32,layout=bdt,K=4",
      "scan,dtype=bf16,epilogue=bias",
      "scan_grad_input,dtype=f32,layout=bdt",
      "scan_grad_weight,dtype=f16,wdtype=f32",
      "newton_schulz,dtype=f16,K=5",
  };
  const std::vector<int64_t> extents = {1, 8, 4096, 66000, int64_t{1} << 23, int64_t{1} << 30};
  // A quick run takes every fifth: of any two sizes all values meet, because 5 divides no number of extents.
  int made = 0, index = 0;
  for (const std::string& kind : kinds)
    for (int64_t B : extents)
      for (int64_t H : extents)
        for (int64_t T : extents)
          for (int64_t D : extents) {
            if (!takes(index++, 5)) continue;
            if (std::log2(T) > 20) continue;  // rows of tiles are walked one by one
            auto parsed = parse_problem(kind + ",B=" + std::to_string(B) + ",H=" + std::to_string(H) +
                                        ",T=" + std::to_string(T) + ",D=" + std::to_string(D));
            if (!parsed) {  // more than 2^31 columns, or 2^62 bytes
              llvm::consumeError(parsed.takeError());
              continue;
            }
            for (const char* name : {"sm_70", "sm_80", "sm_90a"}) {
              const Target& target = target_of(name);
              for (const Family* family : families()) {
                if (!family->serves(target)) continue;
                std::vector<Config> configs = family->configs(*parsed, target);
                if (const auto generic = family->generic_config(*parsed, target)) configs.push_back(*generic);
                for (const Config& config : configs)
                  ASSERT_NO_FATAL_FAILURE(expect_launchable(*parsed, target, *family, config));
                made += static_cast<int>(configs.size());
              }
            }
          }
  EXPECT_GT(made, thorough() ? 100000 : 20000);
}

// W is packed along the one axis of a grid that takes so many heads.
TEST(LaunchLimits, MoreHeadsThanAGridIsDeepArePacked) {
  for (const char* text :
       {"forward,dtype=f16,B=4,H=66000,T=2,D=64,wdtype=f32",
        "grad_input,dtype=bf16,B=4,H=66000,T=2,D=64,walign=2", "forward,dtype=bf16,B=4,H=66000,T=8,D=128,K=4",
        "grad_input,dtype=f32,B=4,H=66000,T=2,D=64,math=tf32"}) {
    const Target& target = target_of("sm_90a");
    auto best = rank_candidates(problem(text), target);
    ASSERT_TRUE(bool(best)) << llvm::toString(best.takeError());
    int packs = 0;  // wgmma_resident_sm90 reads such weights as they lie
    for (const Candidate& candidate : *best) {
      const LaunchPlan plan = candidate.family->launch_plan(problem(text), target, candidate.config);
      if (plan.launches.front().entry == kPackEntry) {
        EXPECT_GE(plan.launches.front().grid[0], 66000u) << text;
        ++packs;
      }
      ASSERT_NO_FATAL_FAILURE(expect_launchable(problem(text), target, *candidate.family, candidate.config));
    }
    EXPECT_GT(packs, 0) << text;
  }
}

// A tile scheduler of 2^31 tiles would end at once, with nothing written and a negative time.
TEST(LaunchLimits, MoreTilesThanAreCountedAreRefusedAndAnotherFamilyServes) {
  const Target& target = target_of("sm_90a");
  const Problem p = problem("forward,dtype=f16,B=1048576,H=4096,T=1,D=8");
  const Family& wgmma = *llvm::cantFail(find_family("wgmma_sm90"));
  const Config tile =
      llvm::cantFail(parse_config("tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"));
  EXPECT_EQ(wgmma.reject(p, target, tile).value_or(""),
            "wgmma_sm90 counts at most 2^30 tiles of 64 x 64, B=1048576, H=4096, T=1 and D=8 have more; use "
            "another family");
  EXPECT_TRUE(wgmma.configs(p, target).empty());
  EXPECT_FALSE(wgmma.generic_config(p, target));
  auto others = rank_candidates(p, target);
  ASSERT_TRUE(bool(others)) << llvm::toString(others.takeError());
  EXPECT_EQ(others->front().family->name(), "mma_sm80");

  // The parts of dW that thread blocks share: 2^25 steps each.
  const Family& taps = *llvm::cantFail(find_family("wgmma_taps_sm90"));
  EXPECT_THAT(
      taps.reject(problem("grad_weight,dtype=bf16,B=33554432,T=768,D=8,K=8"), target, Config{}).value_or(""),
      HasSubstr("counts at most 2^21 rows of blocks of 64 x 64 of dW, 2^30 blocks and 2^22 of their depth"));
}

TEST(LaunchLimits, PredictedTimesArePositive) {
  for (const char* name : {"sm_70", "sm_80", "sm_90a"}) {
    const Target& target = target_of(name);
    const DeviceModel device = model_of(target);
    for (const char* sizes : {"B=1048576,H=4096,T=1,D=8", "B=1048576,H=512,T=64,D=8",
                              "B=8388608,H=1,T=1,D=128", "B=1,H=65536,T=1,D=32767", "B=1,H=1,T=1,D=1",
                              "B=1,H=1,T=1048576,D=1", "B=4096,H=4096,T=4096,D=4096"})
      for (const char* kind : {"forward,dtype=f16,", "grad_input,dtype=f16,", "grad_weight,dtype=f16,",
                               "forward,dtype=f32,math=tf32,", "decode,dtype=f16,"})
        for (const Family* family : families()) {
          const Problem p = problem(std::string(kind) + sizes);
          if (!family->serves(target)) continue;
          const std::vector<Config> configs = family->configs(p, target);
          if (configs.empty()) continue;
          const double seconds =
              predict(Candidate{p, &target, family, configs.front(), false}, device).seconds;
          EXPECT_TRUE(std::isfinite(seconds) && seconds > 0)
              << seconds << " s of " << family->name().str() << " for " << to_string(p);
        }
  }
}

}  // namespace
}  // namespace trigen
