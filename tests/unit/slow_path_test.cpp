#include "generator/slow_path.h"

#include <gmock/gmock.h>

#include "problem_testing.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;
using trigen::testing::problem_of;
using trigen::testing::target_of;

// Of the model's first choice for the kernels' target, on a device of the other target.
std::string warning_of(const std::string& text, const char* kernels, const char* device = nullptr) {
  const Target& target = target_of(kernels);
  auto list = list_candidates(problem_of(text), target);
  if (!list) {
    ADD_FAILURE() << llvm::toString(list.takeError());
    return "";
  }
  return slow_path_warning(list->front(), device == nullptr ? target : target_of(device));
}

constexpr const char* kUsual = "forward,dtype=bf16,B=8,T=2048,D=1024";

TEST(SlowPath, WhatATunedKernelOnItsOwnGpuIsNotToldOf) {
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"})
    EXPECT_EQ(warning_of(kUsual, target), "");
  EXPECT_EQ(warning_of("forward,dtype=f16,B=8,T=2048,D=1024", "sm_70"), "");
  EXPECT_EQ(warning_of("forward,dtype=f32,B=8,T=256,D=64,math=f16x3", "sm_90a"), "");
  EXPECT_EQ(warning_of("forward,dtype=f32,B=8,T=256,D=64", "sm_70"),
            "");  // full precision has no other units
  EXPECT_EQ(warning_of("decode,dtype=bf16,B=8,T=256,D=64,rows=1", "sm_70"), "");
  EXPECT_EQ(warning_of("forward,dtype=bf16,B=1,T=8,D=16", "sm_90a"),
            "");                                                   // too small for any tile of wgmma's
  for (const char* target : {"sm_70", "sm_75", "sm_80", "sm_86"})  // too small for tensor cores, in f16 too
    EXPECT_EQ(warning_of("forward,dtype=bf16,B=2,T=2,D=16,K=3", target), "") << target;
}

TEST(SlowPath, UnitsThatTheTargetLacks) {
  for (const char* target : {"sm_70", "sm_75"})
    EXPECT_THAT(warning_of(kUsual, target), HasSubstr(std::string("bf16 runs without tensor cores on ") +
                                                      target + ", which has none for it"));
  EXPECT_THAT(warning_of("forward,dtype=f32,B=8,T=256,D=64,math=f16x3", "sm_80"),
              HasSubstr("sm_80 runs it on its FP32 units"));
}

TEST(SlowPath, OlderInstructionsThanTheGpus) {
  for (const char* target : {"sm_100", "sm_100a"})
    EXPECT_THAT(warning_of(kUsual, target), HasSubstr("tcgen05"));
  for (const char* kernels : {"sm_80", "sm_90"})
    EXPECT_THAT(warning_of(kUsual, kernels, "sm_90a"), HasSubstr("without its own instructions (wgmma)"));
  // More taps than Hopper's family of them makes.
  EXPECT_THAT(warning_of("forward,dtype=bf16,B=8,T=256,D=64,K=33", "sm_90a"), HasSubstr("emit --explain"));
}

// It is said once for each text: sizes in it would make it many.
TEST(SlowPath, OneCauseHasOneText) {
  EXPECT_EQ(warning_of(kUsual, "sm_100"), warning_of("grad_input,dtype=bf16,B=3,T=300,D=72", "sm_100"));
}

}  // namespace
}  // namespace trigen
