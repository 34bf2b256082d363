// The tensor maps that launches carry as data, and the launches that prepare W for them.
#include <gmock/gmock.h>

#include "generator/candidate.h"
#include "generator/error.h"

namespace trigen {
namespace {

const Target& hopper() { return *llvm::cantFail(find_target("sm_90a")); }

LaunchPlan plan_of(const char* family_name, const char* text) {
  const Problem p = llvm::cantFail(parse_problem(text));
  const Family& family = *llvm::cantFail(find_family(family_name));
  const auto configs = family.configs(p, hopper());
  EXPECT_FALSE(configs.empty()) << text;
  return configs.empty() ? LaunchPlan{} : family.launch_plan(p, hopper(), configs.front());
}

std::string say(const TensorMapSpec& map) {
  const char* const sources[] = {"x", "y", "pre", "gate", "residual", "w", "workspace"};
  const char* const elements[] = {"f16", "bf16", "f32", "tf32"};
  std::string text = std::string(sources[static_cast<int>(map.source)]) + " " +
                     elements[static_cast<int>(map.element)] + " " + std::to_string(map.extents[0]);
  for (int i = 1; i < 4; ++i) text += "," + std::to_string(map.extents[i]);
  text += " box " + std::to_string(map.columns) + "x" + std::to_string(map.rows);
  if (map.source == MapSource::kWorkspace)
    text += " strides " + std::to_string(map.strides[0]) + "," + std::to_string(map.strides[1]) + "," +
            std::to_string(map.strides[2]);
  return text;
}

std::vector<std::string> maps_of(const char* family, const char* text) {
  std::vector<std::string> maps;
  for (const Launch& launch : plan_of(family, text).launches)
    for (const TensorMapSpec& map : launch.maps) maps.push_back(say(map));
  return maps;
}

// The blocks that pack W find room on all SMs at the same time, where so many threads run, and no SM takes more than its share.
TEST(PackingLaunches, SpreadOverTheSms) {
  struct Case {
    const char *family, *problem;
    uint32_t blocks, of_sm;  // an SM's share of them, at most as many as it has threads for
  };
  for (const auto& [family, text, blocks, of_sm] :
       {Case{"wgmma_sm90", "grad_input,dtype=bf16,B=4,T=1001,D=512", 256, 2},
        {"wgmma_sm90", "forward,dtype=bf16,B=4,T=100,D=512", 4, 1},
        {"wgmma_sm90", "forward,dtype=bf16,B=1,H=8,T=2001,D=64", 8192, 8},
        {"wgmma_taps_sm90", "forward,dtype=bf16,B=8,T=512,D=256,K=3", 512, 4},
        {"wgmma_resident_sm90", "grad_input,dtype=bf16,B=16,T=197,D=256,wdtype=f32", 16, 1}}) {
    const LaunchPlan plan = plan_of(family, text);
    ASSERT_TRUE(!plan.launches.empty() && plan.launches.front().prepares_w) << text;
    const Launch& pack = plan.launches.front();
    EXPECT_TRUE(pack.early) << text;
    EXPECT_EQ(pack.grid[0], blocks) << text;
    const int64_t each = pack.shared_bytes + hopper().reserved_shared_per_block;
    EXPECT_LE(pack.shared_bytes, hopper().max_shared_per_block) << text;
    EXPECT_LE(of_sm * each, hopper().shared_per_sm) << text;
    EXPECT_GT((of_sm + 1) * each, hopper().shared_per_sm) << text;
  }
}

// Of every candidate for these problems: their own grid on the model device, no more clusters than fit elsewhere.
TEST(LaunchesOn, PersistentGridsHaveABlockForEachSmThatIsThere) {
  int smaller = 0;
  for (const char* text :
       {"forward,dtype=bf16,B=8,T=2048,D=1024", "grad_input,dtype=f16,B=8,T=1024,D=1024,wdtype=f32",
        "grad_weight,dtype=bf16,B=4,T=1024,D=512,epilogue=bias",
        "forward,dtype=f32,B=8,T=1024,D=512,math=tf32", "grad_weight,dtype=f32,B=4,T=512,D=512,math=f16x3",
        "forward,dtype=bf16,B=8,T=512,D=512,K=4", "grad_weight,dtype=bf16,B=4,T=512,D=512,K=8",
        "forward,dtype=f32,B=2,T=256,D=128"}) {
    const auto candidates = llvm::cantFail(rank_candidates(llvm::cantFail(parse_problem(text)), hopper()));
    for (const Candidate& candidate : candidates) {
      SCOPED_TRACE(std::string(text) + " " + describe(candidate));
      const Launch own = product_launch(launch_plan_on(candidate, hopper().sms), candidate.problem.op);
      EXPECT_EQ(own.grid[0], product_launch(launch_plan_on(candidate, 0), candidate.problem.op).grid[0]);
      if (!candidate.family->name().startswith("wgmma")) continue;
      for (const int sms : {114, 78, 16}) {
        const LaunchPlan plan = launch_plan_on(candidate, sms);
        const Launch& there = product_launch(plan, candidate.problem.op);
        EXPECT_EQ(there.grid[0] % there.cluster, 0u);
        if (own.grid[0] <= 16) continue;
        if (there.grid[0] < own.grid[0]) ++smaller;
        // The kept map has entries that a smaller grid has no use for, or lacks some.
        EXPECT_TRUE(there.grid[0] <= static_cast<uint32_t>(sms) || there.grid[0] == own.grid[0]);
      }
    }
  }
  EXPECT_GT(smaller, 300);
}

using ::testing::ElementsAre;

TEST(TensorMaps, SayWhoseElementsLieWhere) {
  EXPECT_THAT(maps_of("wgmma_sm90", "forward,dtype=bf16,B=4,H=2,T=512,D=192,epilogue=gate"),
              ElementsAre("w bf16 512,512,1,2 box 64x64", "x bf16 192,512,2,4 box 64x64",
                          "y bf16 192,512,2,4 box 64x64", "gate bf16 192,512,2,4 box 64x64"));
  EXPECT_THAT(maps_of("wgmma_sm90", "grad_input,dtype=f16,B=4,T=512,D=192,wdtype=f32"),
              ElementsAre("w f32 512,512,1,1 box 32x64", "y f16 192,512,1,4 box 64x64",
                          "x f16 192,512,1,4 box 64x64"));
  EXPECT_THAT(maps_of("wgmma_tf32_sm90", "forward,dtype=f32,B=4,T=512,D=192,math=tf32"),
              ElementsAre("w tf32 512,512,1,1 box 32x64", "x tf32 192,512,1,4 box 32x32",
                          "y f32 192,512,1,4 box 32x64"));
}

// Contiguous tokens are the innermost axis; copies of activations are features again, those of grad_weight of all
// batches.
TEST(TensorMaps, FollowTheLayoutThatTheProductSees) {
  EXPECT_THAT(maps_of("wgmma_sm90", "forward,dtype=bf16,B=4,T=512,D=192,layout=bdt"),
              ElementsAre("w bf16 512,512,1,1 box 64x64", "x bf16 512,192,1,4 box 64x64",
                          "y bf16 512,192,1,4 box 64x64"));
  EXPECT_THAT(maps_of("wgmma_sm90", "grad_weight,dtype=bf16,B=4,T=512,D=192,layout=bdt"),
              ElementsAre("y bf16 512,192,1,4 box 64x64", "x bf16 512,192,1,4 box 64x64",
                          "w bf16 512,512,1,1 box 64x64"));
  EXPECT_THAT(maps_of("wgmma_sm90", "grad_weight,dtype=bf16,B=4,T=511,D=192,layout=bdt"),
              ElementsAre("y bf16 768,511,1,1 box 64x64", "x bf16 768,511,1,1 box 64x64",
                          "x bf16 768,511,1,1 box 64x64"));
  // Of taps: all features that a tile's taps reach at once.
  const LaunchPlan plan =
      plan_of("wgmma_taps_sm90", "forward,dtype=bf16,B=4,T=512,D=192,K=3,layout=bdt,epilogue=residual");
  ASSERT_EQ(plan.launches.size(), 2u);
  const auto& maps = plan.launches[1].maps;
  ASSERT_EQ(maps.size(), 4u);
  EXPECT_EQ(say(maps[1]), "x bf16 512,192,1,4 box 64x136");
  EXPECT_EQ(say(maps[2]), "y bf16 512,192,1,4 box 64x64");
  EXPECT_EQ(say(maps[3]), "residual bf16 512,192,1,4 box 64x64");
}

// W as a launch prepared it lies in the workspace, padded; its size is what the launch is given.
TEST(TensorMaps, OfPreparedWeightsCoverWhatTheirLaunchWrites) {
  const auto check = [](const char* family, const char* text, const char* map) {
    const LaunchPlan plan = plan_of(family, text);
    ASSERT_GE(plan.launches.size(), 2u);
    EXPECT_EQ(plan.launches[0].entry, kPackEntry);
    const TensorMapSpec& weights = plan.launches[1].maps[0];
    EXPECT_EQ(say(weights), map);
    EXPECT_EQ(plan.workspace_bytes, weights.strides[2] * weights.extents[3]);
  };
  check("wgmma_sm90", "forward,dtype=bf16,B=4,H=3,T=500,D=192,walign=2",
        "workspace bf16 512,512,1,3 box 64x64 strides 1024,524288,524288");
  check("wgmma_taps_sm90", "forward,dtype=f16,B=4,H=3,T=130,D=192,K=3",
        "workspace f16 192,192,3,3 box 64x64 strides 384,73728,221184");
  check("wgmma_tf32_sm90", "grad_input,dtype=f32,B=4,H=3,T=130,D=192,math=tf32",
        "workspace f32 130,130,1,3 box 32x64 strides 528,68640,68640");
  check("wgmma_tf32_sm90", "forward,dtype=f32,B=4,H=3,T=130,D=192,K=3,math=tf32",
        "workspace f32 130,130,3,3 box 32x64 strides 528,68640,205920");
}

}  // namespace
}  // namespace trigen
