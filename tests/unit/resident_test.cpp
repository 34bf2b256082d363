// wgmma_resident_sm90: what it takes and refuses, and how its blocks share the panels.
#include "templates/wgmma_resident_sm90.h"

#include <gmock/gmock.h>

#include <array>
#include <vector>

#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/random_problem.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;

Problem problem(const char* text) { return llvm::cantFail(parse_problem(text)); }
const Family& family_of_residents() { return *llvm::cantFail(find_family("wgmma_resident_sm90")); }
const Target& hopper() { return *llvm::cantFail(find_target("sm_90a")); }

TEST(Resident, RefusalsNameTheRule) {
  constexpr const char* kShort = "forward,dtype=bf16,B=64,T=128,D=512";
  const auto resident = [](const char* text, const char* config) {
    const std::string whole = "tile=" + std::string(config) + ",splitk=1,vec=8x8x8,cluster=1";
    return family_of_residents()
        .reject(problem(text), hopper(), llvm::cantFail(parse_config(whole)))
        .value_or("");
  };
  const auto refused = [&](const char* text) {
    return resident(text, "128x64x64,warps=4x2,stages=4,blocks=1");
  };
  EXPECT_EQ(refused(kShort), "");
  EXPECT_EQ(refused("forward,dtype=bf16,B=64,T=257,D=512"),
            "wgmma_resident_sm90 keeps W of at most 256 tokens in registers, T=257; use another family");
  EXPECT_THAT(refused("forward,dtype=f32,B=64,T=128,D=512"), HasSubstr("multiplies 16-bit data"));
  EXPECT_THAT(refused("grad_weight,dtype=bf16,B=64,T=128,D=512"), HasSubstr("makes forward and grad_input"));
  EXPECT_THAT(refused("forward,dtype=bf16,B=64,T=128,D=512,K=2"), HasSubstr("makes K=1 with pad=0"));
  EXPECT_THAT(refused("forward,dtype=bf16,B=64,T=128,D=512,epilogue=gelu+pre"),
              HasSubstr("without pre and gate"));
  EXPECT_EQ(refused("forward,dtype=bf16,B=64,T=128,D=512,epilogue=bias+residual"), "");
  EXPECT_THAT(refused("forward,dtype=bf16,B=64,T=128,D=512,epilogue=gelu+residual"),
              HasSubstr("adds a residual to the sums"));
  EXPECT_THAT(refused("forward,dtype=bf16,B=64,T=128,D=513"), HasSubstr("whole 16-byte pieces"));
  EXPECT_THAT(refused("forward,dtype=bf16,B=64,T=126,D=512,layout=bdt"), HasSubstr("whole 16-byte pieces"));
  // An output row takes the place of the x that no later one reads: not where rows reach past their block.
  EXPECT_THAT(refused("forward,dtype=bf16,B=64,T=128,D=512,diag=1"), HasSubstr("still need with diag=1"));
  EXPECT_EQ(refused("forward,dtype=bf16,B=64,T=128,D=512,diag=-1"), "");
  EXPECT_EQ(refused("grad_input,dtype=bf16,B=64,T=128,D=512,fill=upper,diag=1"), "");
  EXPECT_EQ(resident("forward,dtype=bf16,B=64,T=64,D=512,diag=1", "64x64x64,warps=4x3,stages=6,blocks=1"),
            "");
  EXPECT_THAT(resident(kShort, "64x64x64,warps=4x2,stages=4,blocks=1"), HasSubstr("try tile_m=128"));
  EXPECT_THAT(resident(kShort, "128x96x64,warps=4x2,stages=4,blocks=1"), HasSubstr("try tile_n=128"));
  EXPECT_THAT(resident("forward,dtype=bf16,B=64,T=192,D=512", "192x64x64,warps=4x3,stages=6,blocks=1"),
              HasSubstr("warps_n=3 is of warpgroups whose registers hold W; try warps_n=2"));
  EXPECT_THAT(resident(kShort, "128x64x64,warps=4x2,stages=4,blocks=2"), HasSubstr("try blocks=1"));
  EXPECT_THAT(resident(kShort, "128x64x64,warps=4x2,stages=5,blocks=1"), HasSubstr("try stages=6"));
  // A residual's panels take as much of a stage as x's.
  EXPECT_THAT(resident("forward,dtype=bf16,B=64,T=128,D=512,epilogue=residual",
                       "128x64x64,warps=4x2,stages=8,blocks=1"),
              HasSubstr("try stages=6"));
}

TEST(Resident, ConfigsAreLegalAndServeEveryShortContext) {
  const Family& family = family_of_residents();
  const Target& target = hopper();
  RandomProblem random(23);
  int served = 0;
  for (int i = 0; i < 6000; ++i) {
    Problem p = random.next();
    p.dtype = i % 4 < 2 ? DType::kF16 : DType::kBF16;
    if (p.wdtype != DType::kF32) p.wdtype = p.dtype;
    p.math = Math::kDefault;
    p.K = 1, p.pad = 0;
    p.T = 1 + (p.T + i) % 256;
    p.D = (p.D + 7) / 8 * 8;
    p.align = 16;
    p.epilogue.pre = p.epilogue.gate = false;
    if (llvm::Error invalid = validate(p)) {
      llvm::consumeError(std::move(invalid));
      continue;
    }
    const auto configs = family.configs(p, target);
    if (configs.empty()) continue;
    ++served;
    for (const Config& config : configs)
      EXPECT_EQ(family.reject(p, target, config).value_or(""), "") << to_string(p) << to_string(config);
  }
  EXPECT_GT(served, 100);
}

// Measured choices (docs/experiments/wgmma_resident_sm90.md): first where it is faster, behind where it is not.
TEST(Resident, IsChosenWhereItWasFaster) {
  const auto first = [](const char* text) {
    return llvm::cantFail(list_candidates(problem(text), hopper())).front().family == &family_of_residents();
  };
  EXPECT_TRUE(first("forward,dtype=bf16,B=256,T=32,D=512"));
  EXPECT_TRUE(first("grad_input,dtype=bf16,B=4096,T=32,D=96,wdtype=f32"));
  EXPECT_TRUE(first("forward,dtype=bf16,B=64,T=192,D=512"));
  EXPECT_TRUE(first("grad_input,dtype=bf16,B=170,T=192,D=1024"));
  EXPECT_TRUE(first("forward,dtype=bf16,B=128,T=256,D=512,epilogue=bias"));
  EXPECT_TRUE(first("forward,dtype=bf16,B=128,T=197,D=768,epilogue=bias"));
  EXPECT_FALSE(first("forward,dtype=bf16,B=329,T=256,D=648"));
  // Narrow boxes.
  EXPECT_TRUE(first("forward,dtype=bf16,B=128,H=8,T=192,D=24"));
  // W by the threads of each block.
  EXPECT_TRUE(first("forward,dtype=bf16,B=653,T=192,D=768,wdtype=f32,epilogue=bias+gelu"));
  EXPECT_TRUE(first("forward,dtype=bf16,B=128,T=177,D=768,epilogue=bias"));
  EXPECT_TRUE(first("grad_input,dtype=bf16,B=300,T=100,D=512,wdtype=f32"));
  EXPECT_FALSE(first("forward,dtype=bf16,B=64,T=192,D=512,wdtype=f32"));
  EXPECT_FALSE(first("forward,dtype=bf16,B=85,T=128,D=512,wdtype=f32"));
}

// Every stage once, whatever the blocks; blocks of one head differ by one stage at most.
TEST(Resident, StagesAreSharedEvenly) {
  namespace resident = wgmma_resident_sm90;
  for (const int raster : {0, 1})
    for (const int blocks : {1, 2, 131, 132})
      for (const auto& [B, H, D, box] :
           {std::array{85, 1, 1024, 0}, {3, 8, 80, 0}, {682, 1, 128, 0}, {33, 4, 64, 0}, {33, 4, 24, 16}}) {
        Config config{};
        config.tile_n = 128, config.raster = raster, config.box = box;
        Shape shape{};
        shape.T = 64, shape.D = D, shape.H = H;
        const int all = H * resident::stages_of_head(B, D, config);
        std::vector<int> times(static_cast<size_t>(all), 0);
        for (int block = 0; block < blocks; ++block) {
          const resident::StageWalk walk = resident::walk_of_block(shape, config, B, D, blocks, block);
          int count = 0;
          for (; walk.stage(count) < walk.last; ++count) ++times[static_cast<size_t>(walk.stage(count))];
          const int heads_at_once = raster == 1 && blocks >= H ? H : 1;
          EXPECT_LE(count, all / heads_at_once / (blocks / heads_at_once) + 1);
        }
        for (const int n : times) EXPECT_EQ(n, 1);
      }
}

// What blocks need not claim and what they do is every stage once; a claim behind the last stage has none.
TEST(Resident, StagesAreClaimedOnce) {
  namespace resident = wgmma_resident_sm90;
  for (const int tokens : {16, 32, 64, 192, 256})
    for (const int blocks : {1, 2, 131, 132})
      for (const auto& [B, D, stages] :
           {std::array{85, 1024, 8}, {3, 80, 2}, {682, 128, 5}, {2000, 64, 16}}) {
        Config config{};
        config.tile_n = 64, config.raster = 2, config.stages = stages;
        Shape shape{};
        shape.T = tokens, shape.D = D, shape.H = 1;
        const int all = resident::stages_of_head(B, D, config), group = resident::claim_stages(shape, config),
                  first = resident::unclaimed_stages(shape, config);
        EXPECT_EQ(first % group, 0);
        std::vector<int> times(static_cast<size_t>(all), 0);
        const auto take = [&](int stage) {
          if (stage < all) ++times[static_cast<size_t>(stage)];
        };
        for (int block = 0; block < blocks; ++block)
          for (int n = 0; n < first; ++n)
            take(resident::walk_of_block(shape, config, B, D, blocks, block).stage(n));
        for (int claim = 0; claim < all; ++claim)
          for (int n = 0; n < group; ++n) take(resident::claimed_stage(shape, config, blocks, claim) + n);
        for (const int n : times) EXPECT_EQ(n, 1);
      }
}

}  // namespace
}  // namespace trigen
