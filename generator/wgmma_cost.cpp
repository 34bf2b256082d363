// docs/cost-model.md explains the model. Its constants were fitted to one H200 (docs/performance.md), 128x256
// tiles.
#include "generator/wgmma_cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "generator/families/tile_family.h"
#include "generator/families/weight_shares.h"
#include "generator/limits.h"
#include "templates/pack_activations.h"
#include "templates/wgmma_tf32_sm90.h"

namespace trigen {
namespace {

using namespace wgmma_sm90;

constexpr double kStartSeconds = 1e-6;    // first loads and last stores, which nothing overlaps
constexpr double kTensorShare = 0.8;      // of the datasheet's rate: the power limit on random data
constexpr double kTensorMost = 0.93;      // of it, where few SMs work
constexpr double kFeedBytes = 70e9;       // per second from the L2 into one SM, all SMs at work
constexpr double kFeedWidth = 64;         // bytes a clock into one SM, however few work
constexpr double kLatencySeconds = 1e-6;  // of a load under load
constexpr double kTileSeconds = 1.5e-6;   // of an output tile of 128 x 256: drain, conversion, stores
constexpr double kEnoughSms = 0.7;        // share of the SMs that keeps the memory busy
constexpr double kReduceSeconds =
    2e-6;  // the second kernel with nothing to add: its blocks wait beside the product
// f32 weights that the product rounds itself. Twice the bytes, which the blocks of a row tile read together;
// and products wait for them where nothing else is in the way.
constexpr double kF32Feed = 1.3, kF32Products = 1.12;
constexpr double kPartBytes = 2e12;  // per second: partial sums through the L2
// Of the requests of grad_weight's product to the L2, what its reads of DRAM take longer for: blocks of one
// row tile ask for the same rows at nearly the same time, before they have come.
constexpr double kRequestShare = 0.4;
constexpr double kDramEfficiency = 0.92;
constexpr double kUsableL2 = 0.5;
// Of a panel as large as the L2, what a walk over it finds missing there: a share that grows with the panel.
constexpr double kMissFloor = 0.15;
constexpr double kClusterSeconds = 0.8e-6;  // clusters meet before their first load and at their end

struct Load {
  double longest = 0, mean = 0;  // seconds of the busiest cluster or block, and of all on average
  double dram_bytes = 0, feed_bytes = 0, reduce_s = 0;
};

struct Model {
  const Problem& p;
  const Config& c;
  const Target& target;
  const DeviceModel& device;
  double slower;                   // spills
  const Counts* counts = nullptr;  // null: estimates
  double busy = 1;  // share of the SMs that work: they divide power and the L2 among themselves

  // One k block of a whole tile of `columns`.
  double step(double columns) const {
    const bool wide = p.dtype == DType::kF32;  // a rate measured, not of the datasheet
    const double products = c.tile_m * columns * depth(), sharers = std::max(1, c.cluster);
    const double rate =
        wide ? target.tf32_flops : target.mma16_flops * std::min(kTensorMost, kTensorShare / busy);
    const bool f32_weights = reads_f32_weights(kernel_shape(p), c);
    const double fed = std::min(kFeedWidth * target.clock_hz, kFeedBytes / busy);
    const double tensor = 2 * products / (rate / target.sms) * (f32_weights ? kF32Products : 1);
    const bool weight = p.op == Op::kGradWeight, square = squares(p.op, c);
    const double a = c.tile_m / (square   ? 2
                                 : weight ? 1
                                          : sharers),
                 b = columns / (square   ? 2
                                : weight ? sharers
                                         : 1);
    double feed = 128 * (a * (f32_weights ? kF32Feed : 1) + b) / fed;
    double shared = 0;  // what threads move in shared memory beside the products' own reads
    if (counts != nullptr && columns == c.tile_n) {
      feed = counts->step.load_sectors * BlockCounts::kSectorBytes / fed;
      shared = counts->step.shared_wavefronts / target.clock_hz;
    }
    return slower * soft_max({std::max({tensor, feed, shared}), kLatencySeconds / std::max(1, c.stages - 1)});
  }
  // Elements of a k block: 128 bytes.
  double depth() const { return 128.0 / static_cast<double>(element_size(p.dtype)); }
  double tile() const {
    const Epilogue& e = p.epilogue;
    const double activation = e.act == Activation::kGELU ? 1 : e.act == Activation::kSiLU ? 0.5 : 0;
    // Buffers for a part of the tile: what comes in waits for what leaves.
    const Shape shape = kernel_shape(p);
    const double waits = exchanges(shape) && p.dtype != DType::kF32
                             ? 0.5 * (1 - static_cast<double>(store_panels(shape, c)) / panels(c))
                             : 0;
    const double conflicts = counts != nullptr ? counts->tile.shared_conflicts / target.clock_hz : 0;
    return conflicts + kTileSeconds * c.tile_m * c.tile_n / 32768 *
                           (1 + activation + waits +
                            0.5 * (e.pre + e.gate + (e.residual && !multiplies_residual(shape))));
  }
};

// The launch that packs W ahead of the product (templates/pack.h), which starts meanwhile: its bytes pass
// through the L2.
constexpr double kPackSeconds = 0.6e-6, kPackBytes = 6e12;  // per second

double pack_seconds(const Problem& p, const Config& c) {
  if (p.dtype == DType::kF32 || !packs(kernel_shape(p), c)) return 0;  // f32 data: transposed_work
  const double weights =
      static_cast<double>(p.H * p.K) * static_cast<double>(p.T) * static_cast<double>(p.T) / 2;
  return kPackSeconds + weights * (2 + static_cast<double>(element_size(p.wdtype))) / kPackBytes;
}

// The launches that copy activations into the workspace and back (templates/pack_activations.h): every byte
// is read and written, from and to DRAM.
double copy_seconds(const Problem& p, const Config& c, const DeviceModel& device) {
  const Shape shape = kernel_shape(p);
  if (!packing::packs_activations(shape, c)) return 0;
  const double bytes = 2 * packing::Slots(shape).count * static_cast<double>(p.B * p.H) *
                       static_cast<double>(p.T) * static_cast<double>(p.D) *
                       static_cast<double>(element_size(p.dtype));
  return (packing::unpacks(shape) ? 2 : 1) * kNextLaunchSeconds +
         bytes / (device.dram_bytes_per_s * kDramEfficiency);
}

Load product_work(const Model& m) {
  const Problem& p = m.p;
  const Shape shape = kernel_shape(p);
  const int rows = row_tiles(m.c, static_cast<int>(p.T)), blocks = static_cast<int>((p.T + 63) / 64);
  const int columns = static_cast<int>(p.H) * column_units(m.c, static_cast<int>(p.B), static_cast<int>(p.D));
  const int64_t units = int64_t{rows} * columns;
  const int clusters =
      static_cast<int>(std::min<int64_t>(std::max(1, m.target.sms / std::max(1, m.c.cluster)), units));
  const int section = section_columns(m.c, rows, columns, clusters);
  const int diag = static_cast<int>(p.op == Op::kGradInput ? -p.diag : p.diag), groups = consumers(m.c);
  const double step = m.step(m.c.tile_n), tile = m.tile() + (multiplies_residual(shape) ? step : 0);
  const auto seconds = [&](int row) {
    double active = 0;
    for (int g = 0; g < groups; ++g)
      active += Reach(product_fill(shape), row * m.c.tile_m + 64 * g, diag, blocks).active;
    return active / groups * step + tile;
  };
  Load w;
  double depth = 0;
  for (int row = 0; row < rows; ++row) {
    w.mean += seconds(row) * columns / clusters;
    depth += (seconds(row) - tile) / step * 64;
  }
  // A few clusters stand for all.
  for (int sample :
       {0, 1, clusters / 8, clusters / 4, clusters / 2, 3 * clusters / 4, clusters - 2, clusters - 1}) {
    Deal deal{rows,
              columns,
              section,
              clusters,
              std::clamp(sample, 0, clusters - 1),
              product_fill(shape) == Fill::kLower};
    double own = 0;
    for (int row = 0, column = 0; deal.next(row, column);) own += seconds(row);
    w.longest = std::max(w.longest, own);
  }
  // DRAM: every byte once, and a section's panel again for every walk over it that the L2 does not keep.
  const double width = static_cast<double>(section) * m.c.cluster * m.c.tile_n,
               panel = static_cast<double>(p.T) * width * 2;
  const double missed = std::clamp(panel / static_cast<double>(m.device.l2_bytes) - kMissFloor, 0.0, 1.0);
  const double rows_at_once = std::max(1.0, static_cast<double>(clusters) / section);
  const double walks = std::max(0.0, depth / static_cast<double>(p.T) / rows_at_once - 1);
  w.dram_bytes = count_work(p).min_bytes + missed * walks * panel * columns / section;
  w.feed_bytes =
      depth / 64 * columns * m.c.cluster * 128 *
      (m.c.tile_m * (reads_f32_weights(shape, m.c) ? 2 : 1) / static_cast<double>(m.c.cluster) + m.c.tile_n);
  return w;
}

// Clusters stand for all by a few.
constexpr int kSamples = 8;

// forward and grad_input of wgmma_tf32_sm90: features by tokens, steps of 32 along k that panels of 64 tokens
// take part in. Some pack W first.
Load transposed_work(const Model& m) {
  const Problem& p = m.p;
  const Config& c = m.c;
  const Fill fill = product_fill(kernel_shape(p));
  const int rows = row_tiles(c, static_cast<int>(p.T)), steps = static_cast<int>((p.T + 31) / 32);
  const int columns =
      static_cast<int>(p.H) * wgmma_tf32_sm90::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  const int clusters = static_cast<int>(
      std::min<int64_t>(std::max(1, m.target.sms / std::max(1, c.cluster)), int64_t{rows} * columns));
  const int section = section_columns(c, rows, columns, clusters);
  const int diag = static_cast<int>(p.op == Op::kGradInput ? -p.diag : p.diag),
            panels = wgmma_tf32_sm90::token_panels(c);
  const double step = m.step(c.tile_n), tile = m.tile();
  std::vector<double> depth(static_cast<size_t>(rows), 0.0);  // whole steps
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < panels; ++i)
      depth[static_cast<size_t>(row)] +=
          static_cast<double>(wgmma_tf32_sm90::StepReach(fill, row * c.tile_m + 64 * i, diag, steps).active) /
          panels;
  Load w;
  double all = 0;
  for (double d : depth) all += d;
  w.mean = (all * step + rows * tile) * columns / clusters;
  for (int i = 0; i < kSamples; ++i) {
    const int cluster = i * (clusters - 1) / (kSamples - 1);
    Deal deal{rows, columns, section, clusters, cluster, fill == Fill::kLower};
    double own = 0;
    for (int row = 0, column = 0; deal.next(row, column);)
      own += depth[static_cast<size_t>(row)] * step + tile;
    w.longest = std::max(w.longest, own);
  }
  const double width = static_cast<double>(section) * c.cluster * c.tile_n,
               panel = static_cast<double>(p.T) * width * 4;
  const double missed =
      std::clamp(panel / (static_cast<double>(m.device.l2_bytes) * kUsableL2) - 1, 0.0, 1.0);
  const double rows_at_once = std::max(1.0, static_cast<double>(clusters) / section);
  const double walks = std::max(0.0, all * 32 / static_cast<double>(p.T) / rows_at_once - 1);
  w.dram_bytes = count_work(p).min_bytes + missed * walks * panel * columns / section;
  w.feed_bytes = all * columns * c.cluster * 128 * (c.tile_m / static_cast<double>(c.cluster) + c.tile_n);
  if (wgmma_tf32_sm90::packs(p.op, c))
    w.reduce_s = kNextLaunchSeconds + 4.0 * static_cast<double>(p.H * p.T) * static_cast<double>(p.T) /
                                          (m.device.dram_bytes_per_s * kDramEfficiency);
  return w;
}

// Shifting dy by taps: up to 32 reads of a word from shared memory for every 64 x 64 panel and thread, beside
// the products' own. Not measured.
constexpr double kShiftShare = 0.1;

Load weight_work(Model m) {
  const Problem& p = m.p;
  const int pair = std::max(1, m.c.cluster);  // blocks that share x; what follows is for one of them
  const Shares s = weight_shares(p, m.c, clusters_at_once(m.target, pair) * pair);
  if (s.whole == 0 && s.narrow == 0)
    m.busy = std::min(1.0, static_cast<double>(std::min(s.parts(), s.blocks)) * pair / m.target.sms);
  const double slower = p.K > 1 ? 1 + kShiftShare : 1, depth = s.depth;
  const double wide = slower * m.step(m.c.tile_n), narrow = slower * m.step(128);
  const double tile = kTileSeconds * m.c.tile_n / 256;
  const auto rounds = [](int n, int each) { return (n + each - 1) / each; };  // whole ones
  Load w;
  double parts = 0;
  if (s.whole > 0) w.longest += rounds(s.whole, s.blocks) * (depth * wide + tile);
  if (s.parts() > 0) {
    const int part = rounds(s.depth, s.split);
    w.longest += rounds(s.parts(), s.blocks) * (part * wide + tile);
    if (s.split > 1) parts += static_cast<double>(s.parts()) * s.wide_sums() * 4;
  }
  if (s.narrow > 0) {
    w.longest += s.length() / static_cast<double>(s.sharers()) * narrow + 0.5 * kTileSeconds;
    parts += (s.sharers() + s.narrow) * static_cast<double>(kNarrowSums) * 4;
  }
  w.mean = (s.wide * (depth * wide + tile) + s.narrow * (depth * narrow + kTileSeconds)) / s.blocks;
  w.longest = std::max(w.longest, w.mean);
  // Few SMs ask for less at a time.
  w.dram_bytes = (count_work(p).min_bytes + parts / 2) * std::sqrt(std::max(1.0, kEnoughSms / m.busy));
  w.feed_bytes =
      depth * 128 * (s.wide * (squares(p.op, m.c) ? 512.0 : 128.0 * pair + m.c.tile_n) + s.narrow * 256.0);
  w.reduce_s = m.c.split_k > 1 || m.c.tile_n > 128 ? kReduceSeconds + parts / kPartBytes : 0;
  return w;
}

}  // namespace

Prediction predict_wgmma_sm90(const Candidate& candidate, const DeviceModel& device,
                              const std::optional<Resources>& resources,
                              const std::optional<Counts>& counts) {
  const double slower = resources && resources->spills() ? 1.2 + resources->spill_bytes / 1000.0 : 1;
  const Model m{candidate.problem,          candidate.config, *candidate.target, device, slower,
                counts ? &*counts : nullptr};
  const Load w = candidate.problem.op == Op::kGradWeight  ? weight_work(m)
                 : candidate.problem.dtype == DType::kF32 ? transposed_work(m)
                                                          : product_work(m);
  // The grid is made for the target's SMs.
  const double scale =
      std::max(1.0, static_cast<double>(m.target.sms) / device.sms) * m.target.clock_hz / device.clock_hz;
  Prediction r;
  r.blocks_per_sm = 1;
  r.compute_s = w.mean * scale;
  r.tail_s = std::max(0.0, w.longest - w.mean) * scale;
  r.dram_s = w.dram_bytes / (device.dram_bytes_per_s * kDramEfficiency);
  r.l2_s = w.feed_bytes / (kFeedBytes * device.sms);
  if (candidate.problem.op == Op::kGradWeight) r.dram_s += kRequestShare * r.l2_s;
  r.fixed_s = kLaunchSeconds + kStartSeconds + (candidate.config.cluster > 1 ? kClusterSeconds : 0) +
              w.reduce_s + pack_seconds(candidate.problem, candidate.config) +
              copy_seconds(candidate.problem, candidate.config, device);
  r.seconds = r.fixed_s + soft_max({r.compute_s + r.tail_s, r.dram_s});
  name_limiter(r, "tensor");
  return r;
}

}  // namespace trigen
