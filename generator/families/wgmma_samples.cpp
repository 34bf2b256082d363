// Sample clusters of wgmma_sm90's kernels, which stand for all.
#include <algorithm>

#include "generator/families/persistent_work.h"
#include "generator/families/weight_stream_k.h"
#include "generator/families/wgmma_samples.h"
#include "templates/persistent/grad_weight.h"
#include "templates/wgmma_sm90.h"

namespace trigen {
namespace {

using namespace persistent;
using namespace wgmma_sm90;

// Two of the clusters with one whole tile, those with the fewest steps.
std::vector<Sample> product_samples(const Family& family, const Problem& p, const Target& target,
                                    const Config& c) {
  Problem small = p;
  const int64_t features = (p.D + kPanel - 1) / kPanel, wanted = int64_t{panels(c)} * c.cluster;
  small.B = std::clamp<int64_t>((wanted + features - 1) / features, 1, p.B);
  const ProductWalk walk(
      p, c, row_tiles(c, static_cast<int>(p.T)),
      static_cast<int>(p.H) * column_units(c, static_cast<int>(small.B), static_cast<int>(p.D)),
      static_cast<int>(product_launch(family.launch_plan(small, target, c), p.op).grid[0]) / c.cluster);
  const std::vector<Run> tiles = reached_tiles(walk, c, static_cast<int>(p.T));
  std::vector<Sample> found;
  for (int cluster = 0; cluster < walk.clusters; ++cluster) {
    TileScheduler scheduler = walk.scheduler(cluster);
    Sample sample{small.B, static_cast<uint64_t>(cluster), 0, 0};
    bool whole = true;
    for (int row = 0, column = 0; scheduler.next(row, column); ++sample.tiles) {
      sample.steps += tiles[static_cast<size_t>(row)].steps[0];
      // The last column of a head and the last row may be cut off.
      whole = whole && (row + 1) * c.tile_m <= p.T && column == 0;
    }
    if (sample.tiles == 1 && sample.steps > 0 && whole) found.push_back(sample);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Sample& a, const Sample& b) { return a.steps < b.steps; });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const Sample& a, const Sample& b) { return a.steps == b.steps; }),
              found.end());
  if (found.size() > 2) found.resize(2);
  return found;
}

// A block with wide tiles or parts of them alone, or with as much of the narrow ones, at two depths.
std::vector<Sample> weight_samples(const Family& family, const Problem& p, const Target& target,
                                   const Config& c) {
  const auto sample_of = [&](int64_t batch, int block) {
    Problem small = p;
    small.B = batch;
    const StreamK stream_k = weight_stream_k(
        small, c, static_cast<int>(product_launch(family.launch_plan(small, target, c), p.op).grid[0]));
    Sample sample{batch, static_cast<uint64_t>(block), 0, 0};
    int narrow = 0;
    if (block >= stream_k.blocks) return std::pair{sample, narrow};
    StreamKWalk walk(stream_k, block);
    for (WorkTile work; walk.next(work); ++sample.tiles) {
      const int steps = work.end - work.begin;
      if (work.narrow) narrow += steps;
      sample.steps += work.narrow ? 0.5 * steps : steps;
      sample.tiles -= work.narrow ? 0.5 : 0;
    }
    return std::pair{sample, narrow};
  };
  const int64_t features = (p.D + kPanel - 1) / kPanel;
  const int64_t few =
      std::clamp<int64_t>((2 * int64_t{std::max(1, c.split_k)} + features - 1) / features, 1, p.B);
  const int64_t more = std::min(2 * few, p.B);
  for (const bool wide_alone : {true, false}) {
    for (int block = 0; block < target.sms; ++block) {
      const auto [a, narrow_of_a] = sample_of(few, block);
      const auto [b, narrow_of_b] = sample_of(more, block);
      if (a.steps <= narrow_of_a || a.tiles != b.tiles || narrow_of_a != narrow_of_b) continue;
      if (wide_alone && narrow_of_a > 0) continue;
      if (a.steps < b.steps) return {a, b};
      return {a};
    }
  }
  return {};
}

}  // namespace

std::vector<Sample> wgmma_samples(const Family& family, const Problem& p, const Target& target,
                                  const Config& c) {
  // No two clusters of slices differ by whole steps.
  if (p.op == Op::kGradWeight ? weight::slices(c) : slices(c)) return {};
  return p.op == Op::kGradWeight ? weight_samples(family, p, target, c)
                                 : product_samples(family, p, target, c);
}

}  // namespace trigen
