// As wgmma_cost.cpp, for the family that splits f32 operands first: three products of planes for each block
// of k, and a launch that reads every operand once and writes as many bytes.
#include "generator/wgmma_split_cost.h"

#include <algorithm>
#include <cmath>

#include "generator/families/tile_family.h"
#include "templates/wgmma_split_sm90.h"

namespace trigen {
namespace {

using namespace wgmma_split_sm90;

constexpr double kLaunchSeconds = 2.5e-6;  // an empty kernel in a graph
constexpr double kNextSeconds = 3e-6;      // from one launch's end to the next one's first products
constexpr double kTensorShare = 0.65;      // of the datasheet's rate in the main loop
constexpr double kTileSeconds = 2e-6;      // of an output tile: last sums, stores
constexpr double kSplitEfficiency = 0.7;   // of the memory's rate in the first launch
constexpr double kReduceSeconds = 4e-6;
constexpr double kPartBytes = 3e12;  // per second: partial sums through the L2
constexpr double kTwoStages = 1.15;  // a ring of two stages waits for its loads

struct Load {
  double longest = 0, mean = 0;  // seconds of the busiest block, and of all on average
  double reduce_s = 0;
};

Load product_work(const Problem& p, const Config& c, int sms, double step) {
  const Shape shape = kernel_shape(p);
  const int rows = wgmma_sm90::row_tiles(c, static_cast<int>(p.T)),
            blocks = static_cast<int>((p.T + 63) / 64);
  const int columns =
      static_cast<int>(p.H) * wgmma_sm90::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  const int clusters = static_cast<int>(std::min<int64_t>(sms, int64_t{rows} * columns));
  const Fill fill = wgmma_sm90::product_fill(shape);
  const int diag = static_cast<int>(p.op == Op::kGradInput ? -p.diag : p.diag);
  const auto seconds = [&](int row) {
    double active = 0;
    for (int g = 0; g < consumers(c); ++g)
      active += wgmma_sm90::Reach(fill, row * c.tile_m + 64 * g, diag, blocks).active;
    return active / consumers(c) * step + kTileSeconds;
  };
  Load w;
  for (int row = 0; row < rows; ++row) w.mean += seconds(row) * columns / clusters;
  const int section = wgmma_sm90::section_columns(c, rows, columns, clusters);
  for (int sample : {0, clusters / 4, clusters / 2, 3 * clusters / 4, clusters - 1}) {  // stand for all
    wgmma_sm90::Deal deal{rows, columns, section, clusters, sample, fill == Fill::kLower};
    double own = 0;
    for (int row = 0, column = 0; deal.next(row, column);) own += seconds(row);
    w.longest = std::max(w.longest, own);
  }
  return w;
}

Load weight_work(const Problem& p, const Config& c, int sms, double step) {
  const wgmma_sm90::Shares s(wgmma_sm90::Cut{.T = static_cast<int>(p.T),
                                             .diag = static_cast<int>(p.diag),
                                             .lower = p.fill == Fill::kLower,
                                             .depth = static_cast<int>(p.B * ((p.D + 63) / 64)),
                                             .split = c.split_k,
                                             .blocks = sms,
                                             .tile_n = c.tile_n,
                                             .edge = 128,
                                             .copies = static_cast<int>(p.H),
                                             .every_row = false});
  const auto rounds = [](int n, int each) { return (n + each - 1) / each; };
  Load w;
  w.longest = rounds(s.whole, s.blocks) * (s.depth * step + kTileSeconds);
  if (s.parts() > 0)
    w.longest += rounds(s.parts(), s.blocks) * (rounds(s.depth, s.split) * step + kTileSeconds);
  w.mean = s.wide * (s.depth * step + kTileSeconds) / s.blocks;
  w.longest = std::max(w.longest, w.mean);
  if (c.split_k > 1) w.reduce_s = kReduceSeconds + 2.0 * s.parts() * s.wide_sums() * 4 / kPartBytes;
  return w;
}

}  // namespace

Prediction predict_wgmma_split_sm90(const Candidate& candidate, const DeviceModel& device,
                                    const std::optional<Resources>& resources) {
  const Problem& p = candidate.problem;
  const Config& c = candidate.config;
  const Target& target = *candidate.target;
  double step = 3.0 * 2 * c.tile_m * c.tile_n * 64 / (target.mma16_flops / target.sms * kTensorShare);
  if (c.stages < 3) step *= kTwoStages;
  if (resources && resources->spills()) step *= 1.2 + resources->spill_bytes / 1000.0;
  const Load w =
      p.op == Op::kGradWeight ? weight_work(p, c, target.sms, step) : product_work(p, c, target.sms, step);
  const double scale =
      std::max(1.0, static_cast<double>(target.sms) / device.sms) * target.clock_hz / device.clock_hz;
  const double activation = static_cast<double>(p.B * p.H * p.T * p.D) * 4,
               weight = static_cast<double>(p.H * p.T) * static_cast<double>(p.T) * 2;
  const double split = 2 * (p.op == Op::kGradWeight ? 2 * activation : activation + weight);  // read, written
  Prediction r;
  r.blocks_per_sm = 1;
  r.compute_s = w.mean * scale;
  r.tail_s = std::max(0.0, w.longest - w.mean) * scale;
  r.dram_s = split / (device.dram_bytes_per_s * kSplitEfficiency);
  r.l2_s = 0;
  r.fixed_s = kLaunchSeconds + kNextSeconds + w.reduce_s;
  r.seconds = r.fixed_s + r.dram_s + r.compute_s + r.tail_s;
  r.limiter = "tensor";
  double most = r.compute_s;
  for (auto [seconds, name] : {std::pair{r.tail_s, "tail"}, {r.dram_s, "dram"}, {r.fixed_s, "launch"}})
    if (seconds > most) most = seconds, r.limiter = name;
  return r;
}

}  // namespace trigen
