#include "tuner/ceiling.h"

#include <gtest/gtest.h>

namespace trigen {
namespace {

const Target& target(llvm::StringRef name) { return *llvm::cantFail(find_target(name)); }
Ceiling ceiling(const char* text, llvm::StringRef name) {
  return ceiling_of(llvm::cantFail(parse_problem(text)), target(name), model_of(target(name)));
}

// 2 B D T(T+1)/2 operations at the unit's full rate, by the unit that the type has on each target.
TEST(Ceiling, ComputeIsTheTriangleAtTheUnitsRate) {
  const double flop = 2.0 * 32 * 1024 * 512 * 513 / 2;
  const auto rate = [&](const std::string& type, llvm::StringRef name) {
    return flop / ceiling(("forward,B=32,T=512,D=1024," + type).c_str(), name).compute_s;
  };
  const Target &hopper = target("sm_90a"), &ampere = target("sm_80"), &volta = target("sm_70");
  EXPECT_NEAR(rate("dtype=bf16", "sm_90a") / hopper.mma16_flops, 1, 1e-12);
  EXPECT_NEAR(rate("dtype=f32,math=tf32", "sm_90a") / hopper.tf32_flops, 1, 1e-12);
  EXPECT_NEAR(rate("dtype=f32,math=f16x3", "sm_90a") / hopper.mma16_flops, 1.0 / 3, 1e-12);
  EXPECT_NEAR(rate("dtype=f32,math=f16x3", "sm_80") / ampere.fp32_flops, 1, 1e-12) << "made by simt there";
  EXPECT_NEAR(rate("dtype=f16", "sm_70") / volta.mma16_flops, 1, 1e-12);
  EXPECT_NEAR(rate("dtype=bf16", "sm_70") / volta.fp32_flops, 1, 1e-12) << "no tensor cores for bf16";
}

TEST(Ceiling, MemoryIsEveryOperandOnce) {
  // x and y, and the triangle of W.
  const double bytes = 2.0 * (2.0 * 4 * 300 * 64 + 300 * 301 / 2);
  const Ceiling c = ceiling("forward,dtype=bf16,B=4,T=300,D=64", "sm_80");
  EXPECT_NEAR(c.memory_s * target("sm_80").dram_bytes_per_s / bytes, 1, 1e-12);
  EXPECT_EQ(c.seconds(), std::max(c.compute_s, c.memory_s));
  const Ceiling decode = ceiling("decode,dtype=bf16,B=8,T=4096,D=512", "sm_90a");
  EXPECT_GT(decode.memory_s, 10 * decode.compute_s) << "a matter of memory alone";
}

TEST(Ceiling, ADeviceScalesTheTargetsRates) {
  const Problem p = llvm::cantFail(parse_problem("forward,dtype=bf16,B=32,T=512,D=1024"));
  const Target& hopper = target("sm_90a");
  DeviceModel half = model_of(hopper);
  half.sms /= 2;
  half.dram_bytes_per_s /= 4;
  const Ceiling whole = ceiling_of(p, hopper, model_of(hopper)), part = ceiling_of(p, hopper, half);
  EXPECT_NEAR(part.compute_s / whole.compute_s, 2, 1e-12);
  EXPECT_NEAR(part.memory_s / whole.memory_s, 4, 1e-12);
  const Ceiling unknown = ceiling_of(p, hopper, DeviceModel{});
  EXPECT_EQ(unknown.compute_s, whole.compute_s) << "nothing known of the device: the target's own";
  EXPECT_EQ(unknown.memory_s, whole.memory_s);
}

TEST(Ceiling, FewRowsOfDecodeReadFewTokens) {
  const Problem p = llvm::cantFail(parse_problem("decode,dtype=bf16,B=8,T=4096,D=512,rows=4"));
  const Target& hopper = target("sm_90a");
  const auto at = [&](int64_t first) {
    return ceiling_of(p, hopper, model_of(hopper), Rows{first, 4}).memory_s;
  };
  EXPECT_LT(at(100), at(2000) / 10);
  EXPECT_EQ(at(4092), ceiling_of(p, hopper, model_of(hopper)).memory_s) << "the longest rows, unless named";
}

}  // namespace
}  // namespace trigen
