// docs/cost-model.md explains the model. Rates are wgmma_sm90's (wgmma_cost.cpp).
#include "generator/wgmma_taps_cost.h"

#include <algorithm>
#include <vector>

#include "generator/families/tile_family.h"
#include "generator/limits.h"
#include "templates/wgmma_taps_sm90.h"

namespace trigen {
namespace {

using namespace wgmma_taps_sm90;

constexpr double kStartSeconds = 2e-6;      // first loads and last stores, which nothing overlaps
constexpr double kTensorShare = 1.0;        // of the ceiling, at the power limit
constexpr double kDiagonalShare = 0.68;     // of a block's time, where it crosses the diagonal
constexpr double kReadShare = 1.1;          // of the time that shared memory needs for a product's operands
constexpr double kAloneShare = 1.15;        // one warpgroup: no other one multiplies while it waits
constexpr double kInputSeconds = 0.85e-6;   // to transpose a block of the input; as long again to load it
constexpr double kFeedBytes = 70e9;         // per second from the L2 into one SM
constexpr double kLatencySeconds = 0.5e-6;  // of a load under load
constexpr double kStepSeconds = 0.1e-6;     // the input's next block, and products of another width
constexpr double kTileSeconds = 2e-6;       // of an output tile of 128 x 256: drain, conversion, stores
constexpr double kPackBytes = 2.5e12;       // per second
constexpr double kDramEfficiency = 0.92;
constexpr double kWeightShare = 0.80;  // grad_weight: of the datasheet's rate, B is read at half of its own
constexpr double kPartBytes = 3e12;    // per second, of incomplete sums

// grad_weight: every block of the triangle and group of taps has as many steps, shared evenly.
Prediction predict_weight(const Candidate& candidate, const DeviceModel& device,
                          const std::optional<Resources>& resources) {
  const Problem& p = candidate.problem;
  const Target& target = *candidate.target;
  const weight::Shares shares(kernel_shape(p), static_cast<int>(p.B), target.sms);
  const double slower = resources && resources->spills() ? 1.2 + resources->spill_bytes / 1000.0 : 1;
  const double step =
      2.0 * kPanel * kPanel * kPanel * weight::kGroupTaps / (target.mma16_flops / target.sms * kWeightShare);
  const double scale =
      std::max(1.0, static_cast<double>(target.sms) / device.sms) * target.clock_hz / device.clock_hz;
  const double steps = static_cast<double>(shares.items) * shares.depth;
  Prediction r;
  r.blocks_per_sm = 1;
  r.compute_s = slower * steps / shares.blocks * step * scale;
  r.dram_s = count_work(p).min_bytes / (device.dram_bytes_per_s * kDramEfficiency);
  r.l2_s = steps * 2 * kPanelBytes / (kFeedBytes * device.sms);
  r.fixed_s = kLaunchSeconds + kStartSeconds;
  if (shares.rest() > 0)
    r.fixed_s += kNextLaunchSeconds + 8.0 * weight::kSums * (shares.rest() + shares.sharers()) / kPartBytes;
  r.seconds = r.fixed_s + soft_max({r.compute_s, r.dram_s});
  name_limiter(r, "tensor");
  return r;
}

}  // namespace

Prediction predict_wgmma_taps_sm90(const Candidate& candidate, const DeviceModel& device,
                                   const std::optional<Resources>& resources) {
  const Problem& p = candidate.problem;
  if (p.op == Op::kGradWeight) return predict_weight(candidate, device, resources);
  const Config& c = candidate.config;
  const Target& target = *candidate.target;
  const Shape shape = kernel_shape(p);
  const Fill fill = wgmma_sm90::product_fill(shape);
  const int tokens = static_cast<int>(p.T), rows = schedule::ceil_div(tokens, c.tile_m),
            blocks = schedule::ceil_div(tokens, kPanel);
  const int columns = static_cast<int>(p.H) * column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  const int clusters = static_cast<int>(
      std::min<int64_t>(std::max(1, target.sms / std::max(1, c.cluster)), int64_t{rows} * columns));
  const int diag = static_cast<int>(p.op == Op::kGradInput ? -p.diag : p.diag);
  const double slower = resources && resources->spills() ? 1.2 + resources->spill_bytes / 1000.0 : 1;
  const double rate = target.mma16_flops / target.sms * kTensorShare;
  const double activation = p.epilogue.act == Activation::kGELU   ? 1.5
                            : p.epilogue.act == Activation::kSiLU ? 0.75
                                                                  : 0;
  const double tile = kTileSeconds * c.tile_m * c.tile_n / 32768 * (1 + activation);
  double feed_bytes = 0;
  // One block of 64 tokens by 64 by the tile's features, of one tap.
  const double feed = static_cast<double>(kPanelBytes) / std::max(1, c.cluster) / kFeedBytes;
  const double latency = kLatencySeconds / std::max(1, c.stages - 1) / panels(c);
  // A product of n columns takes n / 2 cycles, and its operands n / 4 + 16 to read.
  const double reads = kReadShare * (c.tile_m / 4.0 + 20) / (c.tile_m / 2.0);
  const double multiply = slower * 2.0 * kPanel * kPanel * c.tile_n / rate * std::max(1.0, reads) *
                          (consumers(c) == 1 ? kAloneShare : 1);
  const double block = soft_max({std::max(multiply, feed), latency});
  const double input = input_buffers(shape, c) > 1 ? kInputSeconds : 2 * kInputSeconds;
  const auto seconds = [&](int row) {
    std::vector<int> active;
    for (int panel = 0; panel < panels(c) && row * c.tile_m + kPanel * panel < tokens; ++panel)
      active.push_back(wgmma_sm90::Reach(fill, row * c.tile_m + kPanel * panel, diag, blocks).active);
    double sum = tile;
    for (int step = 0, most = *std::max_element(active.begin(), active.end()); step < most; ++step) {
      double count = 0;
      for (int reach : active) {
        feed_bytes += reach > step ? static_cast<double>(p.K) * kPanelBytes * columns : 0;
        count += reach <= step ? 0 : diag == 0 && reach == step + 1 ? kDiagonalShare : 1;
      }
      sum += std::max(count * static_cast<double>(p.K) * block, input) + kStepSeconds;
    }
    return sum;
  };
  std::vector<double> row_seconds;
  double mean = 0, longest = 0;
  for (int row = 0; row < rows; ++row) {
    row_seconds.push_back(seconds(row));
    mean += row_seconds.back() * columns / clusters;
  }
  const int section = wgmma_sm90::section_columns(c, rows, columns, clusters);
  // A few clusters stand for all.
  for (int sample : {0, 1, clusters / 4, clusters / 2, 3 * clusters / 4, clusters - 1}) {
    wgmma_sm90::Deal deal{
        rows, columns, section, clusters, std::clamp(sample, 0, clusters - 1), fill == Fill::kLower};
    double own = 0;
    for (int row = 0, column = 0; deal.next(row, column);) own += row_seconds[row];
    longest = std::max(longest, own);
  }
  longest = std::max(longest, mean);
  // The grid is made for the target's SMs.
  const double scale =
      std::max(1.0, static_cast<double>(target.sms) / device.sms) * target.clock_hz / device.clock_hz;
  const double weights =
      static_cast<double>(p.H * p.K) * static_cast<double>(p.T) * static_cast<double>(p.T) / 2;
  Prediction r;
  r.blocks_per_sm = 1;
  r.compute_s = mean * scale;
  r.tail_s = (longest - mean) * scale;
  r.dram_s = count_work(p).min_bytes / (device.dram_bytes_per_s * kDramEfficiency);
  r.l2_s = feed_bytes / (kFeedBytes * device.sms);
  r.fixed_s = kLaunchSeconds + kStartSeconds +
              weights * (2 + static_cast<double>(element_size(p.wdtype))) / kPackBytes;
  r.seconds = r.fixed_s + soft_max({r.compute_s + r.tail_s, r.dram_s});
  name_limiter(r, "tensor");
  return r;
}

}  // namespace trigen
