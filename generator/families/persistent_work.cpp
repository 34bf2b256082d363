#include "generator/families/persistent_work.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"
#include "templates/pack_activations.h"
#include "templates/persistent/row_slices.h"
#include "templates/persistent/three_panels.h"

namespace trigen {

using namespace persistent;

// Blocks of 64 tokens. Blocks that share a column drift apart (docs/experiments/wgmma_sm90.md, "Columns one by one"), at once where
// it fits a ring nearly; columns of more than kCountedColumn were not counted.
constexpr int kShortColumn = 4, kCountedColumn = 8;

// Of 512 x 16 heads of 16 features, T = 256, and 2048 x 8, T = 64: 1.46 and 1.31 times as long (an H200, 2026-11-30).
constexpr double kRowsOf32Bytes = 1.4;

double memory_of_product(const Problem& p) {
  const double bytes = count_work(p).min_bytes;
  const bool short_rows = p.H > 1 && p.layout == Layout::kBTD && element_size(p.dtype) * p.D <= 32;
  return short_rows ? kRowsOf32Bytes * bytes : bytes;
}
bool splits_sectors(const Problem& p) { return (p.layout == Layout::kBTD ? p.D : p.T) % 16 != 0; }
bool exceeds_l2(const Problem& p) {
  return element_size(p.dtype) * p.B * p.H * p.T * p.D > persistent::kL2Bytes;
}
double memory_of_split_sectors(const Problem& p, double each) {
  if (!exceeds_l2(p) || !splits_sectors(p)) return 0;
  const int64_t panels = p.B * p.H * ((p.D + persistent::kPanel - 1) / persistent::kPanel);
  return each * static_cast<double>(panels * p.T);
}

int product_diag(const Problem& p) { return static_cast<int>(transposes(p.op) ? -p.diag : p.diag); }

ProductWalk::ProductWalk(const Problem& p, const Config& c, int rows, int columns, int clusters)
    : rows(rows),
      columns(columns),
      section(section_columns(c, rows, columns, clusters)),
      clusters(clusters),
      by_columns(walks_by_columns(c)),
      fill(product_fill(kernel_shape(p))),
      diag(product_diag(p)),
      width(static_cast<int>(p.width)) {}

TileScheduler ProductWalk::scheduler(int cluster) const {
  return {rows, columns, section, clusters, cluster, fill == Fill::kLower, by_columns ? 0 : 1};
}

void add(Run& sum, const Run& run, double times) {
  sum.steps.resize(std::max(sum.steps.size(), run.steps.size()), 0.0);
  for (size_t kind = 0; kind < run.steps.size(); ++kind) sum.steps[kind] += times * run.steps[kind];
  sum.tiles += times * run.tiles;
}

std::vector<int> sample_blocks(int blocks) {
  std::vector<int> out = {0, 1, blocks / 8, blocks / 4, blocks / 2, 3 * blocks / 4, blocks - 2, blocks - 1};
  for (int& block : out) block = std::clamp(block, 0, blocks - 1);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<Run> reached_tiles(const ProductWalk& walk, const Config& c, int tokens) {
  const int blocks = schedule::ceil_div(tokens, kPanel), groups = c.tile_m / 64;
  std::vector<Run> tiles;
  tiles.reserve(static_cast<size_t>(walk.rows));
  for (int row = 0; row < walk.rows; ++row) {
    double k_blocks = 0;
    for (int group = 0; group < groups; ++group)
      k_blocks += KRange(walk.fill, row * c.tile_m + 64 * group, walk.diag, blocks).blocks;
    k_blocks -= groups * blocks_before_band(walk.fill, row * c.tile_m, c.tile_m, walk.width, blocks);
    tiles.push_back({{k_blocks / groups}, 1});
  }
  return tiles;
}

Run first_rows(std::vector<Run> tiles, double rows_at_once, double columns) {
  const auto length = [](const Run& run) { return std::accumulate(run.steps.begin(), run.steps.end(), 0.0); };
  std::stable_sort(tiles.begin(), tiles.end(),
                   [&](const Run& a, const Run& b) { return length(a) > length(b); });
  Run out;
  for (const Run& tile : tiles) {
    if (rows_at_once <= 0) break;
    add(out, tile, std::min(1.0, rows_at_once) * columns);
    rows_at_once -= 1;
  }
  return out;
}

bool splits_lines(int64_t elements, DType dtype) { return elements * element_size(dtype) % 128 != 0; }

bool activations_split_lines(const Problem& p, const Config& c) {
  if (packing::packs_activations(kernel_shape(p), c)) return false;
  return splits_lines(p.layout == Layout::kBTD ? p.D : p.T, p.dtype);
}

double touched_sectors(const Problem& p) {
  const int64_t elements = 32 / element_size(p.dtype);
  int64_t sectors = 0;
  for (int64_t h = 0; h < p.H; ++h) sectors += ((h + 1) * p.D + elements - 1) / elements - h * p.D / elements;
  return static_cast<double>(sectors * p.B) * static_cast<double>(p.T);
}

void put_product(Work& work, const Problem& p, const ProductWalk& walk, const std::vector<Run>& tiles) {
  work.first = first_rows(tiles, walk.rows_at_once(), walk.columns);
  work.first_bytes = static_cast<double>(p.B * p.H * p.T) * static_cast<double>(p.D * element_size(p.dtype));
  for (const Run& tile : tiles) add(work.all, tile, walk.columns);
  put_runs(work, walk.clusters, false, [&](int cluster) {
    Run own;
    TileScheduler scheduler = walk.scheduler(cluster);
    for (int row = 0, column = 0; scheduler.next(row, column);) add(own, tiles[static_cast<size_t>(row)]);
    return own;
  });
}

void put_common_bytes(Work& work, const Problem& p, const ProductWalk& walk, double steps,
                      double ring_bytes) {
  const double blocks = schedule::ceil_div(static_cast<int>(p.T), kPanel);
  if (walk.by_columns || blocks > kCountedColumn) return;
  work.common_bytes = std::max(0.0, steps / blocks - 1) * work.first_bytes;
  work.ring_bytes = ring_bytes;
  work.common_from = 0.18 + 0.03 * blocks;
  work.common_after = blocks <= kShortColumn ? 1 : 8;
}

void put_slice_runs(Work& work, const ProductWalk& walk, const std::vector<Run>& tiles, int slices,
                    int tokens, int sending, int more, size_t kind) {
  const int blocks = schedule::ceil_div(tokens, kPanel);
  for (const Run& tile : tiles) add(work.all, tile, static_cast<double>(walk.columns) / slices);
  put_runs(work, walk.clusters, false, [&](int cluster) {
    const RowPair pair(walk.fill, cluster / walk.columns, walk.rows, walk.diag, blocks, slices, sending);
    Run run{.steps = {}, .tiles = 1};
    run.steps.resize(kind + 1, 0.0);
    run.steps[kind] = pair.longest() + more;
    return run;
  });
}

Reread panel_reread(const Problem& p, const ProductWalk& walk, double columns, double depth) {
  const double panel = static_cast<double>(p.T) * columns * static_cast<double>(element_size(p.dtype));
  const double walks = std::max(0.0, depth / static_cast<double>(p.T) / walk.rows_at_once() - 1);
  return {panel, walks * panel * walk.columns / walk.section};
}

void put_copies(Work& work, const Problem& p, const Config& c) {
  const Shape shape = kernel_shape(p);
  if (!packing::packs_activations(shape, c)) return;
  const double bytes = 2 * packing::Slots(shape).count * static_cast<double>(p.B * p.H) *
                       static_cast<double>(p.T) * static_cast<double>(p.D) *
                       static_cast<double>(element_size(p.dtype));
  work.passes.push_back({"copy", 0, bytes, packing::unpacks(shape) ? 2 : 1});
}

void put_weight_stream_k(Work& work, const StreamK& s) {
  const int64_t tiles = int64_t{s.whole_tiles} + s.parts() + s.narrow + s.blocks;
  put_runs(work, s.blocks, few_tiles(tiles, s.blocks), [&](int block) {
    Run own{.steps = {0.0, 0.0}};
    StreamKWalk walk(s, block);
    for (WorkTile tile; walk.next(tile);) {
      own.steps[tile.narrow ? 1 : 0] += tile.end - tile.begin;
      own.tiles += tile.narrow ? 0.5 : 1;
    }
    return own;
  });
  const double depth = s.depth;
  work.all.steps = {s.wide * depth, s.narrow * depth};
  work.all.steps.resize(work.steps.size());  // tiles of one width have one kind
  work.all.tiles = s.whole_tiles + s.parts() + (s.narrow > 0 ? 0.5 * (s.narrow + s.sharers()) : 0);
}

// Loads that a thread of the reduction waits for one after the other, in its busiest block: `reduce` in
// templates/persistent/reduce.cuh, which divides items in the same way.
int loads_of_reduction(const StreamK& s, const Config& c, int grid) {
  constexpr int kRun = 2, kLoads = 4, kStart = 12;
  const auto least = [&](int parts, int tiles, bool narrow) {
    int best = 0;
    for (int log = -1; log <= 3; ++log) {
      const int64_t whole = int64_t{tiles} * (narrow ? kNarrowSums : s.wide_sums()) / 1024;
      const int64_t items = log < 0 ? whole / 2 : whole << log;
      const int loads = log < 0 ? parts * kRun : schedule::ceil_div(parts, 1 << log),
                at_once = log < 0 || narrow ? kLoads : weight::wide_loads(c);
      const auto cost = static_cast<int>((items + grid - 1) / grid) *
                        (schedule::ceil_div(loads, at_once) * at_once + kStart);
      if (log < 0 || cost < best) best = cost;
    }
    return best;
  };
  int loads = 0;
  if (s.wide > s.whole_tiles) loads += least(s.split, s.wide - s.whole_tiles, false);
  if (s.narrow > 0) loads += least(s.sharers() / s.narrow, s.narrow, true);
  return loads;
}

// The same where parts hold whole batches: templates/persistent/stacked.cuh. Items outside the triangle load nothing.
int loads_of_stacks(const StreamK& s, const Config& c, int tokens, int batches, int grid) {
  constexpr int kStart = 12;
  const int each = schedule::ceil_div(s.split * weight::kConsumers * batches, weight::kStackedRuns),
            at_once = weight::stacked_loads(c, batches);
  const int groups = schedule::ceil_div(tokens, weight::kStackedLanes * weight::stacked_vec(tokens));
  const int64_t items = int64_t{s.wide} * schedule::ceil_div(tokens * (groups + 1), 2);
  return static_cast<int>((items + grid - 1) / grid) * (schedule::ceil_div(each, at_once) * at_once + kStart);
}

// The same of a Toeplitz matrix's diagonals: loads of the busiest lane of the longest one, which has every so manyth row of 64 and in
// each what one tile or two left there. Tiles in parts are the last ones, and the lanes that rows leave share a tile's parts.
int loads_of_diagonals(const StreamK& s, int tokens, int grid) {
  constexpr int kLoads = 4;
  constexpr double kTiles = 1.5;
  constexpr int kLanes = schedule::kReduceThreads / schedule::kReduceDiagonals;
  const int rows = schedule::ceil_div(tokens, kPanel);
  int lanes = kLanes;
  while (lanes > rows) lanes /= 2;
  // Rows of tiles that have one in parts: the last ones of the triangle, which have the most of them.
  const double cut = s.whole_tiles > 0 ? s.wide - s.whole_tiles : s.wide + s.narrow,
               share = std::min(1.0, std::ceil(cut * s.rows / std::max(1, s.wide + s.narrow)) / s.rows);
  const auto in_parts = static_cast<int>(std::ceil(share * rows / lanes)),
             whole = schedule::ceil_div(rows, lanes) - in_parts,
             parts = schedule::ceil_div(schedule::ceil_div(s.split, kLanes / lanes), kLoads) * kLoads;
  const int64_t items = int64_t{s.copies} * schedule::ceil_div(tokens, schedule::kReduceDiagonals);
  return static_cast<int>((items + grid - 1) / grid) *
         static_cast<int>(std::ceil(kTiles * (whole * kLoads + in_parts * parts)));
}

// Of gram's tiles, the share of those around the diagonal, of a launch's `tiles`: their rows of A are among B's, and loaded once where B
// is A (kFindsRows, templates/persistent/grad_weight.cuh), as callers mostly have it.
double own_share(const Problem& p, const Config& c, int64_t tiles) {
  if (p.op != Op::kGram || (c.cluster > 1 && !weight::slices(c))) return 0;
  const auto rows = static_cast<double>(p.H) * std::ceil(static_cast<double>(p.T) / c.tile_m);
  return std::min(1.0, rows / static_cast<double>(std::max<int64_t>(1, tiles)));
}

// grad_weight by slices: a cluster for every tile. Where not all of them run at the same time with one block on an SM,
// some wait for their turn, or two blocks share an SM where both fit. Narrow tiles are 64 x 64.
Work sliced_weight_work(const Problem& p, const Target& target, const Config& c) {
  constexpr int64_t kRegisters = 64;  // of a thread, with sums of 64 x 64
  const StreamK s = weight_stream_k(p, c, c.cluster);
  const int clusters = std::max(1, weight::sliced_tiles(c, s)), at_once = clusters_at_once(target, c.cluster);
  const auto fit =
      static_cast<int>(target.shared_per_sm / (weight::shared_bytes(c) + target.reserved_shared_per_block));
  const bool beside = fit > 1;
  const double all = clusters <= fit * at_once
                         ? static_cast<double>(clusters) / at_once
                         : static_cast<double>(fit * schedule::ceil_div(clusters, fit * at_once));
  const bool alone = c.cluster == 1, split_lines = activations_split_lines(p, c);
  // Blocks alone take in as much as their SM does: the step of an SM with two of them is what counts. 98 bytes a ns of whole lines,
  // where others take in 78, and 117 of tiles of 64 x 192 (docs/experiments/wgmma_sm90-grad_weight.md).
  const double alone_intake = c.tile_m == kPanel && c.tile_n == weight::kThreePanels ? 0.67 : 0.8;
  const double turns = alone ? std::ceil(all) : std::max(1.0, all);
  const double steps = static_cast<double>(s.depth) / c.cluster, depth = multiplied_depth(p, c),
               fed = 128.0 * (c.tile_m * (1 - own_share(p, c, clusters)) + c.tile_n);
  Work work{
      .rates = p.op == Op::kGram ? llvm::StringLiteral("gram_slices") : llvm::StringLiteral("ring_slices"),
      .unit = Unit::kTensor16,
      .stages = c.stages,
      .warpgroups = weight::consumers(c),
      .threads = weight::threads(c),
      .registers = beside ? kRegisters : 0,
      .shared_bytes = weight::shared_bytes(c),
      .cluster = c.cluster};
  work.steps.push_back({.products = turns * c.tile_m * c.tile_n * depth,
                        .feed_bytes = turns * fed * (alone && !split_lines ? alone_intake : 1),
                        .split_bytes = split_lines ? turns * fed : 0,
                        .loads = beside ? 1 : turns});
  // A block without a cluster sends nothing and waits for none; sums of 128 x 128 are sent once the whole cluster's products are
  // done (docs/experiments/wgmma_sm90-grad_weight.md).
  constexpr double kAlone = 0.5, kBehind = 1.75;
  work.tile.elements = (alone ? kAlone : weight::reuses_ring(c) ? kBehind : 1) * c.tile_m * c.tile_n;
  work.tile.mirrored = p.epilogue.mirror && !alone;
  const double tiles = !beside ? turns : turns > 1 ? 1.5 : 1;  // two ends overlap by half
  put_runs(work, clusters, false, [&](int) { return Run{.steps = {steps}, .tiles = tiles}; });
  work.all.steps = {clusters * steps};
  work.all.tiles = clusters * tiles;
  work.busy = std::min(1.0, static_cast<double>(clusters) * c.cluster / target.sms);
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = s.depth * (fed * (clusters - s.narrow) + 128.0 * 128 * s.narrow);
  put_copies(work, p, c);
  return work;
}

// Stores of dW tap by tap (write_pair, templates/persistent/weight_store.cuh): four lanes write an element of
// every other column of a row, 2 * K elements apart, into as many sectors of 32 bytes as these reach.
double tap_sector_writes(const Problem& p) {
  const double elements =
      static_cast<double>(p.H * p.K) * static_cast<double>(p.T) * static_cast<double>(p.T) / 2;
  const double apart = 2.0 * static_cast<double>(p.K) * static_cast<double>(element_size(p.wdtype));
  return elements * std::min(1.0, apart / 32);
}

// Tokens of whole tiles of 128.
double tile_tokens(const Problem& p) { return std::ceil(static_cast<double>(p.T) / 128) * 128; }
// Of a k block whose rows threads bring (templates/persistent/weight_rows.cuh): pieces land, 64 bytes a cycle, are read and are written
// where they are shifted, and the products read both operands. Tokens that a tile has no row of move nothing.
double rows_shared_bytes(const Problem& p, const Config& c, double columns) {
  // 1748 cycles of 128 x 128 for 1504 (one H200, 19,1024,2165, 2026-11-29). Of batches of at most 64 tokens more, and neither shared
  // memory, DRAM nor instructions bind there: by hand, on 1024,64,71, 200,64,260, 128,64,241 and 1024,32,331 by both tiles.
  const double meetings = p.T <= kPanel ? 2.4 : 1.16;
  const bool stacks = weight::stacks(c);
  const double tokens = std::ceil(static_cast<double>(p.T) / 32) * 32,
               rows = stacks ? 4 * tokens * weight::stacked(kernel_shape(p), c)
                             : tokens / tile_tokens(p) * (c.tile_m + columns),
               pieces = weight::row_pieces() * weight::piece_bytes(),
               products = weight::kConsumers * 128.0 * (kPanel + (stacks ? kPanel : columns));
  return meetings * (rows * (3 * pieces + 128) + products) * multiplied_depth(p, c) / kPanel;
}

// What a tile of its kind takes in for each element of k, multiplies and leaves.
struct WeightTile {
  double rows, columns;  // of products
  double fed;            // rows of operands that enter one SM
  double read;           // and those that leave the L2 for all blocks that share them
  double elements;       // of dW
  double sums;           // of a part
  double moved;          // bytes through shared memory, of a k block whose rows threads bring
};

WeightTile weight_tile(const Problem& p, const Config& c, const StreamK& s, double columns) {
  const double tokens = static_cast<double>(p.T), rows = c.tile_m;
  const int sharers = std::max(1, c.cluster);
  // Blocks of a cluster share x, those of a square both operands: this is for one of them.
  WeightTile tile{.rows = rows,
                  .columns = columns,
                  .fed = rows + columns / sharers,
                  .read = 128.0 * sharers + c.tile_n,
                  .elements = rows * c.tile_n,
                  .sums = static_cast<double>(s.wide_sums()),
                  .moved = weight::brings_rows(c) ? rows_shared_bytes(p, c, columns) : 0};
  if (weight::stacks(c)) {  // each warpgroup multiplies its own batches, as many as a panel holds
    const Shape shape = kernel_shape(p);
    const double stacked = tokens * weight::stacked(shape, c);
    tile.columns = 2.0 * c.tile_n;
    tile.fed = 4.0 * (weight::contiguous_tokens(shape, c) ? kPanel : stacked);  // zeros land, too
    tile.read = 4.0 * stacked;
    tile.elements *= weight::kConsumers;
    tile.sums = 2.0 * stacked * tokens;
  } else if (weight::holds_triangle(c)) {
    tile.columns = (columns + kPanel) / 2;
    tile.fed = tile.read = (p.op == Op::kGram ? 1.0 : 2.0) * tokens;
    tile.elements = rows * (c.tile_n + kPanel) / 2;
    tile.sums = tokens * (tokens + 8) / 2;
  } else if (weight::squares(c)) {
    tile.fed = (rows + columns) / 2;
    tile.read = 512;
  } else if (weight::shares_triangle(c)) {
    tile.rows = 128;
    tile.fed = 512.0 / 6;
    tile.read = 512.0 / 6 * sharers;
    tile.elements = 128.0 * c.tile_n;
  } else if (weight::brings_rows(c)) {
    tile.sums *= std::pow(tokens / tile_tokens(p), 2);
  }
  return tile;
}

Work shared_weight_work(const Problem& p, const Target& target, const Config& c, int grid) {
  if (weight::slices(c)) return sliced_weight_work(p, target, c);
  const bool stacks = weight::stacks(c), triangle = weight::holds_triangle(c);
  const int sharers = std::max(1, c.cluster);
  const StreamK s = weight_stream_k(p, c, grid);
  WeightTile wide = weight_tile(p, c, s, c.tile_n), narrow = weight_tile(p, c, s, 128);
  if (const double own = triangle ? 0 : own_share(p, c, int64_t{s.wide} + s.narrow); own > 0)
    for (WeightTile* tile : {&wide, &narrow}) {
      tile->fed -= own * tile->rows;
      tile->read -= own * tile->rows;
    }
  const double depth = multiplied_depth(p, c);
  Work work{
      .rates = p.op == Op::kGram ? llvm::StringLiteral("ring_gram") : llvm::StringLiteral("ring_weight"),
      .unit = p.dtype == DType::kF32 ? Unit::kTensorTf32 : Unit::kTensor16,
      .stages = c.stages,
      .cluster = sharers};
  // Blocks that share loads win more where no dW leaves, or both of its triangles do: of a Toeplitz matrix's 52 configs at 16,512,1024 to
  // 4,4096,1024 theirs took 0.8 to 0.9 of what was predicted without this, of gram's ten at 1536 to 8192 rows squares 0.71 to 0.92 and
  // pairs 0.85 to 0.93 (H100s, driver 580.159.04, NVRTC 13.0.88, 2026-11-27).
  const bool shares_both = weight::squares(c) || weight::shares_triangle(c);
  const double shared = sharers == 1        ? 1
                        : s.diagonals > 0   ? 0.85
                        : p.op != Op::kGram ? 1
                        : shares_both       ? 0.77
                                            : 0.9;
  const bool split_lines = activations_split_lines(p, c);
  for (const WeightTile& tile : {wide, narrow}) {
    const double fed = shared * tile.fed;
    work.steps.push_back({.products = shared * tile.rows * tile.columns * depth,
                          .feed_bytes = 128 * fed,
                          .split_bytes = split_lines ? 128 * fed : 0,
                          .shifts = p.K > 1,
                          .shared_bytes = tile.moved});
  }
  work.tile.elements = wide.elements;
  // One warpgroup stores while the other one multiplies: 0.7 us less a tile (H200, 1024 x 1024, 8 matrices, 2026-11-27).
  if (weight::takes_turns(c)) work.tile.elements /= 2;
  work.tile.mirrored = p.epilogue.mirror && s.whole_tiles > 0;
  put_weight_stream_k(work, s);
  if (s.whole_tiles == 0 && s.narrow == 0)
    work.busy = std::min(1.0, static_cast<double>(std::min(s.parts(), s.blocks)) * sharers / target.sms);
  // Half of the SMs read as fast as all of them where every byte enters one alone: 128,160,1024 in 66 parts 28.1 us, in 132 29.5 (H200,
  // 2026-11-29).
  if (triangle) work.busy = std::min(1.0, 1.4 * work.busy);

  double parts = static_cast<double>(s.parts()) * wide.sums * 4;
  if (s.narrow > 0) parts += static_cast<double>(s.sharers() + s.narrow) * kNarrowSums * 4;
  const bool diagonals = s.diagonals > 0;
  const double left = s.whole_tiles + s.parts() + (s.narrow > 0 ? s.sharers() + s.narrow : 0);  // work tiles
  if (diagonals) parts = left * s.diagonals * 4;
  // Parts are written beside the product, mostly into the L2.
  work.memory_bytes = count_work(p).min_bytes + parts / 2;
  work.l2_bytes = s.depth * 128.0 * (s.wide * wide.read + s.narrow * 256.0);
  if (p.K > 1) work.sector_writes = tap_sector_writes(p);
  const int reduce_grid = weight::reduce_blocks(c) * grid;
  if (leaves_parts(c, s))
    work.passes.push_back({.rates = diagonals                     ? llvm::StringLiteral("add_diagonals")
                                    : weight::admits_reduction(c) ? llvm::StringLiteral("add_parts")
                                                                  : llvm::StringLiteral("add_parts_after"),
                           .bytes = parts,
                           .parts = diagonals ? loads_of_diagonals(s, static_cast<int>(p.T), reduce_grid)
                                    : stacks
                                        ? loads_of_stacks(s, c, static_cast<int>(p.T),
                                                          weight::stacked(kernel_shape(p), c), reduce_grid)
                                        : loads_of_reduction(s, c, reduce_grid)});
  put_copies(work, p, c);
  return work;
}

}  // namespace trigen
