// Sizes at the ends of what validate() takes: no family makes a launch that no device takes.
#include <gmock/gmock.h>

#include <cmath>

#include "generator/candidate.h"

namespace trigen {
namespace {

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
      "decode,dtype=f32,layout=bdt,K=4",
  };
  const std::vector<int64_t> extents = {1, 8, 4096, 66000, int64_t{1} << 23, int64_t{1} << 30};
  int made = 0;
  for (const std::string& kind : kinds)
    for (int64_t B : extents)
      for (int64_t H : extents)
        for (int64_t T : extents)
          for (int64_t D : extents) {
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
  EXPECT_GT(made, 100000);
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
    for (const Candidate& candidate : *best) {
      const LaunchPlan plan = candidate.family->launch_plan(problem(text), target, candidate.config);
      EXPECT_EQ(plan.launches.front().entry, kPackEntry) << text;
      EXPECT_GE(plan.launches.front().grid[0], 66000u) << text;
      ASSERT_NO_FATAL_FAILURE(expect_launchable(problem(text), target, *candidate.family, candidate.config));
    }
  }
}

}  // namespace
}  // namespace trigen
