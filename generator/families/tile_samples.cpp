// Sample blocks of the tile families' kernels, which stand for all.
#include <algorithm>
#include <numeric>

#include "generator/families/tile_family.h"

namespace trigen {
namespace {

using schedule::Range;

int64_t steps_of(Range depth, int tile_k) { return schedule::ceil_div(depth.end - depth.begin, tile_k); }

// Samples of the first column tile: its full rows with the fewest steps.
std::vector<Sample> product_samples(const Problem& p, const Config& c) {
  Problem small = p;
  small.B = std::clamp<int64_t>((c.tile_n + p.D - 1) / p.D, 1, p.B);
  const Shape shape = kernel_shape(small);
  const schedule::Sizes z = kernel_sizes(small);
  const int rows = schedule::ceil_div(z.T, c.tile_m);
  std::vector<Sample> of_row(static_cast<size_t>(rows));
  for (int i = schedule::tile_count(shape, c, z) - 1; i >= 0; --i) {
    const schedule::Tile tile = schedule::tile_at(shape, c, z, i, 0);
    if (tile.column == 0)
      of_row[static_cast<size_t>(tile.row)] = {small.B, static_cast<uint64_t>(i),
                                               static_cast<double>(steps_of(tile.depth, c.tile_k)), 1};
  }
  const size_t full = static_cast<size_t>(std::max(1, z.T / c.tile_m));
  of_row.resize(full);
  // Rows this far apart cross the diagonal alike.
  const int depth = std::max(1, c.tile_m * z.K);
  const auto period = static_cast<size_t>(std::lcm(depth, c.tile_k) / depth);
  const auto fewer = [](const Sample& a, const Sample& b) { return a.steps < b.steps; };
  std::optional<std::pair<Sample, Sample>> best;
  for (size_t i = 0; i + period < full; ++i) {
    const auto [a, b] = std::minmax(of_row[i], of_row[i + period], fewer);
    if (a.steps > 0 && a.steps < b.steps && (!best || fewer(b, best->second))) best = {a, b};
  }
  if (best) return {best->first, best->second};
  const Sample most = *std::max_element(of_row.begin(), of_row.end(), fewer);
  if (most.steps > 0) return {most};
  return {};
}

// One tile, inside the triangle where there is such a one, at two depths.
std::vector<Sample> weight_samples(const Problem& p, const Config& c) {
  const Shape shape = kernel_shape(p);
  const schedule::Sizes z = kernel_sizes(p);
  const auto inside = [&](const schedule::Tile& tile) {
    const int first = tile.row * c.tile_m, last = std::min(first + c.tile_m, z.T) - 1;
    const Range a = schedule::weight_row(p.fill, z.diag, first, z.T),
                b = schedule::weight_row(p.fill, z.diag, last, z.T);
    const int begin = std::max(a.begin, b.begin) * z.K, end = std::min(a.end, b.end) * z.K;
    return tile.column * c.tile_n >= begin && (tile.column + 1) * c.tile_n <= end &&
           last - first + 1 == c.tile_m;
  };
  const int tiles = schedule::tile_count(shape, c, z);
  int chosen = -1, rank = -1;
  for (int i = 0; i < tiles && rank < 2; ++i) {
    const schedule::Tile tile = schedule::tile_at(shape, c, z, i, 0);
    if (!tile.valid) continue;
    const int quality = (inside(tile) ? 1 : 0) + (inside(tile) && !tile.first ? 1 : 0);
    if (quality > rank) chosen = i, rank = quality;
  }
  if (chosen < 0) return {};
  // Two whole steps for the first part at least.
  const int64_t depth = int64_t{2} * c.tile_k * std::max(1, c.split_k);
  const int64_t few = std::clamp<int64_t>((depth + p.D - 1) / p.D, 1, p.B);
  std::vector<Sample> out;
  for (const int64_t batch : {few, std::min(2 * few, p.B)}) {
    const auto part = schedule::split_depth(c, static_cast<int>(batch * p.D), 0);
    out.push_back({batch, static_cast<uint64_t>(chosen), static_cast<double>(steps_of(part, c.tile_k)), 1});
  }
  if (out[0].steps == out[1].steps) out.pop_back();
  if (out[0].steps <= 0) out.clear();
  return out;
}

}  // namespace

std::vector<Sample> TileFamily::samples(const Problem& p, const Target&, const Config& c) const {
  return p.op == Op::kGradWeight ? weight_samples(p, c) : product_samples(p, c);
}

}  // namespace trigen
