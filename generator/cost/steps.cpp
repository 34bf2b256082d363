#include "generator/cost/steps.h"

#include <algorithm>
#include <cmath>

#include "generator/cost/limits.h"

namespace trigen {
namespace {

constexpr double kGroupElements = 128.0 * 256 / 2;  // of each warpgroup, what LoopRates::tile is of

// Multiply-adds a second of one SM, with as many at work as the work says.
double products_per_s(const CostInput& in) {
  const LoopRates& loop = in.loop;
  const Target& target = in.target;
  const double sms = target.sms, busy = in.work.busy;
  switch (in.work.unit) {
    case Unit::kFp32:
      return target.fp32_flops / 2 / sms;
    case Unit::kTensor16:
      return target.mma16_flops / 2 / sms * std::min(loop.tensor_most, loop.tensor_share / busy);
    case Unit::kTensorTf32:
      return target.tf32_flops / 2 / sms * std::min(loop.tf32_most, loop.tf32_share / busy);
  }
  return 1;
}

double streamed_seconds(const CostInput& in, const Step& step, double feed_rate) {
  const Work& work = in.work;
  const LoopRates& loop = in.loop;
  double rate = products_per_s(in);
  if (work.mma_sync && in.rates.tensor_cap > 0)
    rate = std::min(rate, in.rates.tensor_cap * loop.tensor_share * in.target.clock_hz);
  double tensor = step.products / rate * std::max(1.0, loop.reads * step.operand_reads);
  if (step.f32_bytes > 0) tensor *= loop.f32_products;
  if (work.warpgroups == 1) tensor *= loop.alone;
  const double feed =
      (step.feed_bytes - read_together(in, step) + step.split_bytes * (loop.split_lines - 1)) /
      (feed_rate * in.target.clock_hz);
  // Threads' traffic in shared memory beside the products' own reads.
  const double shared = step.shared_bytes / (in.rates.shared_bytes * in.target.clock_hz);
  const double latency = step.loads * loop.latency / std::max(1, work.stages - 1);
  double seconds = spill_factor(in) * (step.shifts ? loop.shift : 1) *
                   soft_max({std::max({tensor, feed, shared}), latency});
  if (step.transposes > 0) seconds = std::max(seconds, step.transposes * loop.transpose);
  // The target's rates are those of its clock.
  return (seconds + loop.step) * in.target.clock_hz / in.device.clock_hz;
}

// Parts of one step, in cycles of one SM.
struct Parts {
  double products = 0, shared = 0, load = 0;
  double between = 0;  // of the warps that multiply, while they do not
  double longest() const { return std::max({products, shared, load}); }
  double sum() const { return products + shared + load; }
};

Parts parts_of(const CostInput& in, const Step& step, double rate) {
  const DeviceRates& device = in.rates;
  Parts out{.products = step.products / (rate * step.issue_share),
            .shared = step.shared_bytes / device.shared_bytes};
  double issue_slots = 0;
  for (const TileLoad* access : {&step.a, &step.b}) {
    const double vector = std::max(1, access->vector), accesses = access->elements / vector / 32;
    const bool packed = vector * access->element_bytes < 4;  // no cp.async below 4 bytes: through registers
    issue_slots += accesses * access->pieces * in.loop.access * (packed ? 2 : 1);
    if (access->converted) issue_slots += access->elements * in.loop.conversion / 32;
    if (access->decoded) out.between += accesses * in.loop.cut / device.issues;
    if (access->spread) out.between += access->elements * in.loop.spread / 32 / device.issues;
    const bool narrow = in.work.asynchronous && !access->staged && vector * access->element_bytes < 16;
    out.load += std::max((narrow ? in.loop.narrow : 1) * accesses * 32 / device.access_lanes,
                         access->elements * access->element_bytes / device.shared_bytes);
  }
  // FFMA fills the issue slots itself; tensor instructions leave them free.
  if (in.work.unit == Unit::kFp32)
    out.products += issue_slots / device.issues;
  else
    out.load = std::max(out.load, issue_slots / device.issues);
  return out;
}

// Cycles from a step's first request to its last byte, of which the stages in flight hide their share.
double load_latency(const CostInput& in, const Step& step) {
  const LoopRates& loop = in.loop;
  // Registers hold one tile on its way, shared memory stages - 1.
  if (!step.a.staged && !step.b.staged) return loop.copy_latency / std::max(1, in.work.stages - 1);
  return loop.staged_latency;
}

// Cycles that a block of a loop with cp.async waits for single elements which are too many for registers: some at a
// time, after its products (templates/loader.cuh, batched).
double batch_latency(const CostInput& in, const Step& step) {
  double latency = 0;
  for (const TileLoad* access : {&step.a, &step.b}) {
    const double each = access->elements / in.work.threads;
    if (in.work.asynchronous && access->staged && access->vector == 1 && access->element_bytes < 4 &&
        each > in.loop.singles_at_once)
      latency += in.loop.singles * each / in.loop.singles_at_once;
  }
  return latency;
}

double interleaved_cycles(const CostInput& in, const Step& step, int blocks, double spill_bytes) {
  if (in.step_cycles != nullptr) return *in.step_cycles;
  const LoopRates& loop = in.loop;
  const double resident = static_cast<double>(blocks) * in.work.threads / 32;
  const double enough = std::min(1.0, resident / in.rates.issues);
  // mma.sync reaches less than the tensor cores can.
  double cap = in.rates.tensor_cap / (in.work.unit == Unit::kTensorTf32 ? 2 : 1);
  if (in.work.unit == Unit::kFp32 || cap <= 0) cap = INFINITY;
  const double share = in.work.unit == Unit::kTensor16     ? loop.tensor_share
                       : in.work.unit == Unit::kTensorTf32 ? loop.tf32_share
                                                           : 1;
  const double rate = std::min(products_per_s(in) / in.target.clock_hz, cap * share) * enough;
  const Parts parts = parts_of(in, step, rate);
  const double longest = parts.longest();
  // Half of the spills in the loop.
  const double spills =
      spill_bytes > 0 ? spill_bytes * in.work.threads / in.rates.local_bytes / 2 + loop.spill * longest : 0;
  const double hidden = longest + loop.overlap * (parts.sum() - longest) + parts.between + spills;
  const double issue = hidden * (resident + 1) / resident;  // few warps leave gaps
  // Of loops whose threads store what they load a third as much: 1.02 to 1.13 times (docs/cost-model.md).
  const bool two = in.work.unit == Unit::kTensor16 && in.work.asynchronous && in.work.stages == 2;
  const double late = !two ? 1 : 1 + (loop.two_stages - 1) * (step.a.staged || step.b.staged ? 1.0 / 3 : 1);
  // A stage more hides a little more, even where the loads are hidden on average.
  const double batches = batch_latency(in, step);
  return soft_max(
      {late * (blocks * issue) + loop.sync, batches > 0 ? issue + batches : load_latency(in, step)});
}

double interleaved_tile_cycles(const CostInput& in) {
  const TileEnd& tile = in.work.tile;
  const double per_cycle = in.target.l2_bytes_per_s / (in.target.sms * in.target.clock_hz);
  const double accesses = tile.elements / std::max(1, tile.vector),
               mirrored = tile.mirrored ? in.loop.mirrored * tile.elements : 0;  // single elements
  // Tensors beside the output pay their latency, a few accesses at a time.
  const double exchange = in.loop.exchange_access * tile.exchanged * accesses / in.work.threads;
  const double activation = tile.act == Activation::kGELU ? 1 : tile.act == Activation::kSiLU ? 0.5 : 0;
  return in.loop.block + exchange + activation * in.loop.activation * tile.elements / (32 * in.rates.issues) +
         std::max(tile.elements * tile.bytes / per_cycle,
                  (accesses + mirrored) / in.rates.access_lanes * in.loop.access);
}

double streamed_tile_seconds(const CostInput& in) {
  const TileEnd& tile = in.work.tile;
  const LoopRates& loop = in.loop;
  const double activation = tile.act == Activation::kGELU   ? loop.gelu
                            : tile.act == Activation::kSiLU ? loop.silu
                                                            : 0;
  const double seconds = loop.block_start + loop.exchange_wait * tile.exchanged +
                         loop.tile * tile.elements / (in.work.warpgroups * kGroupElements) *
                             (1 + activation + loop.waits * tile.waits + loop.exchange * tile.exchanged +
                              (tile.sent ? loop.sent : 0) + (tile.mirrored ? loop.mirrored : 0));
  return seconds * in.target.clock_hz / in.device.clock_hz;
}

}  // namespace

Occupancy occupancy(const CostInput& in) {
  const Work& work = in.work;
  if (work.registers == 0) return {};
  const int64_t most = in.target.registers_per_sm / work.threads / std::max(1, work.blocks);
  const int64_t limit = std::clamp<int64_t>(most / 8 * 8, 16, 255);
  Occupancy out;
  int64_t registers = work.registers;
  if (in.resources != nullptr && in.resources->registers > 0) {
    registers = in.resources->registers;
    out.spill_bytes = in.resources->spill_bytes;
  } else {
    // Close to the limit the compiler may or may not spill: a guess that keeps such configs behind safe ones.
    constexpr int64_t kSafe = 8;
    out.spill_bytes = static_cast<double>(std::max<int64_t>(0, registers - (limit - kSafe))) * 16;
    registers = std::min(registers, limit);
  }
  registers = (registers + 7) / 8 * 8;  // registers are given to warps in units of 256
  const int64_t own = in.resources != nullptr ? in.resources->static_shared : 0;
  out.blocks = resident_blocks(in.target, registers, work.threads, work.shared_bytes + own);
  return out;
}

double step_seconds(const CostInput& in, const Step& step, int blocks, double spill_bytes) {
  return in.work.loop == Loop::kStreamed
             ? streamed_seconds(in, step, in.rates.feed)
             : interleaved_cycles(in, step, blocks, spill_bytes) / in.device.clock_hz;
}

double step_seconds_alone(const CostInput& in, const Step& step) {
  return streamed_seconds(in, step, std::max(in.rates.feed, in.rates.feed_alone));
}

double read_together(const CostInput& in, const Step& step) {
  return step.f32_bytes * (1 - in.loop.f32_feed / 2);
}

double tile_seconds(const CostInput& in) {
  return in.work.loop == Loop::kStreamed ? streamed_tile_seconds(in)
                                         : interleaved_tile_cycles(in) / in.device.clock_hz;
}

double spill_factor(const CostInput& in) {
  if (in.resources == nullptr || !in.resources->spills()) return 1;
  return in.loop.spills + (in.loop.spilled_bytes > 0 ? in.resources->spill_bytes / in.loop.spilled_bytes : 0);
}

}  // namespace trigen
