#include "generator/target.h"

#include <gmock/gmock.h>

#include "generator/error.h"

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
                                          "sm_100", "sm_100a", "sm_120"));
}

TEST(Target, LimitsAreConsistent) {
  for (const Target& t : targets()) {
    SCOPED_TRACE(t.name.str());
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
            "sm_100a or sm_120; "
            "did you mean 'sm_70'?");
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
            "sm_100a or sm_120; use a device of one of these");
}

}  // namespace
}  // namespace trigen
