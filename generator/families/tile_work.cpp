// Work of the tile families' blocks, by the schedule that their kernels run (templates/schedule.h).
#include <algorithm>
#include <cmath>

#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/work.h"

namespace trigen {
namespace {

using schedule::Range;

double ceil_div(double a, double b) { return std::ceil(a / b); }

struct Operands {
  double a_bytes, b_bytes;  // of an element in global memory
  double c_bytes;           // of an element of the output, with what is read and written beside it
  double columns;           // of the product
};

Operands operands_of(const Problem& p, const Config& c) {
  const auto activation = static_cast<double>(element_size(p.dtype)),
             weight = static_cast<double>(element_size(p.wdtype));
  const Epilogue& e = p.epilogue;
  if (makes_weights(p.op))
    return {activation, activation,
            schedule::adds_parts(kernel_shape(p), c) ? 4 : weight * (1 + e.accumulate),
            static_cast<double>(p.T * p.K)};
  return {weight, activation, activation * (1 + e.pre + e.gate + e.residual), static_cast<double>(p.B * p.D)};
}

// forward and grad_input: column sections, each longest row first; heads one after the other.
void put_product(Work& work, const Problem& p, const Config& c, const Operands& o, int sms) {
  const schedule::Sizes z = kernel_sizes(p);
  const int rows = schedule::ceil_div(z.T, c.tile_m);
  const auto columns = static_cast<int64_t>(ceil_div(o.columns, c.tile_n));
  const int64_t width = c.raster > 0 ? std::min<int64_t>(c.raster, columns) : columns;
  const int64_t sections = (columns + width - 1) / width;
  double depth = 0, steps = 0;
  work.runs.reserve(static_cast<size_t>(rows));
  for (int rank = 0; rank < rows; ++rank) {
    const int row = schedule::long_rows_last(p.op, p.fill) ? rows - 1 - rank : rank;
    const Range k = schedule::row_tile_depth(p.op, p.fill, z, row, c.tile_m);
    const double own = schedule::ceil_div(k.end - k.begin, c.tile_k);
    depth += k.end - k.begin;
    steps += own;
    work.runs.push_back({{own}, 1, width});
  }
  work.repeats = sections * p.H;
  work.all.count = rows * columns * p.H;
  work.all.steps = {steps * static_cast<double>(columns * p.H)};
  work.all.tiles = work.grid = static_cast<double>(work.all.count);

  const double rows_at_once = std::max(1.0, static_cast<double>(sms) / static_cast<double>(width));
  std::vector<Run> tiles = work.runs;
  for (Run& tile : tiles) tile.count = 1;
  work.first = first_rows(std::move(tiles), rows_at_once, static_cast<double>(columns * p.H));
  work.first_bytes = static_cast<double>(p.T) * o.columns * static_cast<double>(p.H) * o.b_bytes;

  // Every block loads its A and B tiles through the L2.
  const double tile_bytes = c.tile_k * (c.tile_m * o.a_bytes + c.tile_n * o.b_bytes);
  const double output = static_cast<double>(p.T) * o.columns * static_cast<double>(p.H) * o.c_bytes;
  work.l2_bytes = work.all.steps[0] * tile_bytes + output;

  // Again what the L2 cannot keep: W for every section, the panel of a section for every wave.
  const double weights = p.w == WeightForm::kToeplitz ? 0 : depth * c.tile_m * o.a_bytes;
  const double panel = static_cast<double>(p.T) * static_cast<double>(width) * c.tile_n * o.b_bytes;
  const double panel_walks = std::max(0.0, static_cast<double>(rows) / 2 / rows_at_once - 1);
  work.rereads = {{weights + panel, weights * static_cast<double>((sections - 1) * p.H)},
                  {panel, panel_walks * panel * static_cast<double>(sections * p.H)}};
}

// grad_weight: equal blocks, groups of `raster` row tiles; the parts of k one after the other.
void put_weight(Work& work, const Problem& p, const Config& c, const Operands& o, int sms) {
  const Shape shape = kernel_shape(p);
  const schedule::Sizes z = kernel_sizes(p);
  const int rows = schedule::ceil_div(z.T, c.tile_m), splits = std::max(1, c.split_k);
  int64_t tiles = 0;
  for (int row = 0; row < rows; ++row) {
    const Range own = schedule::row_tile_columns(p.fill, z, row, c.tile_m, c.tile_n,
                                                 schedule::every_tile(shape, c), shape.bias);
    tiles += own.end - own.begin;
  }
  const int64_t blocks = tiles * p.H;
  work.all.count = blocks * splits;
  work.all.steps = {0.0};
  for (int split = 0; split < splits; ++split) {
    const Range k = schedule::split_depth(c, z.B * z.D, split);
    const double steps = schedule::ceil_div(k.end - k.begin, c.tile_k);
    if (work.runs.empty() || work.runs.back().steps[0] != steps)
      work.runs.push_back({{steps}, 1, blocks});
    else
      work.runs.back().count += blocks;
    work.all.steps[0] += steps * static_cast<double>(blocks);
  }
  work.all.tiles = static_cast<double>(work.all.count);
  work.grid = static_cast<double>(schedule::tile_count(shape, c, z)) * static_cast<double>(splits * p.H);

  const double tile_bytes = c.tile_k * (c.tile_m * o.a_bytes + c.tile_n * o.b_bytes);
  work.l2_bytes = work.all.steps[0] * tile_bytes + work.all.tiles * c.tile_m * c.tile_n * o.c_bytes;

  // The blocks of a wave walk the depth together, so they read their rows of dy and x once. A wave that
  // holds a rectangle of `raster` rows needs tiles / raster columns.
  const double depth = static_cast<double>(p.B * p.D);
  const double activation = static_cast<double>(p.T) * depth * o.b_bytes * static_cast<double>(p.H);
  const double group = schedule::group_rows(z, c), all = static_cast<double>(tiles);
  const double wave = std::max(1.0, std::min(static_cast<double>(sms) / splits, all));
  const double wave_rows = std::min(group, wave), wave_columns = std::max(1.0, wave / wave_rows);
  const double row_bytes = c.tile_m * depth * o.a_bytes,
               column_bytes = c.tile_n / static_cast<double>(p.K) * depth * o.b_bytes;
  const double streamed =
      all / wave * (wave_rows * row_bytes + wave_columns * column_bytes) * static_cast<double>(p.H);
  work.rereads = {{2 * activation, std::max(0.0, streamed - 2 * activation)}};

  if (schedule::sums_diagonals(shape)) {  // a thread has an eighth of a diagonal's parts
    const double sums = static_cast<double>(tiles) * schedule::tile_diagonals(c) * static_cast<double>(p.H);
    work.passes.push_back({.rates = "add_splits",
                           .bytes = sums * 4 * splits,
                           .memory_bytes = 0,
                           .parts = schedule::ceil_div(2 * rows * splits * schedule::kReduceDiagonals,
                                                       schedule::kReduceThreads)});
  } else if (splits > 1) {  // the second kernel reads every part and writes dW
    const double T = static_cast<double>(p.T),
                 width = p.w == WeightForm::kBand ? static_cast<double>(p.width) : T;
    const double elements = (T * width - width * width / 2) * static_cast<double>(p.K * p.H);
    // The busiest thread's turns for a block's row: its vectors, and the bias.
    const int row = z.width > 0 ? z.width : z.T * z.K;
    const int turns = schedule::ceil_div(row, schedule::kReduceThreads * std::max(1, c.vec_c)) + shape.bias;
    work.passes.push_back({.rates = "add_splits",
                           .bytes = elements * 4 * splits,
                           .memory_bytes = elements * static_cast<double>(element_size(p.wdtype)),
                           .parts = turns * splits});
  }
}

// Output of heads that begin inside a piece of 16 bytes: sectors that no instruction writes whole (element by element in two), on
// Hopper: 16.5, 30.8 and 104 us where 12.8, 22.1 and 39.4 were predicted without (one H200, 2026-11-29).
double split_sector_writes(const Problem& p, const Target& target, const Config& c) {
  const bool product = p.op == Op::kForward || p.op == Op::kGradInput;
  if (!product || !target.wgmma || p.H == 1 || p.dtype == DType::kF32 || p.layout != Layout::kBTD ||
      c.vec_c * element_size(p.dtype) >= 16)
    return 0;
  return kWritesOfSector * touched_sectors(p) * (c.vec_c == 1 ? 2 : 1);
}

llvm::StringLiteral rates_of_loop(bool asynchronous, bool parts) {
  if (asynchronous) return parts ? llvm::StringLiteral("copied_parts") : llvm::StringLiteral("copied");
  return parts ? llvm::StringLiteral("tiles_parts") : llvm::StringLiteral("tiles");
}

}  // namespace

// Registers of a thread, as NVRTC 12.9 reports for the families; within 10 percent over their tiles.
int64_t TileFamily::estimated_registers(const Problem& p, const Config& c, const Step& step) const {
  const double threads = 32.0 * c.warps_m * c.warps_n;
  const double sums = static_cast<double>(c.tile_m) * c.tile_n / threads;
  const auto staged = [](const TileLoad& access) {
    return access.staged ? access.elements * access.element_bytes / 4 : 0;
  };
  const double fragments = fragment_registers(p, c);
  double rest = 48;  // addresses and such
  if (unit(p) == Unit::kTensorTf32) rest += 20;
  if (p.K > 1) rest += 6;
  if (makes_weights(p.op) && p.epilogue.bias) rest += 16;
  rest += 3 * (p.epilogue.pre + p.epilogue.gate + p.epilogue.residual);
  return static_cast<int64_t>(sums + (staged(step.a) + staged(step.b)) / threads + fragments + rest);
}

Unit TileFamily::unit(const Problem& p) const {
  return p.dtype == DType::kF32 ? Unit::kTensorTf32 : Unit::kTensor16;
}

Step TileFamily::step_of(const Problem& p, const Config& c) const {
  const Operands o = operands_of(p, c);
  const bool fma = unit(p) == Unit::kFp32;
  const double warp_m = static_cast<double>(c.tile_m) / std::max(1, c.warps_m),
               warp_n = static_cast<double>(c.tile_n) / std::max(1, c.warps_n);
  const double stored_bytes = fma ? 4 : o.b_bytes;  // of an element in shared memory
  Step step{.products = static_cast<double>(c.tile_m) * c.tile_n * c.tile_k};
  // Fragments of every warp, and the store of the tile.
  step.shared_bytes = c.tile_k * stored_bytes *
                      (c.warps_m * c.warps_n * (warp_m + warp_n) + static_cast<double>(c.tile_m + c.tile_n));
  // Per step of k a thread issues tm*tn multiply-adds and (tm+tn)/4 shared loads of 16 bytes, two issue
  // slots each.
  const double tm = warp_m / 8, tn = warp_n / 4;
  if (fma) step.issue_share = tm * tn / (tm * tn + 0.5 * (tm + tn) + 3);
  // Through registers instead of cp.async: the family has none, the vector is too short for it, the dtype
  // changes, or taps are shifted or spread.
  const bool converted = o.a_bytes != o.b_bytes;
  const auto through_registers = [&](int vec, double bytes) { return !asynchronous() || vec * bytes < 4; };
  step.a = {static_cast<double>(c.tile_m) * c.tile_k, c.vec_a, o.a_bytes,
            through_registers(c.vec_a, o.a_bytes) || converted || spreads_taps(p), converted};
  step.a.spread = spreads_taps(p);
  step.b = {static_cast<double>(c.tile_n) * c.tile_k, c.vec_b, o.b_bytes,
            through_registers(c.vec_b, o.b_bytes) || cuts_vectors(p, c.vec_b), false};
  if (cuts_vectors(p, c.vec_b)) {
    step.b.pieces = 2;
    step.b.decoded = !makes_weights(p.op);
  }
  return step;
}

Work TileFamily::work(const Problem& p, const Target& target, const Config& c, int sms) const {
  const Operands o = operands_of(p, c);
  const bool weight = makes_weights(p.op);
  const Step step = step_of(p, c);
  Work work{.loop = Loop::kInterleaved,
            .rates = rates_of_loop(asynchronous(), weight && c.split_k > 1),
            .unit = unit(p),
            .steps = {step},
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n,
                     .bytes = o.c_bytes,
                     .vector = c.vec_c,
                     .act = p.epilogue.act,
                     .exchanged = p.epilogue.pre + p.epilogue.gate + p.epilogue.residual,
                     .mirrored = p.epilogue.mirror && c.split_k == 1},
            .stages = c.stages,
            .asynchronous = asynchronous(),
            .threads = 32 * std::max(1, c.warps_m * c.warps_n),
            .registers = estimated_registers(p, c, step),
            .shared_bytes = shared_bytes(p, c),
            .blocks = c.blocks};
  if (rounds(p, c)) work.rates = "tiles_rounded";
  work.memory_bytes = weight ? count_work(p).min_bytes : memory_of_product(p);
  if (weight)
    put_weight(work, p, c, o, sms);
  else
    put_product(work, p, c, o, sms);
  work.sector_writes = split_sector_writes(p, target, c);
  // Skipped steps of the tile on the diagonal, row by row of warps.
  const int turns = c.tile_m / std::max(1, c.warps_m) / c.tile_k;  // whole ones
  if (skips(p, c))
    for (int above = 1; above < c.warps_m; ++above)
      work.skipping.push_back({above * c.warps_n, work.all.tiles * turns});
  return work;
}

}  // namespace trigen
