#include "generator/target.h"

#include <gmock/gmock.h>

#include "generator/error.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

std::string target_of(int major, int minor) {
  auto target = target_for_capability(major, minor);
  return target ? (*target)->name.str() : take_error(target.takeError()).message;
}

TEST(Target, HasTheDocumentedArchitectures) {
  std::vector<std::string> names;
  for (const Target& target : targets()) names.push_back(target.name.str());
  EXPECT_THAT(names, testing::ElementsAre("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a",
                                          "sm_100", "sm_100a", "sm_120", "sm_120a"));
}

TEST(Target, LimitsAreConsistent) {
  std::vector<Target> all = targets();
  llvm::append_range(all, gpus());
  for (const Target& t : all) {
    SCOPED_TRACE(t.name.str() + ", " + t.model_device.str());
    EXPECT_EQ(t.max_shared_per_block + t.reserved_shared_per_block, t.shared_per_sm);
    EXPECT_EQ(t.max_threads_per_sm % 32, 0);
    EXPECT_GE(t.l2_bytes_per_s, t.dram_bytes_per_s);
    EXPECT_GT(t.mma16_flops, t.fp32_flops);
    EXPECT_EQ(t.tf32_mma, t.tf32_flops > 0);
    // Two operations a clock on 64 or 128 lanes of every SM, or a rate below that (a card that throttles).
    EXPECT_LE(t.fp32_flops, 1.05 * t.sms * t.clock_hz * 2 * 128);
    // At least an Ampere-class tensor core or its predecessor: 512 to 8192 multiply-adds a clock on an SM.
    const double per_clock = t.mma16_flops / (t.sms * t.clock_hz * 2);
    EXPECT_GE(per_clock, 240);
    EXPECT_LE(per_clock, 4200);
  }
}

TEST(Target, UnknownNamesListTheKnownOnes) {
  auto target = find_target("sm_71");
  ASSERT_FALSE(static_cast<bool>(target));
  const ErrorText error = take_error(target.takeError());
  EXPECT_EQ(error.kind, ErrorKind::kBadRequest);
  EXPECT_EQ(error.message,
            "unknown arch 'sm_71'; allowed are sm_70, sm_75, sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, "
            "sm_100a, sm_120 or sm_120a; "
            "did you mean 'sm_70'?");
  EXPECT_THAT(take_error(find_target("sm_60").takeError()).message,
              testing::EndsWith("or sm_120a; it is older than trigen serves: Volta (sm_70) is the oldest"));
}

const Target* gpu_of(llvm::StringRef name) {
  auto found = find_gpu(name);
  EXPECT_TRUE(static_cast<bool>(found)) << name.str();
  return found ? *found : (llvm::consumeError(found.takeError()), nullptr);
}

TEST(Gpu, EveryOneIsFoundByItsName) {
  for (const Target& gpu : gpus()) {
    EXPECT_EQ(gpu_of(gpu.model_device), &gpu) << gpu.model_device.str();
    const Target* const target = llvm::cantFail(find_target(gpu.name));
    EXPECT_EQ(gpu.max_shared_per_block, target->max_shared_per_block);
    EXPECT_EQ(gpu.compute_capability, target->compute_capability);
  }
  for (const Target& target : targets())
    EXPECT_EQ(gpu_of(target.model_device)->sms, target.sms) << "the model device is a row like any other";
}

TEST(Gpu, ADriversNameFindsItsRow) {
  const auto named = [](llvm::StringRef name, llvm::StringRef target) {
    return gpu_named_by_driver(name, *llvm::cantFail(find_target(target))).model_device.str();
  };
  EXPECT_EQ(named("NVIDIA H100 80GB HBM3", "sm_90a"), "H100 SXM");
  EXPECT_EQ(named("NVIDIA H100 PCIe", "sm_90a"), "H100 PCIe");
  EXPECT_EQ(named("NVIDIA L40S", "sm_89"), "L40S");
  EXPECT_EQ(named("Tesla T4", "sm_75"), "T4");
  EXPECT_EQ(named("NVIDIA H100 80GB HBM3", "sm_90"), "H200") << "of another target, the model device";
  EXPECT_EQ(named("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm_90a"), "H200") << "a part of a GPU";
  EXPECT_EQ(named("NVIDIA GH200 480GB", "sm_90a"), "H200") << "not listed";
}

TEST(Gpu, NamesAreTakenAsPeopleWriteThem) {
  EXPECT_EQ(gpu_of("NVIDIA L4")->model_device, "L4") << "not the L40S";
  EXPECT_EQ(gpu_of("rtx-4090")->model_device, "GeForce RTX 4090");
  EXPECT_EQ(gpu_of("Tesla V100-SXM2-16GB")->model_device, "V100-SXM2-16GB");
  EXPECT_EQ(gpu_of("a100")->model_device, "A100-SXM4-80GB");
  EXPECT_EQ(gpu_of("h100 pcie")->sms, 114);
  EXPECT_EQ(gpu_of("l40s")->sms, 142);
  EXPECT_GT(gpu_of("L40S")->mma16_flops, 2 * gpu_of("RTX 4090")->mma16_flops) << "of which GeForce has half";
}

TEST(Gpu, UnknownAndDoubtfulNamesListTheKnownOnes) {
  const auto message = [](llvm::StringRef name) { return take_error(find_gpu(name).takeError()).message; };
  EXPECT_EQ(message("H100"), "gpu 'H100' may be H100 SXM or H100 PCIe; name one of them");
  EXPECT_THAT(message("K80"), testing::StartsWith("unknown gpu 'K80'; allowed are V100-SXM2-16GB, T4, "));
  EXPECT_THAT(message("K80"), testing::EndsWith("; or name its architecture with --arch"));
  EXPECT_THAT(message(""), testing::StartsWith("unknown gpu ''"));
  EXPECT_THAT(take_error(find_target("L40S").takeError()).message,
              testing::EndsWith("did you mean 'sm_89'?"));
}

TEST(Target, CapabilitiesTakeTheBestTarget) {
  EXPECT_EQ(target_of(7, 0), "sm_70");
  EXPECT_EQ(target_of(7, 2), "sm_70");
  EXPECT_EQ(target_of(7, 5), "sm_75");
  EXPECT_EQ(target_of(8, 7), "sm_86");
  EXPECT_EQ(target_of(9, 0), "sm_90a");
  EXPECT_EQ(target_of(10, 0), "sm_100a");
  EXPECT_EQ(target_of(10, 3), "sm_100");  // an 'a' binary runs on its own compute capability alone
  EXPECT_EQ(target_of(12, 1), "sm_120");
  EXPECT_EQ(target_of(6, 1),
            "compute capability 6.1 has no target; supported are sm_70, sm_75, sm_80, sm_86, sm_89, sm_90, "
            "sm_90a, sm_100, "
            "sm_100a, sm_120 or sm_120a; use a device of one of these");
}

}  // namespace
}  // namespace trigen
