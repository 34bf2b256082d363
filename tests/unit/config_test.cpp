#include <gmock/gmock.h>

#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/family.h"
#include "generator/random_problem.h"
#include "problem_testing.h"

namespace trigen {
namespace {

using trigen::testing::problem_of;

std::string error_of(llvm::StringRef text, const char* family = nullptr) {
  auto config = parse_config(text, family == nullptr ? nullptr : llvm::cantFail(find_family(family)));
  return config ? "parsed as " + to_string(*config) : take_error(config.takeError()).message;
}

TEST(Config, PrintsTheDocumentedForm) {
  const Config config{.tile_m = 128,
                      .tile_n = 64,
                      .tile_k = 32,
                      .warps_m = 2,
                      .warps_n = 4,
                      .stages = 3,
                      .split_k = 1,
                      .raster = 8,
                      .vec_a = 8,
                      .vec_b = 4,
                      .vec_c = 8,
                      .cluster = 0,
                      .box = 0,
                      .blocks = 1};
  EXPECT_EQ(to_string(config), "tile=128x64x32,warps=2x4,stages=3,splitk=1,raster=8,vec=8x4x8,blocks=1");
  auto again = parse_config("blocks=1 vec=8x4x8, raster=8 splitk=1 stages=3 warps=2x4 tile=128x64x32");
  ASSERT_TRUE(static_cast<bool>(again));
  EXPECT_TRUE(*again == config);
}

TEST(Config, PathsArePrintedWhereTheyAreNotDirect) {
  Config config{};
  config.stages = 3;
  EXPECT_EQ(to_string(config), "stages=3");
  config.weights = Access::kPacked;
  EXPECT_EQ(to_string(config), "stages=3,weights=packed");
  config.activations = Access::kPacked;
  EXPECT_EQ(to_string(config), "stages=3,weights=packed,activations=packed");
  EXPECT_FALSE(*parse_config("stages=3,weights=packed") == config);
  EXPECT_EQ(to_string(*parse_config("weights=direct,stages=3,activations=direct")), "stages=3");
  EXPECT_EQ(
      error_of("stages=3,weights=copied"),
      "config key 'weights' at column 10 has 'copied'; allowed are direct or packed, as in weights=packed");
  EXPECT_EQ(error_of("weights=packed,weights=direct"),
            "config key 'weights' at column 16 is given twice; give it once");
}

TEST(Config, RoundTripsRandomConfigs) {
  RandomProblem random(11);
  for (int i = 0; i < 5000; ++i) {
    Config config{};
    for (const ConfigMember& member : config_members())
      if (random.coin()) member.set(config, static_cast<int>(random.pick(member.largest + 1)));
    if (to_string(config).empty()) continue;
    auto again = parse_config(to_string(config));
    ASSERT_TRUE(static_cast<bool>(again)) << to_string(config) << take_error(again.takeError()).message;
    ASSERT_TRUE(*again == config) << to_string(config);
  }
}

TEST(Config, ErrorsSayWhatIsAllowed) {
  EXPECT_EQ(error_of(""), "empty config; write one as tile=128x128x32,warps=2x2,stages=3,splitk=1,vec=8x8x8");
  EXPECT_EQ(error_of("tiles=1x1x1"),
            "unknown config key 'tiles' at column 1; allowed are tile, warps, stages, splitk, raster, vec, "
            "cluster, box, blocks, weights or activations; did you mean 'tile'?");
  EXPECT_EQ(error_of("stages=3,tile=128x128"),
            "config key 'tile' at column 10 has '128x128'; allowed are 3 numbers, as in tile=128x128x32");
  EXPECT_EQ(error_of("warps=2"),
            "config key 'warps' at column 1 has '2'; allowed are 2 numbers, as in warps=2x2");
  EXPECT_EQ(error_of("stages"),
            "config key 'stages' at column 1 has ''; allowed is one number, as in stages=2");
  EXPECT_EQ(error_of("stages=x"),
            "config key 'stages' at column 1 has 'x'; allowed is one number, as in stages=2");
  EXPECT_EQ(error_of("stages=two"), "stages='two' is not a number; give decimal digits, as in stages=1024");
  EXPECT_EQ(error_of("stages=-1"), "stages=-1 at column 1; allowed are 0 to 16");
  EXPECT_EQ(error_of("tile=128x2048x32"), "tile=2048 at column 1; allowed are 0 to 1024");
  EXPECT_EQ(error_of("stages=2,stages=3"), "config key 'stages' at column 10 is given twice; give it once");
}

// Every member that a family has a row for is in its texts, its sources and its steps: whatever the member is called.
TEST(Config, EveryMemberIsInTextEqualityInitialiserAndSteps) {
  Candidate candidate = llvm::cantFail(generic_candidate(problem_of("forward,dtype=f16,B=1,T=64,D=64"),
                                                         *llvm::cantFail(find_target("sm_80"))));
  for (const ConfigMember& member : config_members()) {
    SCOPED_TRACE(member.name.str());
    const Config a =
        *parse_config("tile=1x1x1,warps=1x1,stages=1,splitk=1,raster=1,vec=1x1x1,cluster=1,blocks=1");
    Config b = a;
    member.set(b, member.path != nullptr ? 1 : 2);
    EXPECT_FALSE(a == b);
    EXPECT_TRUE(*parse_config(to_string(b)) == b) << to_string(b);
    EXPECT_EQ(neighbours(a, b), member.role != ConfigMember::kPath);
    EXPECT_EQ(without_order(a) == without_order(b), member.role == ConfigMember::kOrder);
    candidate.config = b;
    const std::string value = member.path != nullptr ? "trigen::Access::kPacked" : "2";
    EXPECT_THAT(render(candidate).text, ::testing::HasSubstr(("." + member.name + " = " + value).str()));
  }
}

TEST(Config, KeysThatAFamilyLacksAreRefused) {
  constexpr const char* kTile = "tile=128x128x32,warps=2x2,stages=3,splitk=1,vec=8x8x8,";
  const auto tile = [&](const char* rest) { return error_of(std::string(kTile) + rest, "mma_sm80"); };
  for (const char* cluster : {"cluster=0", "cluster=1"})
    EXPECT_EQ(
        tile(cluster),
        "config key 'cluster' at column 55 is none of mma_sm80; allowed are tile, warps, stages, splitk, "
        "raster, vec or blocks; leave it out");
  EXPECT_THAT(tile("weights=direct"), ::testing::HasSubstr("'weights' at column 55 is none of mma_sm80"));
  EXPECT_THAT(tile("clutser=1"), ::testing::HasSubstr("unknown config key 'clutser' at column 55"));
  EXPECT_EQ(tile("blocks=1"), std::string("parsed as ") + kTile + "blocks=1");
  for (const Family* family : families()) {  // what all have
    const auto text = "tile=64x64x64,warps=2x2,stages=2,splitk=1,vec=1x8x8,blocks=1";
    EXPECT_EQ(error_of(text, family->name().data()), std::string("parsed as ") + text)
        << family->name().str();
  }
}

// A sum that is left whole is written as one part: the same kernel has one text.
TEST(Config, AKeyLeftOutHasOneMeaning) {
  EXPECT_EQ(error_of("stages=3", "mma_sm80"), "parsed as stages=3,splitk=1");
  EXPECT_EQ(error_of("stages=3"), "parsed as stages=3");
}

std::string refusal(const ConfigKey& key, int found) {
  Config config{};
  key.member->set(config, found);
  return reject_keys("some_family", key, config).value_or("");
}

TEST(ConfigKeys, ListsAndRangesHoldTheirEnds) {
  const ConfigKey rows{&Config::tile_m, {64, 128, 256}}, stages = range_key(&Config::stages, 2, 12);
  for (const int value : {64, 128, 256}) EXPECT_EQ(refusal(rows, value), "");
  for (const int value : {2, 3, 12}) EXPECT_EQ(refusal(stages, value), "");
  EXPECT_EQ(refusal(rows, 100), "tile_m=100: some_family takes 64, 128 or 256; try tile_m=128");
  EXPECT_EQ(refusal(stages, 1), "stages=1: some_family takes 2 to 12; try stages=2");
  EXPECT_EQ(refusal(stages, 13), "stages=13: some_family takes 2 to 12; try stages=12");
  EXPECT_EQ(refusal(powers_key(&Config::tile_n, 4), 3),
            "tile_n=3: some_family takes 1, 2 or 4; try tile_n=4");
}

TEST(ConfigKeys, TheNearestAllowedValueIsOffered) {
  const auto offered = [](int found) {
    const std::string text = refusal({&Config::tile_n, {64, 128, 256}}, found);
    return text.substr(text.rfind('=') + 1);
  };
  EXPECT_EQ(offered(0), "64");
  EXPECT_EQ(offered(96), "128") << "the larger one of two as near";
  EXPECT_EQ(offered(95), "64");
  EXPECT_EQ(offered(100000), "256");
}

TEST(ConfigKeys, TheFirstBrokenRowAndThenMembersWithoutOneAreNamed) {
  const Config c{*parse_config("warps=1x2,stages=3,cluster=4")};
  const std::vector<ConfigKey> keys = {
      {&Config::warps_m, {1}}, {&Config::warps_n, {2}}, {&Config::stages, {1}}};
  EXPECT_EQ(reject_keys("f", keys, c), "stages=3: f takes 1; try stages=1");
  EXPECT_EQ(reject_keys("f", {}, Config{}), std::nullopt);
  EXPECT_EQ(reject_keys("f", llvm::makeArrayRef(keys).drop_back(), c),
            "stages=3: f has no such key; leave it out");
}

TEST(ConfigKeys, PathsAreWords) {
  constexpr int kPacked = static_cast<int>(Access::kPacked);
  EXPECT_EQ(refusal({&Config::weights, {Access::kDirect}, "is no choice here"}, kPacked),
            "weights=packed is no choice here; try weights=direct");
  EXPECT_EQ(refusal({&Config::weights, {Access::kDirect, Access::kPacked}, ""}, kPacked), "");
}

TEST(ConfigKeys, SplitsAreForSumsOverTokensAlone) {
  EXPECT_EQ(refusal(split_key(problem_of("forward,dtype=bf16,B=1,T=64,D=64")), 4),
            "split_k=4 is for grad_weight and gram only; try split_k=1");
  const ConfigKey key = split_key(problem_of("grad_weight,dtype=bf16,B=1,T=64,D=64"));
  EXPECT_EQ(refusal(key, 4), "");
  EXPECT_EQ(refusal(split_key(problem_of("gram,dtype=bf16,B=1,T=64,D=64")), 4), "");
  EXPECT_EQ(refusal(key, 0), "split_k=0: some_family takes 1 to 65535; try split_k=1");
}

// What a family's rows leave no choice of, in their order: a width follows from a path.
TEST(ConfigKeys, WhatIsNoChoiceFollows) {
  const auto rows = [](const Config& c) -> std::vector<ConfigKey> {
    return {{&Config::tile_m, {64, 128}},
            {&Config::warps_m, {c.tile_m / 16}},
            {&Config::activations, {Access::kPacked}, ""},
            {&Config::vec_b, {c.activations == Access::kPacked ? 1 : 8}},
            range_key(&Config::stages, 2, 12)};
  };
  EXPECT_EQ(to_string(complete(*parse_config("tile=128x0x0,stages=3"), rows)),
            "tile=128x0x0,warps=8x0,stages=3,splitk=1,vec=0x1x0,activations=packed");
}

}  // namespace
}  // namespace trigen
