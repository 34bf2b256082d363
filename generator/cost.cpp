// docs/cost-model.md explains the model and gives the sources of its constants.
#include "generator/cost.h"

#include <algorithm>
#include <cmath>

#include "generator/decode_cost.h"
#include "generator/families/tile_family.h"
#include "generator/limits.h"
#include "generator/makespan.h"
#include "generator/wgmma_cost.h"
#include "generator/wgmma_split_cost.h"
#include "generator/wgmma_taps_cost.h"
#include "llvm/ADT/SmallVector.h"

namespace trigen {
namespace {

// A step's loads under load, from the first request to the last byte in shared memory: by cp.async and
// through registers. Fitted to what an H200 took (tests/data/recordings).
constexpr double kCopyCycles = 2300, kStagedCycles = 1500;
// Where a thread loads single elements through registers: as many at a time, and what each such round takes.
// mma_sm80 on an H200: 105 us for 16,512,1025, 249 us for 64,511,512 of layout bdt.
constexpr double kSinglesAtOnce = 8, kSinglesCycles = 1500;
constexpr double kSyncCycles = 30;            // one barrier per step
constexpr double kBlockCycles = 1800;         // start of a block and its first loads
constexpr double kSharedBytesPerCycle = 128;  // of one SM
constexpr double kLocalBytesPerCycle = 64;    // L1, for spills
// Of the loop, for any spill. More than the traffic of a few spills costs: a choice that nobody has measured
// should not spill.
constexpr double kSpillPenalty = 0.2;
constexpr double kLanesPerCycle = 32;         // load and store units of one SM
constexpr double kInstructionsPerAccess = 6;  // address, predicate, access, shared store
constexpr double kIssuesPerCycle = 4;         // schedulers of one SM
constexpr double kDramEfficiency = 0.92;
constexpr double kPartsEfficiency =
    0.6;  // parts of grad_weight read pieces of 128 bytes, far from each other
constexpr double kMmaSyncPerCycle = 1230;  // mma.sync multiply-adds of one SM on sm_90, 16-bit
constexpr double kUsableL2 = 0.7;          // the share of the L2 that a panel can keep

double ceil_div(double a, double b) { return std::ceil(a / b); }

struct Model {
  const Problem& p;
  const Config& c;
  const Target& target;
  const DeviceModel& device;
  llvm::StringRef family;
  const Counts* counts = nullptr;  // null: estimates

  bool simt() const { return family == "simt"; }
  int warps() const { return std::max(1, c.warps_m * c.warps_n); }
  int threads() const { return 32 * warps(); }
  double warp_m() const { return static_cast<double>(c.tile_m) / std::max(1, c.warps_m); }
  double warp_n() const { return static_cast<double>(c.tile_n) / std::max(1, c.warps_n); }
  bool weight() const { return p.op == Op::kGradWeight; }
  // Bytes of an element of the operands in global memory.
  double a_bytes() const { return static_cast<double>(element_size(weight() ? p.dtype : p.wdtype)); }
  double b_bytes() const { return static_cast<double>(element_size(p.dtype)); }
  double c_bytes() const {
    if (weight())
      return c.split_k > 1 ? 4 : static_cast<double>(element_size(p.wdtype)) * (1 + p.epilogue.accumulate);
    return b_bytes() * (1 + p.epilogue.pre + p.epilogue.gate + p.epilogue.residual);
  }
  double math_bytes() const { return simt() ? 4 : b_bytes(); }  // of an element in shared memory
  double columns() const { return static_cast<double>(weight() ? p.T * p.K : p.B * p.D); }

  // Through registers instead of cp.async: the family has none, the vector is too short for it, or the dtype
  // changes.
  bool copies() const { return target.cp_async && family != "mma_sm70" && family != "mma_sm75" && !simt(); }
  bool a_staged() const { return !copies() || c.vec_a * a_bytes() < 4 || a_bytes() != b_bytes(); }
  bool b_staged() const { return !copies() || c.vec_b * b_bytes() < 4; }

  // Multiply-adds per cycle of one SM at the family's full rate.
  double peak_per_cycle() const {
    const auto per_cycle = [&](double flops) { return flops / (2 * target.sms * target.clock_hz); };
    if (simt()) return per_cycle(target.fp32_flops);
    const bool tf32 = p.dtype == DType::kF32;
    double rate = per_cycle(tf32 ? target.tf32_flops : target.mma16_flops);
    const bool mma_sync = !family.startswith("wgmma");
    if (mma_sync && target.compute_capability >= 90 && target.compute_capability < 120)
      rate = std::min(rate, tf32 ? kMmaSyncPerCycle / 2 : kMmaSyncPerCycle);
    // m8n8k4 is lowered to FFMA and shuffles after sm_70.
    if (family == "mma_sm70" && target.compute_capability != 70) rate = per_cycle(target.fp32_flops) / 2;
    return std::max(rate, 1.0);
  }

  int estimated_registers() const {
    const double sums = static_cast<double>(c.tile_m) * c.tile_n / threads();
    const double staging =
        ((a_staged() ? c.tile_m * a_bytes() : 0) + (b_staged() ? c.tile_n * b_bytes() : 0)) * c.tile_k / 4 /
        threads();
    // Two sets of fragments, each for one step of the instruction.
    const double fragments = simt() ? 2 * (warp_m() / 8 + warp_n() / 4) : (warp_m() + warp_n()) * 0.5;
    // Addresses and the rest, as NVRTC 12.9 reports for the families; within 10 percent over their tiles.
    double rest = 48;
    if (p.dtype == DType::kF32 && !simt()) rest += 20;
    if (p.K > 1) rest += 6;
    if (weight() && p.epilogue.bias) rest += 16;
    rest += 3 * (p.epilogue.pre + p.epilogue.gate + p.epilogue.residual);
    return static_cast<int>(sums + staging + fragments + rest);
  }
};

struct Occupancy {
  int blocks = 1;          // on one SM
  double spill_bytes = 0;  // per thread
};

Occupancy occupancy(const Model& m, const Candidate& candidate, const std::optional<Resources>& resources) {
  const int64_t most = m.target.registers_per_sm / m.threads() / std::max(1, m.c.blocks);
  const int64_t limit = std::clamp<int64_t>(most / 8 * 8, 16, 255);
  Occupancy o;
  int64_t registers;
  if (resources && resources->registers > 0) {
    registers = resources->registers;
    o.spill_bytes = resources->spill_bytes;
  } else {
    registers = m.estimated_registers();
    // Close to the limit the compiler may or may not spill: a guess that keeps such configs behind safe ones.
    constexpr int64_t kSafe = 8;
    o.spill_bytes = static_cast<double>(std::max<int64_t>(0, registers - (limit - kSafe))) * 16;
    registers = std::min(registers, limit);
  }
  registers = (registers + 7) / 8 * 8;  // registers are given to warps in units of 256
  int64_t shared = candidate.family->shared_bytes(candidate.problem, candidate.config);
  if (resources) shared += resources->static_shared;
  o.blocks = resident_blocks(m.target, registers, m.threads(), shared);
  return o;
}

// Cycles that one step of tile_k takes when `blocks` blocks share an SM.
double step_cycles(const Model& m, int blocks, double spill_bytes) {
  const Config& c = m.c;
  const double products = static_cast<double>(c.tile_m) * c.tile_n * c.tile_k;
  const double resident = static_cast<double>(blocks) * m.warps();
  double rate = m.peak_per_cycle() * std::min(1.0, resident / kIssuesPerCycle);
  double shared = 0;
  if (m.simt()) {
    // Per step of k a thread issues tm*tn multiply-adds and (tm+tn)/4 shared loads of 16 bytes, two issue
    // slots each.
    const double tm = m.warp_m() / 8, tn = m.warp_n() / 4;
    rate *= tm * tn / (tm * tn + 0.5 * (tm + tn) + 3);
    shared = m.warps() * c.tile_k * 4 * (m.warp_m() + m.warp_n()) / kSharedBytesPerCycle;
  } else {
    rate *= 0.97;
    shared = m.warps() * c.tile_k * m.math_bytes() * (m.warp_m() + m.warp_n()) / kSharedBytesPerCycle;
  }
  double compute = products / rate;
  shared += c.tile_k * m.math_bytes() * (c.tile_m + c.tile_n) / kSharedBytesPerCycle;
  // Global loads: instructions of every access, its lanes and its bytes.
  double issue_slots = 0, load = 0;
  const auto access = [&](double elements, int vec, double bytes) {
    const double per_access = std::max(1, vec), accesses = elements / per_access / 32;  // of a warp
    const bool packed = per_access * bytes < 4;  // no cp.async below 4 bytes: through registers
    issue_slots += accesses * kInstructionsPerAccess * (packed ? 2 : 1);
    load += std::max(accesses * 32 / kLanesPerCycle, elements * bytes / kSharedBytesPerCycle);
  };
  const double a = static_cast<double>(c.tile_m) * c.tile_k, b = static_cast<double>(c.tile_n) * c.tile_k;
  access(a, c.vec_a, m.a_bytes());
  access(b, c.vec_b, m.b_bytes());
  if (m.a_bytes() != m.b_bytes())
    issue_slots += a * 2 / 32;  // conversion of f32 weights: two instructions an element
  // FFMA fills the issue slots itself; tensor instructions leave them free.
  if (m.simt())
    compute += issue_slots / kIssuesPerCycle;
  else
    load = std::max(load, issue_slots / kIssuesPerCycle);
  if (m.counts != nullptr) {
    const BlockCounts& step = m.counts->step;
    const double issue = step.instructions / kIssuesPerCycle;
    shared = step.shared_wavefronts;
    load = step.load_sectors * BlockCounts::kSectorBytes / kSharedBytesPerCycle;
    if (m.simt()) {
      compute = std::max(products / m.peak_per_cycle() / std::min(1.0, resident / kIssuesPerCycle), issue);
    } else {
      compute = step.matrix_flops / 2 / rate;
      load = std::max(load, issue);
    }
  }
  const double longest = std::max({compute, shared, load});
  // Half of the spills in the loop.
  const double spills =
      spill_bytes > 0 ? spill_bytes * m.threads() / kLocalBytesPerCycle / 2 + kSpillPenalty * longest : 0;
  const double hidden = longest + 0.15 * (compute + shared + load - longest) + spills;
  const double issue = hidden * (resident + 1) / resident;  // few warps leave gaps
  // Registers hold one tile on its way, shared memory stages - 1.
  const bool staged = m.a_staged() || m.b_staged();
  double latency = staged ? kStagedCycles : kCopyCycles / std::max(1, c.stages - 1);
  const auto rounds = [&](bool through_registers, double elements, int vec) {
    return through_registers && vec == 1 ? std::ceil(elements / m.threads() / kSinglesAtOnce) : 0;
  };
  if (m.copies())
    latency += kSinglesCycles * (rounds(m.a_staged(), a, c.vec_a) + rounds(m.b_staged(), b, c.vec_b));
  // A stage more hides a little more, even where the loads are hidden on average.
  return soft_max({blocks * issue + kSyncCycles, latency});
}

// Bytes between L1 and L2: whole sectors, of stores too (partly filled ones showed in an H200's times). A
// tile's steps across the diagonal load less of W than whole ones, which showed in no time.
double traffic(const BlockCounts& block) {
  return (std::max(0.0, block.load_sectors) + block.store_sectors) * BlockCounts::kSectorBytes;
}

// Cycles of a block outside its main loop: start, first loads, output.
double block_cycles(const Model& m) {
  const double elements = static_cast<double>(m.c.tile_m) * m.c.tile_n;
  const double per_cycle = m.target.l2_bytes_per_s / (m.target.sms * m.target.clock_hz);
  if (m.counts != nullptr) {
    const BlockCounts& tile = m.counts->tile;
    return kBlockCycles +
           std::max({traffic(tile) / per_cycle, tile.shared_wavefronts, tile.instructions / kIssuesPerCycle});
  }
  const double vec = std::max(1, m.c.vec_c);
  return kBlockCycles + std::max(elements * m.c_bytes() / per_cycle,
                                 elements / vec / kLanesPerCycle * kInstructionsPerAccess);
}

struct Schedule {
  llvm::SmallVector<BlockRun, 64> runs;  // seconds hold steps until they are known
  int64_t repeats = 1;
  double blocks = 0, steps = 0;
  double grid = 0;  // blocks with those that have nothing to do
  double dram_bytes = 0, l2_bytes = 0;
};

// forward and grad_input: column sections, each longest row first; heads one after the other.
Schedule product_schedule(const Model& m) {
  const Problem& p = m.p;
  const Config& c = m.c;
  const bool lower = (p.op == Op::kGradInput) != (p.fill == Fill::kLower);
  const int64_t diag = p.op == Op::kGradInput ? -p.diag : p.diag;
  const int64_t rows = (p.T + c.tile_m - 1) / c.tile_m;
  const int64_t columns = static_cast<int64_t>(ceil_div(m.columns(), c.tile_n));
  const int64_t width = c.raster > 0 ? std::min<int64_t>(c.raster, columns) : columns;
  const int64_t sections = (columns + width - 1) / width;

  Schedule s;
  double depth_sum = 0;
  s.runs.reserve(rows);
  for (int64_t rank = 0; rank < rows; ++rank) {
    // `lower` here means: rows get longer downwards.
    const int64_t row = rank;
    int64_t length;
    if (!lower) {
      const int64_t begin = std::clamp<int64_t>(row * c.tile_m + diag, 0, p.T);
      length = p.T - begin;
    } else {
      const int64_t last = std::min((rows - row) * c.tile_m, p.T) - 1;
      length = std::clamp<int64_t>(last + diag + 1, 0, p.T);
    }
    const double steps = ceil_div(static_cast<double>(length * p.K), c.tile_k);
    depth_sum += static_cast<double>(length * p.K);
    s.runs.push_back({steps, width});
    s.steps += steps * static_cast<double>(columns * p.H);
  }
  s.repeats = sections * p.H;
  s.blocks = s.grid = static_cast<double>(rows * columns * p.H);

  // Every block loads its A and B tiles through the L2.
  const double tile_bytes = c.tile_k * (c.tile_m * m.a_bytes() + c.tile_n * m.b_bytes());
  const double output = static_cast<double>(p.T) * m.columns() * static_cast<double>(p.H) * m.c_bytes();
  s.l2_bytes = s.steps * tile_bytes + output;

  // DRAM: once, and again what the L2 cannot keep. W is walked once per section, the panel of a section once
  // per wave.
  const double weights = depth_sum * c.tile_m * m.a_bytes();
  const double panel = static_cast<double>(p.T) * static_cast<double>(width) * c.tile_n * m.b_bytes();
  const double room = static_cast<double>(m.device.l2_bytes) * kUsableL2;
  const double missed = [&](double bytes) { return std::clamp(bytes / room - 1, 0.0, 1.0); }(weights + panel);
  s.dram_bytes = count_work(p).min_bytes + missed * weights * static_cast<double>((sections - 1) * p.H);
  const double rows_at_once =
      std::max(1.0, static_cast<double>(m.device.sms) / static_cast<double>(std::max<int64_t>(1, width)));
  const double panel_walks = std::max(0.0, static_cast<double>(rows) / 2 / rows_at_once - 1);
  const double panel_missed = std::clamp(panel / room - 1, 0.0, 1.0);
  s.dram_bytes += panel_missed * panel_walks * panel * static_cast<double>(sections * p.H);
  return s;
}

// grad_weight: equal blocks, groups of `raster` row tiles.
Schedule weight_schedule(const Model& m) {
  const Problem& p = m.p;
  const Config& c = m.c;
  const int64_t splits = std::max(1, c.split_k);
  const int64_t rows = (p.T + c.tile_m - 1) / c.tile_m;
  const double all_columns = ceil_div(m.columns(), c.tile_n);
  double tiles = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * c.tile_m, last = std::min(first + c.tile_m, p.T) - 1;
    if (p.epilogue.zero_outside && splits == 1)
      tiles += all_columns;
    else if (p.fill == Fill::kLower)
      tiles += ceil_div(static_cast<double>(std::clamp<int64_t>(last + p.diag + 1, 0, p.T) * p.K), c.tile_n);
    else
      tiles += all_columns -
               std::floor(static_cast<double>(std::clamp<int64_t>(first + p.diag, 0, p.T) * p.K) / c.tile_n);
  }
  const double depth = static_cast<double>(p.B * p.D);
  const double steps = ceil_div(ceil_div(depth, c.tile_k), static_cast<double>(splits));
  Schedule s;
  s.blocks = tiles * static_cast<double>(splits * p.H);
  s.grid = static_cast<double>(schedule::tile_count(kernel_shape(p), c, kernel_sizes(p)) * splits * p.H);
  s.runs.push_back({steps, static_cast<int64_t>(s.blocks)});
  s.steps = steps * s.blocks;
  const double tile_bytes = c.tile_k * (c.tile_m * m.a_bytes() + c.tile_n * m.b_bytes());
  s.l2_bytes = s.steps * tile_bytes + s.blocks * c.tile_m * c.tile_n * m.c_bytes();

  // DRAM: the blocks of a wave walk the depth together, so they read their rows of dy and x once. A wave that
  // holds a rectangle of `raster` rows needs tiles / raster columns.
  const double activation = static_cast<double>(p.T) * depth * m.b_bytes() * static_cast<double>(p.H);
  const double per_split = static_cast<double>(m.device.sms) / static_cast<double>(splits);
  const double group =
      c.raster > 0 ? std::min<double>(c.raster, static_cast<double>(rows)) : static_cast<double>(rows);
  const double wave = std::max(1.0, std::min(per_split, tiles));
  const double wave_rows = std::min(group, wave), wave_columns = std::max(1.0, wave / wave_rows);
  const double waves = tiles / wave;
  const double row_bytes = c.tile_m * depth * m.a_bytes(),
               column_bytes = c.tile_n / static_cast<double>(p.K) * depth * m.b_bytes();
  const double streamed =
      waves * (wave_rows * row_bytes + wave_columns * column_bytes) * static_cast<double>(p.H);
  const double room = static_cast<double>(m.device.l2_bytes) * kUsableL2;
  const double missed = std::clamp(2 * activation / room - 1, 0.0, 1.0);
  s.dram_bytes = count_work(p).min_bytes + missed * std::max(0.0, streamed - 2 * activation);
  return s;
}

// The second kernel of split_k: reads every part, writes dW.
double reduction_seconds(const Model& m) {
  if (!m.weight() || m.c.split_k <= 1) return 0;
  const double T = static_cast<double>(m.p.T);
  const double elements = T * T / 2 * static_cast<double>(m.p.K * m.p.H);
  const double parts = elements * 4 * m.c.split_k;
  const double rate = parts < static_cast<double>(m.device.l2_bytes) * kUsableL2
                          ? m.target.l2_bytes_per_s / 2
                          : m.device.dram_bytes_per_s * kDramEfficiency;
  const double written = elements * static_cast<double>(element_size(m.p.wdtype));
  return kNextLaunchSeconds + parts / rate + written / (m.device.dram_bytes_per_s * kDramEfficiency);
}

}  // namespace

DeviceModel model_of(const Target& target) {
  return {target.sms, target.clock_hz, target.l2_bytes, target.dram_bytes_per_s};
}

Prediction predict(const Candidate& candidate, const DeviceModel& device,
                   const std::optional<Resources>& resources, const std::optional<Counts>& counts) {
  if (candidate.family->name() == "wgmma_taps_sm90")
    return predict_wgmma_taps_sm90(candidate, device, resources);
  if (candidate.family->name() == "wgmma_sm90" || candidate.family->name() == "wgmma_tf32_sm90")
    return predict_wgmma_sm90(candidate, device, resources, counts);
  if (candidate.family->name() == "wgmma_split_sm90")
    return predict_wgmma_split_sm90(candidate, device, resources);
  if (candidate.family->name() == "decode") return predict_decode(candidate, device, resources);
  const Model m{candidate.problem,        candidate.config,           *candidate.target, device,
                candidate.family->name(), counts ? &*counts : nullptr};
  const Occupancy o = occupancy(m, candidate, resources);
  Schedule s = m.weight() ? weight_schedule(m) : product_schedule(m);
  if (counts) {
    s.l2_bytes = s.steps * traffic(counts->step) + s.blocks * traffic(counts->tile);
  }

  // A grid smaller than the machine leaves one block on an SM. Blocks without work count: they end at once,
  // but those dealt after them have found their SM by then (H200, 2026-11-21: 108 of a grid's 192 blocks had
  // work, and took 1.8 times as long where two fitted on an SM).
  const int blocks =
      static_cast<int>(std::clamp(std::ceil(s.grid / device.sms), 1.0, static_cast<double>(o.blocks)));
  const double step_s = step_cycles(m, blocks, o.spill_bytes) / device.clock_hz;
  const double block_s = block_cycles(m) / device.clock_hz;
  for (BlockRun& run : s.runs) run.seconds = run.seconds * step_s + block_s;
  const int64_t slots = static_cast<int64_t>(device.sms) * blocks;
  const double finish = makespan(s.runs, s.repeats, slots);

  Prediction r;
  r.blocks_per_sm = o.blocks;
  r.compute_s = (s.steps * step_s + s.blocks * block_s) / static_cast<double>(slots);
  r.tail_s = std::max(0.0, finish - r.compute_s);
  const double efficiency = m.weight() && m.c.split_k > 1 ? kPartsEfficiency : kDramEfficiency;
  r.dram_s = s.dram_bytes / (device.dram_bytes_per_s * efficiency);
  const double scale = device.sms * device.clock_hz / (m.target.sms * m.target.clock_hz);
  r.l2_s = s.l2_bytes / (m.target.l2_bytes_per_s * scale);
  r.fixed_s = kLaunchSeconds + reduction_seconds(m);
  r.seconds = r.fixed_s + soft_max({finish, r.dram_s, r.l2_s});
  name_limiter(r, m.simt() ? "fma" : "tensor");
  return r;
}

}  // namespace trigen
