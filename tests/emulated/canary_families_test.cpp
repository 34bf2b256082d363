// Right kernels pass their canary, whatever their family: what fails here would be taken from users.
#include <gtest/gtest.h>

#include "hopper_testing.h"
#include "runtime/canary.h"
#include "runtime/compile.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using CanaryFamiliesTest = testing::HopperTest<const char*>;

TEST_P(CanaryFamiliesTest, RightKernelsPass) {
  TAKES_ONE_OF(2);
  const Problem problem = llvm::cantFail(parse_problem(GetParam()));
  int ran = 0;
  for (const Family* family : families()) {
    auto ranked = rank_candidates(problem, device_->target(), family);
    if (!ranked) {
      llvm::consumeError(ranked.takeError());
      continue;
    }
    const Candidate& candidate = ranked->front();
    SCOPED_TRACE(describe(candidate));
    Binary binary = llvm::cantFail(compile(candidate, *nvrtc_, nullptr, code_for(*device_)));
    const auto plan = llvm::cantFail(Plan::of(candidate, std::move(binary), *device_));
    const CanaryReport report = run_canary(*plan);
    EXPECT_EQ(report.result, CanaryResult::kRight) << report.text;
    ++ran;
  }
  EXPECT_GE(ran, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, CanaryFamiliesTest,
    ::testing::Values(
        "forward,dtype=bf16,B=9,T=136,D=72,epilogue=bias+gelu+residual",
        "forward,dtype=f16,B=3,H=2,T=67,D=33,wdtype=f32,diag=-2", "grad_input,dtype=f16,B=5,T=72,D=40,K=3",
        "grad_weight,dtype=bf16,B=70,H=2,T=72,D=40,epilogue=bias+zero_outside",
        "grad_weight,dtype=f16,B=3,T=40,D=136,wdtype=f32,epilogue=bias+accumulate",
        "forward,dtype=f32,B=3,T=72,D=40,math=tf32", "grad_weight,dtype=f32,B=3,T=72,D=40,math=tf32",
        "grad_input,dtype=f32,B=3,T=72,D=40,math=f16x3",
        "forward,dtype=bf16,B=90,T=133,D=65,K=3",  // copies: their shared memory is of the batch
        "forward,dtype=bf16,B=9,T=136,D=72,w=toeplitz,epilogue=bias",
        "forward,dtype=f16,B=3,H=2,T=136,D=72,w=band,width=70,epilogue=gelu+gate",
        "grad_input,dtype=f16,B=3,H=2,T=72,D=40,w=band,width=20",
        "grad_weight,dtype=bf16,B=5,H=2,T=72,D=40,w=toeplitz,epilogue=bias+accumulate",
        "grad_weight,dtype=f16,B=3,T=40,D=136,w=band,width=9,wdtype=f32,epilogue=zero_outside",
        "gram,dtype=bf16,B=3,H=2,T=72,D=40,epilogue=residual+mirror",
        "gram,dtype=f16,B=1,H=2,T=136,D=72,wdtype=f32,fill=upper,epilogue=mirror",
        "gram,dtype=f32,B=1,H=2,T=72,D=40,math=f16x3,epilogue=residual",
        "decode,dtype=bf16,B=3,T=72,D=40,rows=3,epilogue=bias+gate",
        "newton_schulz,dtype=bf16,B=3,H=2,T=48,D=64,K=5", "newton_schulz,dtype=f32,B=3,T=100,D=800,K=5"));

}  // namespace
}  // namespace trigen
