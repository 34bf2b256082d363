#include <gmock/gmock.h>

#include "generator/error.h"
#include "generator/family.h"
#include "generator/random_problem.h"

namespace trigen {
namespace {

std::string error_of(llvm::StringRef text) {
  auto config = parse_config(text);
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
    const auto set = [&](int largest, std::initializer_list<int*> fields) {
      for (int* field : fields) *field = random.coin() ? 0 : static_cast<int>(random.pick(largest + 1));
    };
    set(1024, {&config.tile_m, &config.tile_n, &config.tile_k});
    set(32, {&config.warps_m, &config.warps_n, &config.blocks});
    set(16, {&config.stages, &config.cluster});
    set(65535, {&config.split_k, &config.raster});
    set(64, {&config.vec_a, &config.vec_b, &config.vec_c});
    if (random.coin()) config.weights = Access::kPacked;
    if (random.coin()) config.activations = Access::kPacked;
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
            "cluster, blocks, weights or activations; did you mean 'tile'?");
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

}  // namespace
}  // namespace trigen
