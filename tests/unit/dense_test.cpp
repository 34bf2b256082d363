#include "generator/cost/dense.h"

#include <gmock/gmock.h>

#include "problem_testing.h"

namespace trigen {
namespace {

using trigen::testing::problem_of;
using trigen::testing::target_of;

double microseconds_on(const char* target, const std::string& text) {
  return dense_seconds(problem_of(text), target_of(target), model_of(target_of(target))) * 1e6;
}

TEST(Dense, UsesTheUnitsThatTheTargetHas) {
  const std::string sizes = ",B=8,T=2048,D=1024";
  const double f16 = microseconds_on("sm_70", "forward,dtype=f16" + sizes);
  EXPECT_NEAR(f16, 68.7e9 / (125e12 * 0.88) * 1e6, 0.1 * f16);  // of a data sheet's rate
  EXPECT_GT(microseconds_on("sm_70", "forward,dtype=bf16" + sizes), 6 * f16);
  EXPECT_NEAR(microseconds_on("sm_70", "forward,dtype=bf16" + sizes),
              microseconds_on("sm_70", "forward,dtype=f32" + sizes), 1)
      << "the same units, half of the bytes";
  EXPECT_LT(microseconds_on("sm_80", "forward,dtype=bf16" + sizes), f16 / 2);
  EXPECT_EQ(microseconds_on("sm_80", "decode,dtype=f16,B=8,T=2048,D=1024,rows=1"), 0);
  EXPECT_EQ(microseconds_on("sm_80", "grad_epilogue,dtype=f16,B=8,T=2048,D=1024,epilogue=gelu"), 0);
  // Half of the SMs, twice the arithmetic.
  DeviceModel half = model_of(target_of("sm_90a"));
  half.sms /= 2;
  const Problem problem = problem_of("forward,dtype=f16" + sizes);
  EXPECT_NEAR(dense_seconds(problem, target_of("sm_90a"), half) * 1e6,
              2 * microseconds_on("sm_90a", "forward,dtype=f16" + sizes), 8);
}

TEST(Dense, ShortCallsAreBoundByTheirStart) {
  const double tiny = microseconds_on("sm_90a", "forward,dtype=bf16,B=1,T=32,D=64");
  EXPECT_GT(tiny, 2);
  EXPECT_LT(tiny, 5);  // recorded cuBLAS calls go down to 3.3 us
  // A few tiles on 132 SMs: as long as k is, whatever the batch.
  const double few = microseconds_on("sm_90a", "forward,dtype=bf16,B=1,T=2048,D=64");
  EXPECT_LT(microseconds_on("sm_90a", "forward,dtype=bf16,B=4,T=2048,D=64"), 1.2 * few);
  // dW of few tokens: k in parts.
  EXPECT_LT(microseconds_on("sm_90a", "grad_weight,dtype=bf16,B=128,T=128,D=768"), 25);
}

TEST(Dense, EpiloguesAndAlignmentCountAsTheyDoInLibraries) {
  const std::string sizes = ",dtype=bf16,B=16,T=1024,D=1024";
  const double bare = microseconds_on("sm_90a", "forward" + sizes);
  EXPECT_EQ(microseconds_on("sm_90a", "forward" + sizes + ",epilogue=bias+gelu"), bare) << "fused";
  const double residual = microseconds_on("sm_90a", "forward" + sizes + ",epilogue=residual");
  EXPECT_GT(residual, bare);
  EXPECT_GT(microseconds_on("sm_90a", "forward" + sizes + ",epilogue=gate"), residual + 10) << "a pass";
  EXPECT_GT(microseconds_on("sm_90a", "forward,dtype=bf16,B=16,T=1024,D=1023"), 3 * bare)
      << "rows of 2046 bytes";
}

TEST(Dense, HasAMarginWhereATimeIsNoMeasurement) {
  using V = DenseVerdict;
  const auto verdict = [](double us, bool measured, double dense_us, bool dense_measured) {
    return verdict_of({us * 1e-6, measured, dense_us * 1e-6, dense_measured});
  };
  EXPECT_EQ(verdict(10, true, 10.1, true), V::kClose);
  EXPECT_EQ(verdict(10, true, 10.5, true), V::kTriangle);
  EXPECT_EQ(verdict(10.5, true, 10, true), V::kDense);
  EXPECT_EQ(verdict(10, true, 11, false), V::kClose);
  EXPECT_EQ(verdict(10, true, 10 * kSureEstimated + 0.1, false), V::kTriangle);
  EXPECT_EQ(verdict(10, false, 10 * kSureEstimated + 0.1, false), V::kClose);
  EXPECT_EQ(verdict(10, false, 10 * kSurePredicted + 0.1, false), V::kTriangle);
  EXPECT_EQ(verdict(10 * kSurePredicted + 0.1, false, 10, false), V::kDense);
  EXPECT_EQ(verdict(10, true, 0, false), V::kUnknown);
}

TEST(Dense, SaysSoWhereItIsOrMayBeAsFast) {
  EXPECT_EQ(dense_remark(Op::kForward, {184e-6, false, 177e-6, false}),
            "a dense product on the masked weight may be as fast: 177 us (estimated) beside 184 us "
            "(predicted); too "
            "close to tell, time both");
  EXPECT_EQ(dense_remark(Op::kForward, {107e-6, false, 85.8e-6, false}),
            "a dense product on the masked weight is faster: 85.8 us (estimated) beside 107 us (predicted)");
  EXPECT_EQ(dense_remark(Op::kForward, {31.2e-6, true, 31.5e-6, true}),
            "a dense product on the masked weight is as fast: 31.5 us (measured) beside 31.2 us (measured)");
  EXPECT_EQ(dense_remark(Op::kGram, {107e-6, false, 85.8e-6, false}),
            "a dense product of both triangles is faster: 85.8 us (estimated) beside 107 us (predicted)");
  EXPECT_EQ(dense_remark(Op::kForward, {30e-6, true, 31.5e-6, true}), "");
  EXPECT_EQ(dense_remark(Op::kForward, {30e-6, false, 60e-6, false}), "");
  EXPECT_EQ(dense_remark(Op::kForward, {30e-6, true, 0, false}), "");  // nothing to stand beside
}

}  // namespace
}  // namespace trigen
