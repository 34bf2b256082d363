#include "generator/cost/dense.h"

#include <gmock/gmock.h>

#include "problem_testing.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;
using trigen::testing::problem_of;
using trigen::testing::target_of;

double microseconds_on(const char* target, const std::string& text) {
  return dense_seconds(problem_of(text), target_of(target), model_of(target_of(target))) * 1e6;
}

// cuBLAS on one H200, masked weights, CUDA graphs over rotating inputs: bench/results/h200-2026-11-21.jsonl.
TEST(Dense, IsWithinAFewPercentOfCublasOnAnH200) {
  const struct {
    int B, T, D;
    double us;
  } kTimes[] = {{128, 256, 512, 23.2}, {32, 512, 1024, 31.5},  {16, 1024, 1024, 53.4},
                {8, 2048, 1024, 94.2}, {4, 4096, 1024, 185.8}, {2, 8192, 2048, 724}};
  for (const auto& row : kTimes) {
    const std::string sizes = ",dtype=bf16,B=" + std::to_string(row.B) + ",T=" + std::to_string(row.T) +
                              ",D=" + std::to_string(row.D);
    for (const char* op : {"forward", "grad_input", "grad_weight"})
      EXPECT_NEAR(microseconds_on("sm_90a", op + sizes), row.us, 0.09 * row.us) << op << sizes;
  }
  EXPECT_NEAR(microseconds_on("sm_90a", "forward,dtype=f32,B=8,T=2048,D=1024,math=tf32"), 192, 10);
  EXPECT_NEAR(microseconds_on("sm_90a", "forward,dtype=f32,B=4,T=4096,D=1024"), 2767, 150);
}

TEST(Dense, UsesTheUnitsThatTheTargetHas) {
  const std::string sizes = ",B=8,T=2048,D=1024";
  const double f16 = microseconds_on("sm_70", "forward,dtype=f16" + sizes);
  EXPECT_NEAR(f16, 68.7e9 / (125e12 * 0.95 * 0.81) * 1e6 + 7.5, 2);  // a data sheet's rate
  EXPECT_GT(microseconds_on("sm_70", "forward,dtype=bf16" + sizes), 6 * f16);
  EXPECT_EQ(microseconds_on("sm_70", "forward,dtype=bf16" + sizes),
            microseconds_on("sm_70", "forward,dtype=f32" + sizes));
  EXPECT_LT(microseconds_on("sm_80", "forward,dtype=bf16" + sizes), f16 / 2);
  EXPECT_EQ(microseconds_on("sm_80", "decode,dtype=f16,B=8,T=2048,D=1024,rows=1"), 0);
  EXPECT_EQ(microseconds_on("sm_80", "grad_epilogue,dtype=f16,B=8,T=2048,D=1024,epilogue=gelu"), 0);
  // Half of the SMs, twice the arithmetic.
  DeviceModel half = model_of(target_of("sm_90a"));
  half.sms /= 2;
  const Problem problem = problem_of("forward,dtype=f16" + sizes);
  EXPECT_NEAR(dense_seconds(problem, target_of("sm_90a"), half),
              2 * dense_seconds(problem, target_of("sm_90a"), model_of(target_of("sm_90a"))) - 7.5e-6, 1e-9);
}

TEST(Dense, SaysSoWhereItIsAsFast) {
  EXPECT_EQ(dense_remark(184e-6, false, 177e-6, false),
            "a dense product on the masked weight is as fast: 177 us (estimated) beside 184 us (predicted)");
  EXPECT_EQ(dense_remark(107e-6, false, 85.8e-6, false),
            "a dense product on the masked weight is faster: 85.8 us (estimated) beside 107 us (predicted)");
  EXPECT_EQ(dense_remark(31.2e-6, true, 31.5e-6, true),
            "a dense product on the masked weight is as fast: 31.5 us (measured) beside 31.2 us (measured)");
  EXPECT_EQ(dense_remark(30e-6, true, 31.5e-6, true), "");
  EXPECT_EQ(dense_remark(30e-6, true, 0, false), "");  // nothing to stand beside
}

}  // namespace
}  // namespace trigen
