// templates/schedule.h: host and kernels rely on it, so what it enumerates must cover the triangle exactly.
#include "templates/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace trigen::schedule {
namespace {

struct Draw {
  Shape shape{};
  Config config{};
  Sizes sizes{};
};

Draw draw(std::mt19937& random, Op op) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Draw d;
  d.shape.op = op;
  d.shape.fill = pick(0, 1) ? Fill::kLower : Fill::kUpper;
  d.shape.bias = pick(0, 1);
  d.shape.zero_outside = pick(0, 3) == 0;
  d.config.tile_m = 8 << pick(0, 2);
  d.config.tile_n = 8 << pick(0, 2);
  d.config.tile_k = 8 << pick(0, 1);
  d.config.split_k = op == Op::kGradWeight ? pick(1, 5) : 1;
  d.config.raster = pick(0, 4);
  d.sizes = {pick(1, 4), pick(1, 2), pick(1, 70), pick(1, 20), pick(1, 4), 0, pick(-80, 80), 0};
  if (pick(0, 2) == 0) {  // a band
    d.shape.w = WeightForm::kBand, d.shape.fill = Fill::kLower;
    d.sizes.K = 1, d.sizes.diag = 0, d.shape.width = d.sizes.width = pick(1, d.sizes.T);
  }
  return d;
}

bool in_triangle(const Draw& d, int t, int s) {
  if (d.sizes.width > 0 && t - s >= d.sizes.width) return false;
  return d.shape.fill == Fill::kLower ? s <= t + d.sizes.diag : s >= t + d.sizes.diag;
}

std::string text(const Draw& d) {
  const Sizes& z = d.sizes;
  return "op " + std::to_string(static_cast<int>(d.shape.op)) + " fill " +
         std::to_string(static_cast<int>(d.shape.fill)) + " B " + std::to_string(z.B) + " T " +
         std::to_string(z.T) + " D " + std::to_string(z.D) + " K " + std::to_string(z.K) + " diag " +
         std::to_string(z.diag) + " width " + std::to_string(z.width) + " tile " +
         std::to_string(d.config.tile_m) + "x" + std::to_string(d.config.tile_n) + "x" +
         std::to_string(d.config.tile_k) + " raster " + std::to_string(d.config.raster) + " splits " +
         std::to_string(d.config.split_k);
}

TEST(Schedule, WeightRowIsTheTriangle) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const Draw d = draw(random, Op::kForward);
    SCOPED_TRACE(text(d));
    for (int t = 0; t < d.sizes.T; ++t) {
      const Range r = weight_row(d.shape.fill, d.sizes, t);
      for (int s = 0; s < d.sizes.T; ++s)
        ASSERT_EQ(s >= r.begin && s < r.end, in_triangle(d, t, s)) << t << " " << s;
    }
  }
}

// forward and grad_input: every output tile once, with a depth that is the union of its rows' triangle.
TEST(Schedule, ProductTilesCoverTheOutputOnce) {
  std::mt19937 random(2);
  for (int i = 0; i < 400; ++i) {
    const Draw d = draw(random, i % 2 ? Op::kForward : Op::kGradInput);
    SCOPED_TRACE(text(d));
    const int rows = ceil_div(d.sizes.T, d.config.tile_m),
              columns = ceil_div(d.sizes.B * d.sizes.D, d.config.tile_n);
    ASSERT_EQ(tile_count(d.shape, d.config, d.sizes), rows * columns);
    std::set<std::pair<int, int>> seen;
    for (int index = 0; index < rows * columns; ++index) {
      const Tile tile = tile_at(d.shape, d.config, d.sizes, index, 0);
      ASSERT_TRUE(tile.valid);
      ASSERT_TRUE(tile.row >= 0 && tile.row < rows && tile.column >= 0 && tile.column < columns) << index;
      ASSERT_TRUE(seen.insert({tile.row, tile.column}).second) << index;
      int begin = d.sizes.T * d.sizes.K, end = 0;
      for (int m = tile.row * d.config.tile_m; m < std::min(d.sizes.T, (tile.row + 1) * d.config.tile_m); ++m)
        for (int k = 0; k < d.sizes.T; ++k)
          if (d.shape.op == Op::kForward ? in_triangle(d, m, k) : in_triangle(d, k, m)) {
            begin = std::min(begin, k * d.sizes.K);
            end = std::max(end, (k + 1) * d.sizes.K);
          }
      if (end == 0) begin = 0;
      EXPECT_EQ(tile.depth.begin, begin) << index;
      EXPECT_EQ(tile.depth.end, end) << index;
    }
  }
}

// Within a section the work of the tiles never grows: the longest rows come first.
TEST(Schedule, LongestRowsFirst) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    Draw d = draw(random, i % 2 ? Op::kForward : Op::kGradInput);
    if (d.sizes.width > 0) continue;  // but for the ends of a band all rows have one length
    d.config.raster = 0;
    SCOPED_TRACE(text(d));
    int last = 1 << 30;
    for (int index = 0; index < tile_count(d.shape, d.config, d.sizes); ++index) {
      const Tile tile = tile_at(d.shape, d.config, d.sizes, index, 0);
      // The last row tile may be cut by T; it still counts as whole here.
      const int depth = tile.depth.end - tile.depth.begin;
      ASSERT_LE(depth, last + d.config.tile_m * d.sizes.K) << index;
      last = std::min(last, depth);
    }
  }
}

// grad_weight: every tile that touches the triangle is enumerated exactly once, and one tile of each row sums
// grad_bias, rows without any triangle included.
TEST(Schedule, WeightTilesCoverTheTriangleOnce) {
  std::mt19937 random(4);
  for (int i = 0; i < 400; ++i) {
    const Draw d = draw(random, Op::kGradWeight);
    SCOPED_TRACE(text(d));
    const int rows = ceil_div(d.sizes.T, d.config.tile_m),
              columns = ceil_div(d.sizes.T * d.sizes.K, d.config.tile_n);
    std::set<std::pair<int, int>> seen;
    std::map<int, int> first;
    for (int index = 0; index < tile_count(d.shape, d.config, d.sizes); ++index) {
      const Tile tile = tile_at(d.shape, d.config, d.sizes, index, 0);
      if (!tile.valid) continue;
      ASSERT_TRUE(tile.row < rows && tile.column >= 0 && tile.column < columns) << index;
      ASSERT_TRUE(seen.insert({tile.row, tile.column}).second) << index;
      first[tile.row] += tile.first;
    }
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        bool touches = every_tile(d.shape, d.config);
        for (int t = row * d.config.tile_m; t < std::min(d.sizes.T, (row + 1) * d.config.tile_m); ++t)
          for (int n = column * d.config.tile_n;
               n < std::min(d.sizes.T * d.sizes.K, (column + 1) * d.config.tile_n); ++n)
            touches |= in_triangle(d, t, n / d.sizes.K);
        if (touches) {
          EXPECT_TRUE(seen.count({row, column})) << row << " " << column;
        }
      }
      if (d.shape.bias) {
        EXPECT_EQ(first[row], 1) << row;
      }
    }
  }
}

TEST(Schedule, SplitsPartitionTheDepthInWholeSteps) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const Draw d = draw(random, Op::kGradWeight);
    SCOPED_TRACE(text(d));
    const int depth = d.sizes.B * d.sizes.D;
    int at = 0;
    for (int split = 0; split < d.config.split_k; ++split) {
      const Range r = split_depth(d.config, depth, split);
      if (r.begin == r.end) continue;  // more splits than steps
      EXPECT_EQ(r.begin, at);
      EXPECT_EQ(r.begin % d.config.tile_k, 0);
      at = r.end;
    }
    EXPECT_EQ(at, depth);
  }
}

}  // namespace
}  // namespace trigen::schedule
