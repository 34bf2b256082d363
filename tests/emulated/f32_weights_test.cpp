// f32 weights beside 16-bit data on wgmma_sm90: read by the product itself or packed by a launch before it,
// the outputs have the same bits, for W is rounded the same way and the sums are formed in the same order.
// Outside the triangle W is NaN. On the emulated device, and (with TRIGEN_TEST_GPU=1) on this machine's GPU.
#include <gtest/gtest.h>

#include "check/workbench.h"
#include "generator/families/families.h"
#include "hopper_testing.h"
#include "runtime/compile.h"
#include "runtime/plan.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

class F32Weights : public trigen::testing::HopperTest<const char*> {
 protected:
  // The launches of a plan, and what it leaves in the output.
  struct Outcome {
    size_t launches = 0;
    std::vector<std::byte> output;
  };
  Outcome run(const Problem& p, const Config& config, bool generic = false) const {
    const Candidate candidate{p, &device_->target(), &wgmma_sm90_family(), config, generic};
    Outcome out;
    out.launches = candidate.family->launch_plan(p, device_->target(), config).launches.size();
    auto plan = llvm::cantFail(Plan::of(
        candidate, llvm::cantFail(compile(candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
    auto bench = llvm::cantFail(Workbench::create(*device_, p));
    const trigen_args args = llvm::cantFail(bench->args(0, plan->workspace_bytes()));
    llvm::cantFail(bench->poison());
    llvm::cantFail(plan->run(args, bench->stream()));
    for (const auto& buffer : llvm::cantFail(bench->download()))
      if (!buffer.empty()) out.output.insert(out.output.end(), buffer.begin(), buffer.end());
    return out;
  }
};

TEST_P(F32Weights, HaveTheBitsOfPackedOnes) {
  TAKES_ONE_OF(2);
  const Problem p = llvm::cantFail(parse_problem(GetParam()));
  const Config base{.tile_m = 128,
                    .tile_n = 128,
                    .tile_k = 64,
                    .warps_m = 8,
                    .warps_n = 1,
                    .stages = 4,
                    .split_k = 1,
                    .raster = 0,
                    .vec_a = 4,
                    .vec_b = 8,
                    .vec_c = 8,
                    .cluster = 1,
                    .blocks = 1,
                    .weights = Access::kPacked};
  const Outcome packed = run(p, base);
  EXPECT_EQ(packed.launches, 2u);
  ASSERT_FALSE(packed.output.empty());
  struct Tile {
    int m, n, stages, cluster;
  };
  for (const Tile& tile : {Tile{128, 128, 4, 1}, Tile{128, 256, 3, 2}, Tile{64, 192, 2, 1}}) {
    Config own = base;
    own.tile_m = tile.m, own.tile_n = tile.n, own.stages = tile.stages, own.cluster = tile.cluster;
    own.warps_m = tile.m / 16;
    own.vec_a = 8;
    own.weights = Access::kDirect;
    const auto why = wgmma_sm90_family().reject(p, device_->target(), own);
    ASSERT_FALSE(why.has_value()) << *why;
    const Outcome read = run(p, own, tile.m == 64);
    EXPECT_EQ(read.launches, 1u);
    EXPECT_TRUE(read.output == packed.output) << to_string(own);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, F32Weights,
    ::testing::Values(
        "forward,dtype=f16,B=3,T=196,D=72,wdtype=f32,epilogue=bias",
        "forward,dtype=bf16,B=2,H=2,T=260,D=40,wdtype=f32,fill=upper,diag=70",
        "forward,dtype=bf16,B=2,T=260,D=64,wdtype=f32,diag=-70,epilogue=bias+gelu+residual",
        "grad_input,dtype=bf16,B=3,T=196,D=72,wdtype=f32",
        "grad_input,dtype=f16,B=2,H=2,T=260,D=40,wdtype=f32,fill=upper,diag=3,epilogue=residual"));

}  // namespace
}  // namespace trigen
