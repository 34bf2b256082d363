#include "generator/families/config_keys.h"

#include <gtest/gtest.h>

#include "problem_testing.h"

namespace trigen {
namespace {

using trigen::testing::problem_of;

std::string refusal(const ConfigKey& key) { return reject_keys("some_family", key).value_or(""); }

TEST(ConfigKeys, ListsAndRangesHoldTheirEnds) {
  for (const int value : {64, 128, 256}) EXPECT_EQ(refusal({"tile_m", value, {64, 128, 256}}), "");
  for (const int value : {2, 3, 12}) EXPECT_EQ(refusal({"stages", value, {2, 12}, true}), "");
  EXPECT_EQ(refusal({"tile_m", 100, {64, 128, 256}}),
            "tile_m=100: some_family takes 64, 128 or 256; try tile_m=128");
  EXPECT_EQ(refusal({"stages", 1, {2, 12}, true}), "stages=1: some_family takes 2 to 12; try stages=2");
  EXPECT_EQ(refusal({"stages", 13, {2, 12}, true}), "stages=13: some_family takes 2 to 12; try stages=12");
}

TEST(ConfigKeys, TheNearestAllowedValueIsOffered) {
  const auto offered = [](int found) {
    const std::string text = refusal({"tile_n", found, {64, 128, 256}});
    return text.substr(text.rfind('=') + 1);
  };
  EXPECT_EQ(offered(0), "64");
  EXPECT_EQ(offered(96), "128") << "the larger one of two as near";
  EXPECT_EQ(offered(95), "64");
  EXPECT_EQ(offered(100000), "256");
  EXPECT_EQ(offered(-5), "64");
}

TEST(ConfigKeys, AReasonGoesOnFromTheValueOrFollowsIt) {
  EXPECT_EQ(refusal({"raster", 4, {0}, false, "is for forward and grad_input only"}),
            "raster=4 is for forward and grad_input only; try raster=0");
  EXPECT_EQ(refusal({"warps_m", 4, {8}, false, "a warpgroup multiplies 64 rows"}),
            "warps_m=4: a warpgroup multiplies 64 rows; try warps_m=8");
}

TEST(ConfigKeys, TheFirstBrokenKeyIsNamed) {
  const std::vector<ConfigKey> keys = {{"a", 1, {1}}, {"b", 2, {1}}, {"c", 3, {1}}};
  EXPECT_EQ(reject_keys("f", keys), "b=2: f takes 1; try b=1");
  EXPECT_EQ(reject_keys("f", {}), std::nullopt);
}

TEST(ConfigKeys, PathsAreWords) {
  const ConfigKey key = access_key("weights", Access::kPacked, {Access::kDirect}, "is no choice here");
  EXPECT_EQ(refusal(key), "weights=packed is no choice here; try weights=direct");
  EXPECT_EQ(refusal(access_key("weights", Access::kPacked, {Access::kDirect, Access::kPacked}, "")), "");
}

TEST(ConfigKeys, SplitsAreForSumsOverTokensAlone) {
  Config c{};
  c.split_k = 4;
  EXPECT_EQ(refusal(split_key(problem_of("forward,dtype=bf16,B=1,T=64,D=64"), c)),
            "split_k=4 is for grad_weight only; try split_k=1");
  const Problem weight = problem_of("grad_weight,dtype=bf16,B=1,T=64,D=64");
  EXPECT_EQ(refusal(split_key(weight, c)), "");
  c.split_k = 0;
  EXPECT_EQ(refusal(split_key(weight, c)), "split_k=0: some_family takes 1 to 65535; try split_k=1");
  EXPECT_EQ(refusal(split_key(weight, c, 0)), "") << "where a family takes it";
}

}  // namespace
}  // namespace trigen
