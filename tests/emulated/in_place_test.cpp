// Arguments in the same memory. The residual in place (docs/abi.md): the output is the residual's own view. gram of A and A. On the
// emulated sm_90a, which reports a read that nothing orders before the write, and (with TRIGEN_TEST_GPU=1) on this machine's GPU.
#include <gtest/gtest.h>

#include <bit>

#include "check/verify.h"
#include "generator/candidate.h"
#include "hopper_testing.h"
#include "runtime/compile.h"
#include "runtime/plan.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

struct Case {
  const char* family;  // its first candidate, or one by name
  const char* problem;
};

class SameMemory : public trigen::testing::HopperTest<Case> {
 protected:
  // The emulated device repeats itself, and reports races as such.
  bool repeats() const { return !device_->info().emulated; }
};

class InPlace : public SameMemory {};

TEST_P(InPlace, TheResidualIsReadBeforeItIsOverwritten) {
  const Problem p = llvm::cantFail(parse_problem(GetParam().problem));
  const llvm::StringRef name = GetParam().family;
  const Candidate candidate =
      name.contains(':')
          ? llvm::cantFail(parse_candidate(p, device_->target(), name))
          : llvm::cantFail(list_candidates(p, device_->target(), llvm::cantFail(find_family(name)))).front();
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
  auto result = verify_launch(*bench, reference, launch, repeats());
  ASSERT_TRUE(bool(result)) << describe(candidate) << ": " << take_error(result.takeError()).message;
  EXPECT_TRUE(result->ok) << describe(candidate) << ": " << result->failure;
}

// Multiplied by the identity, beside other operands of the output's shape, packed first, and read by the
// threads that write.
INSTANTIATE_TEST_SUITE_P(
    Problems, InPlace,
    ::testing::Values(
        Case{"wgmma_sm90", "forward,dtype=bf16,B=3,T=200,D=72,epilogue=bias+residual"},
        Case{"wgmma_sm90", "grad_input,dtype=bf16,B=3,T=200,D=72,epilogue=residual"},
        Case{"wgmma_sm90", "forward,dtype=f16,B=2,T=136,D=72,epilogue=gelu+pre+gate+residual"},
        Case{"wgmma_sm90", "grad_input,dtype=f16,B=2,T=136,D=71,epilogue=residual"},
        Case{"wgmma_sm90", "gram,dtype=bf16,B=1,H=2,T=200,D=72,epilogue=residual+mirror"},
        Case{"wgmma_sm90", "gram,dtype=f16,B=2,T=136,D=72,wdtype=f32,fill=upper,epilogue=residual"},
        Case{"wgmma_sm90:tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             "gram,dtype=bf16,B=1,H=2,T=200,D=72,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=5,splitk=2,vec=8x8x8,cluster=2,blocks=1",
             "gram,dtype=bf16,B=1,H=2,T=136,D=72,fill=upper,epilogue=residual+mirror"},
        Case{"mma_sm80", "gram,dtype=bf16,B=1,H=2,T=136,D=72,epilogue=residual+mirror"},
        Case{"mma_sm80", "forward,dtype=bf16,B=2,T=136,D=72,epilogue=bias+residual"},
        Case{"mma_sm80", "grad_input,dtype=bf16,B=2,T=136,D=72,epilogue=residual"}));

class OfItself : public SameMemory {
 protected:
  // Of a problem with B in A's memory, where the memory of a B of its own holds NaN.
  CheckResult verify(const Problem& p, const Candidate& candidate) {
    auto plan = llvm::cantFail(Plan::of(
        candidate, llvm::cantFail(compile(candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
    auto bench = llvm::cantFail(Workbench::create(*device_, p));
    HostBuffers inputs = bench->inputs();
    const auto index = [&](Role role) {
      return static_cast<size_t>(bench->list().find(role) - bench->list().tensors.data());
    };
    inputs[index(Role::kX)] = inputs[index(Role::kY)];
    trigen_args args = llvm::cantFail(bench->args(0, plan->workspace_bytes()));
    {
      const ContextScope scope(device_->api(), bench->context());
      const Tensor& b = *bench->list().find(Role::kX);
      llvm::cantFail(device_->driver().check(
          device_->api().cuMemsetD8Async(std::bit_cast<cuda::CUdeviceptr>(args.x.data), kPoison,
                                         static_cast<cuda::size_type>(b.bytes()), bench->stream()),
          "cuMemsetD8Async"));
    }
    args.x = args.y;
    const Reference reference(p, bench->list(), inputs, {});
    return llvm::cantFail(verify_launch(
        *bench, reference, [&]() -> llvm::Error { return plan->run(args, bench->stream()); }, repeats()));
  }
};

TEST_P(OfItself, TilesOnTheDiagonalReadOneOperand) {
  TAKES_ONE_OF(2);
  const Problem p = llvm::cantFail(parse_problem(GetParam().problem));
  auto candidate = parse_candidate(p, device_->target(), GetParam().family);
  ASSERT_TRUE(bool(candidate)) << take_error(candidate.takeError()).message;
  const CheckResult result = verify(p, *candidate);
  EXPECT_TRUE(result.ok) << describe(*candidate) << ": " << result.failure;
}

constexpr const char* kSeveralTiles = "gram,dtype=bf16,B=2,H=3,T=264,D=136,epilogue=residual+mirror";
constexpr const char* kTokens = "gram,dtype=f16,B=1,H=2,T=136,D=200,layout=bdt,fill=upper,epilogue=mirror";

// Whole tiles, parts, warpgroups that take turns, squares of blocks, slices of both sizes, copies.
INSTANTIATE_TEST_SUITE_P(
    Configs, OfItself,
    ::testing::Values(
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=4,splitk=3,vec=8x8x8,cluster=1,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=128x256x64,warps=8x1,stages=4,splitk=2,vec=8x8x8,cluster=1,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=128x128x64,warps=4x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=4,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=6,splitk=2,vec=8x8x8,cluster=2,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=5,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=11,splitk=4,vec=8x8x8,cluster=4,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             kSeveralTiles},
        Case{"wgmma_sm90:tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1", kTokens},
        Case{"wgmma_sm90:tile=128x128x64,warps=4x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1", kTokens},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=5,splitk=2,vec=8x8x8,cluster=2,blocks=1", kTokens},
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=6,splitk=1,vec=1x1x8,cluster=1,blocks=1,"
             "activations=packed",
             "gram,dtype=bf16,B=1,H=2,T=136,D=71,epilogue=mirror"},
        Case{"wgmma_sm90:tile=192x192x64,warps=8x1,stages=4,splitk=3,vec=8x8x8,cluster=1,blocks=1",
             "gram,dtype=f16,B=2,H=2,T=152,D=456,fill=upper,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=192x192x64,warps=8x1,stages=2,splitk=1,vec=8x8x8,cluster=1,blocks=1", kTokens},
        Case{"wgmma_sm90:tile=192x192x64,warps=8x1,stages=2,splitk=3,vec=8x8x1,cluster=1,blocks=1",
             "gram,dtype=f16,B=1,H=1,T=168,D=328,layout=bdt,fill=upper,wdtype=f32,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=384x128x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=6,blocks=1",
             "gram,dtype=f16,B=1,H=3,T=360,D=520,fill=upper,epilogue=mirror"},
        Case{"wgmma_sm90:tile=384x128x64,warps=8x1,stages=3,splitk=1,vec=8x8x2,cluster=6,blocks=1",
             "gram,dtype=bf16,B=1,H=2,T=264,D=264,layout=bdt,epilogue=residual"}));

}  // namespace
}  // namespace trigen
