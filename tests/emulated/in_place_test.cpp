// The residual in place (docs/abi.md): the output is the residual's own view. On the emulated sm_90a, which
// reports a read that nothing orders before the write, and (with TRIGEN_TEST_GPU) on this machine's GPU.
#include <gtest/gtest.h>

#include <bit>

#include "check/verify.h"
#include "generator/candidate.h"
#include "hopper_testing.h"
#include "runtime/compile.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

struct Case {
  const char* family;
  const char* problem;
};

class InPlace : public trigen::testing::HopperTest<Case> {};

TEST_P(InPlace, TheResidualIsReadBeforeItIsOverwritten) {
  const Problem p = llvm::cantFail(parse_problem(GetParam().problem));
  const Family* family = llvm::cantFail(find_family(GetParam().family));
  const Candidate candidate = llvm::cantFail(list_candidates(p, device_->target(), family)).front();
  auto plan = llvm::cantFail(Plan::of(
      candidate, llvm::cantFail(compile(candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
  auto bench = llvm::cantFail(Workbench::create(*device_, p));
  trigen_args args = llvm::cantFail(bench->args(0, plan->workspace_bytes()));
  const void* const given = args.residual.data;
  const trigen_tensor output = p.op == Op::kGradInput ? args.x
                               : makes_weights(p.op)  ? trigen_tensor{args.w, 0, args.w_head, args.w_row}
                                                      : args.y;
  args.residual = output;
  const Tensor& residual = *bench->list().find(Role::kResidual);
  const Reference reference(p, bench->list(), bench->inputs(), {});
  const auto launch = [&]() -> llvm::Error {
    const ContextScope scope(device_->api(), bench->context());
    const auto at = [](const void* data) { return std::bit_cast<cuda::CUdeviceptr>(data); };
    if (auto error = device_->driver().check(
            device_->api().cuMemcpyDtoDAsync(at(output.data), at(given),
                                             static_cast<cuda::size_type>(residual.bytes()), bench->stream()),
            "cuMemcpyDtoDAsync"))
      return error;
    return plan->run(args, bench->stream());
  };
  auto result = verify_launch(*bench, reference, launch, /*repeat=*/true);
  ASSERT_TRUE(bool(result)) << describe(candidate) << ": " << take_error(result.takeError()).message;
  EXPECT_TRUE(result->ok) << describe(candidate) << ": " << result->failure;
}

// Multiplied by the identity, beside other operands of the output's shape, packed first, and read by the
// threads that write.
INSTANTIATE_TEST_SUITE_P(
    Problems, InPlace,
    ::testing::Values(Case{"wgmma_sm90", "forward,dtype=bf16,B=3,T=200,D=72,epilogue=bias+residual"},
                      Case{"wgmma_sm90", "grad_input,dtype=bf16,B=3,T=200,D=72,epilogue=residual"},
                      Case{"wgmma_sm90", "forward,dtype=f16,B=2,T=136,D=72,epilogue=gelu+pre+gate+residual"},
                      Case{"wgmma_sm90", "grad_input,dtype=f16,B=2,T=136,D=71,epilogue=residual"},
                      Case{"wgmma_sm90", "gram,dtype=bf16,B=1,H=2,T=200,D=72,epilogue=residual+mirror"},
                      Case{"wgmma_sm90",
                           "gram,dtype=f16,B=2,T=136,D=72,wdtype=f32,fill=upper,epilogue=residual"},
                      Case{"mma_sm80", "gram,dtype=bf16,B=1,H=2,T=136,D=72,epilogue=residual+mirror"},
                      Case{"mma_sm80", "forward,dtype=bf16,B=2,T=136,D=72,epilogue=bias+residual"},
                      Case{"mma_sm80", "grad_input,dtype=bf16,B=2,T=136,D=72,epilogue=residual"}));

}  // namespace
}  // namespace trigen
