// Counts of two thread blocks, extended to the whole grid, against the whole grid's own.
#include "tuner/counting.h"

#include <gmock/gmock.h>

#include <cmath>

#include "check/profile.h"
#include "generator/error.h"
#include "runtime/compile.h"

namespace trigen {
namespace {

struct Whole {
  const char *name, *target, *problem, *candidate;
  double steps, tiles;  // of the whole grid, all tiles whole
};

void PrintTo(const Whole& whole, std::ostream* out) { *out << whole.candidate; }

// Four row tiles take 1, 2, 3 and 4 steps each in every one of the columns.
const Whole kWholes[] = {
    {"mma_sm70", "sm_70", "forward,dtype=f16,B=4,T=256,D=64",
     "mma_sm70:tile=64x64x64,warps=2x2,stages=2,splitk=1,vec=8x8x8,blocks=2", 40, 16},
    {"mma_sm75", "sm_75", "grad_input,dtype=f16,B=4,T=256,D=64",
     "mma_sm75:tile=64x64x64,warps=2x2,stages=2,splitk=1,vec=8x8x8,blocks=2", 40, 16},
    {"mma_sm80", "sm_80", "forward,dtype=bf16,B=4,T=256,D=64,epilogue=bias",
     "mma_sm80:tile=64x64x64,warps=2x2,stages=4,splitk=1,vec=8x8x8,blocks=4", 40, 16},
    {"mma_sm80_heads", "sm_80", "forward,dtype=bf16,B=2,H=2,T=256,D=64",
     "mma_sm80:tile=64x64x64,warps=2x2,stages=4,splitk=1,vec=8x8x8,blocks=4", 40, 16},
    {"mma_tma_sm90", "sm_120a", "forward,dtype=bf16,B=8,T=256,D=64",
     "mma_tma_sm90:tile=64x64x64,warps=2x2,stages=3,splitk=1,vec=8x8x8,cluster=1,blocks=1", 80, 32},
    {"wgmma_sm90", "sm_90a", "forward,dtype=bf16,B=8,T=256,D=64",
     "wgmma_sm90:tile=128x64x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1", 40, 16},
    {"simt", "sm_70", "forward,dtype=f32,B=2,T=128,D=64",
     "simt:tile=64x32x16,warps=2x2,stages=2,splitk=1,vec=4x4x4,blocks=4", 48, 8},
};

class Extended : public testing::TestWithParam<Whole> {};

TEST_P(Extended, FromTwoBlocksIsExact) {
  const Whole& whole = GetParam();
  const Target* target = llvm::cantFail(find_target(whole.target));
  auto nvrtc = Nvrtc::choose(*target);
  if (!nvrtc) GTEST_SKIP() << "[SKIP] " << take_error(nvrtc.takeError()).message;
  const Candidate candidate =
      llvm::cantFail(parse_candidate(llvm::cantFail(parse_problem(whole.problem)), *target, whole.candidate));
  const Binary binary = llvm::cantFail(compile(candidate, **nvrtc, nullptr, Code::kPtx));
  auto counter = Counter::open(*target);
  ASSERT_TRUE(static_cast<bool>(counter)) << take_error(counter.takeError()).message;
  auto counts = (*counter)->count(candidate, binary);
  ASSERT_TRUE(static_cast<bool>(counts)) << take_error(counts.takeError()).message;
  ASSERT_TRUE(counts->has_value());
  const BlockCounts all = (*counts)->total(whole.steps, whole.tiles);

  const Device* device = llvm::cantFail(Device::open("emulated:" + target->name.str()));
  auto bench = llvm::cantFail(Workbench::create(*device, candidate.problem));
  auto plan = llvm::cantFail(Plan::of(candidate, binary, *device, LoadFrom::kPtx));
  const auto kernels = llvm::cantFail(profile(*plan, *bench));
  ASSERT_EQ(kernels.size(), 1u);
  const auto& own = kernels[0].counters;
  EXPECT_EQ(all.matrix_flops, own["matrix_flops"].get<double>());
  EXPECT_EQ(all.load_sectors, own["global_load_sectors"].get<double>());
  EXPECT_EQ(all.store_sectors, own["global_store_sectors"].get<double>());
  EXPECT_EQ(all.shared_wavefronts,
            own["shared_load_wavefronts"].get<double>() + own["shared_store_wavefronts"].get<double>());
  EXPECT_EQ(all.barrier_waits, own["barrier_waits"].get<double>());
  // The first and the last steps of a ring branch in their own ways, and mma_sm75 and mma_sm70 have a loop for whole
  // tiles beside the one that tests: 6.4 % between what a step of either takes.
  const double instructions =
      own["instructions"]["total"].get<double>() - own["instructions"].value("move", 0.0);
  EXPECT_NEAR(all.instructions, instructions, 0.07 * instructions);
}
INSTANTIATE_TEST_SUITE_P(Counts, Extended, testing::ValuesIn(kWholes),
                         [](const auto& info) { return info.param.name; });

TEST(CountsOfBlocks, TwoSamplesGiveAStepAndATile) {
  const std::vector<Sample> samples = {{1, 0, 2, 1}, {1, 1, 5, 1}};
  std::vector<BlockCounts> counted(2);
  counted[0].load_sectors = 100 + 2 * 30;
  counted[1].load_sectors = 100 + 5 * 30;
  const Counts counts = solve(samples, counted);
  EXPECT_DOUBLE_EQ(counts.step.load_sectors, 30);
  EXPECT_DOUBLE_EQ(counts.tile.load_sectors, 100);
  EXPECT_DOUBLE_EQ(counts.total(7, 2).load_sectors, 410);
  EXPECT_FALSE(std::signbit(counts.step.matrix_flops));
}

}  // namespace
}  // namespace trigen
