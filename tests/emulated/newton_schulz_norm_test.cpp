// newton_schulz_sm90 takes what X is divided by from the first panels of its blocks, and X comes once more where R says that they
// were not like the rest. Here they are: like it, far smaller, zero, far larger, all there is. On the emulated sm_90a, and (with
// TRIGEN_TEST_GPU) on this machine's GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>

#include "check/verify.h"
#include "generator/candidate.h"
#include "hopper_testing.h"
#include "runtime/compile.h"
#include "runtime/plan.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

struct Case {
  const char* candidate;
  const char* problem;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.candidate << " " << c.problem; }

class Norm : public trigen::testing::HopperTest<Case> {};

TEST_P(Norm, IsThatOfAllPanels) {
  TAKES_ONE_OF(2);
  const Problem p = llvm::cantFail(parse_problem(GetParam().problem));
  auto candidate = parse_candidate(p, device_->target(), GetParam().candidate);
  ASSERT_TRUE(bool(candidate)) << take_error(candidate.takeError()).message;
  auto plan = llvm::cantFail(Plan::of(
      *candidate, llvm::cantFail(compile(*candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
  auto bench = llvm::cantFail(Workbench::create(*device_, p, {}));
  const trigen_args args = llvm::cantFail(bench->args(0, plan->workspace_bytes()));
  const Tensor& x = *bench->list().find(Role::kX);
  const auto place = static_cast<size_t>(&x - bench->list().tensors.data());
  ASSERT_EQ(p.dtype, DType::kF32);
  // The columns of first panels by one factor, the others by another.
  for (const auto& [first, others] :
       {std::pair(1.0f, 1.0f), std::pair(1e-3f, 1.0f), std::pair(0.0f, 1.0f), std::pair(1e3f, 1.0f),
        std::pair(1.0f, 0.0f), std::pair(1e-10f, 1e-10f)}) {
    SCOPED_TRACE(::testing::Message() << "first panels times " << first << ", others times " << others);
    HostBuffers inputs = bench->inputs();
    const int64_t panels = (p.D + 63) / 64, blocks = std::max(1, candidate->config.cluster);
    for (int64_t b = 0; b < p.B; ++b)
      for (int64_t t = 0; t < p.T; ++t)
        for (int64_t d = 0; d < p.D; ++d) {
          bool is_first = false;
          for (int64_t rank = 0; rank < blocks; ++rank) is_first |= d / 64 == panels * rank / blocks;
          const int64_t at = b * x.batch + (p.layout == Layout::kBTD ? t * x.row + d : d * x.row + t);
          std::byte* const where = inputs[place].data() + x.offset_bytes + 4 * at;
          float element;
          std::memcpy(&element, where, 4);
          element *= is_first ? first : others;
          std::memcpy(where, &element, 4);
        }
    const Reference reference(p, bench->list(), inputs, {});
    ASSERT_FALSE(bool(bench->put_inputs(inputs)));
    auto result = verify_launch(
        *bench, reference, [&]() -> llvm::Error { return plan->run(args, bench->stream()); },
        !device_->info().emulated);
    ASSERT_TRUE(bool(result)) << take_error(result.takeError()).message;
    EXPECT_TRUE(result->ok) << result->failure;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Norm,
    ::testing::Values(
        Case{"newton_schulz_sm90:tile=128x64x16,warps=8x1,stages=2,splitk=1,vec=1x4x2",
             "newton_schulz,dtype=f32,B=1,T=80,D=332,K=4"},
        Case{"newton_schulz_sm90:tile=128x64x16,warps=8x1,stages=1,splitk=1,vec=1x4x2,cluster=2",
             "newton_schulz,dtype=f32,B=1,T=72,D=330,K=5,layout=bdt"},
        Case{"newton_schulz_sm90:tile=192x64x16,warps=12x1,stages=2,splitk=1,vec=1x1x1,cluster=2",
             "newton_schulz,dtype=f32,B=1,T=131,D=150,K=2"},
        Case{"newton_schulz_sm90:tile=256x64x16,warps=8x1,stages=2,splitk=1,vec=1x1x1",
             "newton_schulz,dtype=f32,B=1,T=194,D=140,K=2"}));

}  // namespace
}  // namespace trigen
