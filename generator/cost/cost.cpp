// docs/cost-model.md explains the model; the numbers stand in generator/rates/.
#include "generator/cost/cost.h"

#include <algorithm>
#include <cmath>

#include "generator/cost/limits.h"
#include "generator/cost/makespan.h"
#include "generator/cost/steps.h"

namespace trigen {
namespace {

// The share of a reread's bytes that misses the L2.
double missed(const CostInput& in, const Reread& reread) {
  const double room = static_cast<double>(in.device.l2_bytes) * in.loop.usable_l2;
  return std::clamp(reread.set / room - in.loop.l2_floor, in.loop.l2_hit, 1.0);
}

// Memory's time for all bytes, and for those that the first blocks read alone.
struct MemorySeconds {
  double all = 0, first = 0;
};

// The share of Work::common_bytes that misses the L2: the more, the more of it rings fill, and the longer blocks have had to drift apart.
double drifted(const CostInput& in) {
  constexpr double kBetween = 0.1;  // of the L2: so much more in rings, and nothing more is lost
  constexpr double kBegins = 0.4;   // of Work::common_after
  const auto l2 = static_cast<double>(in.device.l2_bytes);
  const double rings = in.device.sms * in.work.ring_bytes / l2,
               passed = in.work.memory_bytes / l2 / in.work.common_after;
  return in.loop.drift * std::clamp((rings - in.work.common_from) / kBetween, 0.0, 1.0) *
         std::clamp((passed - kBegins) / (1 - kBegins), 0.0, 1.0);
}

double memory_bytes(const CostInput& in) {
  double bytes = in.work.memory_bytes;
  for (const Reread& reread : in.work.rereads) bytes += missed(in, reread) * reread.bytes;
  return bytes + drifted(in) * in.work.common_bytes;
}

MemorySeconds memory_seconds(const CostInput& in) {
  double rate = in.device.dram_bytes_per_s * in.loop.memory_share;
  // Few SMs ask for less at a time.
  if (in.loop.enough_sms > 0) rate /= std::sqrt(std::max(1.0, in.loop.enough_sms / in.work.busy));
  return {memory_bytes(in) / rate, in.work.first_bytes / rate};
}

// Blocks, memory and L2 beside each other: in two phases where the first blocks read what all others find in
// the L2. What else the memory gives goes with the blocks' time.
double product_seconds(double blocks, const MemorySeconds& memory, double l2, double first_share) {
  if (first_share <= 0 || first_share >= 1) return soft_max({blocks, memory.all, l2});
  const double even = memory.all - memory.first, rest = 1 - first_share;
  return soft_max({first_share * blocks, first_share * even + memory.first, first_share * l2}) +
         soft_max({rest * blocks, rest * even, rest * l2});
}

double pass_seconds(const CostInput& in, const Pass& pass) {
  const PassRates& rates = in.device.rates->pass(pass.rates);
  const double memory = in.device.dram_bytes_per_s * rates.memory_share;
  const double rate = rates.bytes_per_s > 0 ? rates.bytes_per_s
                      : pass.bytes < static_cast<double>(in.device.l2_bytes) * rates.fits
                          ? in.target.l2_bytes_per_s * rates.l2_share
                          : memory;
  return pass.launches * rates.start + pass.parts * rates.part + pass.bytes / rate +
         pass.memory_bytes / memory;
}

// The blocks' finish on the device's SMs, with perfect balance and as they are dealt.
struct Finish {
  double balanced = 0, seconds = 0;
  double first_share = 0;  // of the blocks' time, that of Work::first
};

// Blocks that share SMs, one kind of steps.
Finish shared_finish(const CostInput& in, const Occupancy& resident, int blocks) {
  llvm::SmallVector<double, 8> steps;
  for (int n = 1; n <= blocks; ++n)
    steps.push_back(step_seconds(in, in.work.steps[0], n, resident.spill_bytes));
  const double tile = tile_seconds(in);
  llvm::SmallVector<SharedRun, 64> runs;
  for (const Run& run : in.work.runs) runs.push_back({run.steps[0], run.tiles * tile, run.count});
  const SharedFinish finish = shared_makespan(runs, in.work.repeats, in.work.grid, in.device.sms, steps);
  Finish out{.balanced = finish.balanced, .seconds = finish.seconds};
  const auto seconds = [&](const Run& run) { return run.steps[0] * steps.back() + run.tiles * tile; };
  if (in.work.first_bytes > 0) out.first_share = seconds(in.work.first) / seconds(in.work.all);
  return out;
}

Finish finish_of(const CostInput& in, const Occupancy& resident) {
  const Work& work = in.work;
  // A grid smaller than the machine leaves one block on an SM. Blocks without work count: they end at once,
  // but those dealt after them have found their SM by then (H200, 2026-11-21: 108 of a grid's 192 blocks had
  // work, and took 1.8 times as long where two fitted on an SM).
  const int blocks =
      static_cast<int>(std::clamp(std::ceil(work.grid * std::max(1, work.cluster) / in.device.sms), 1.0,
                                  static_cast<double>(resident.blocks)));
  // FFMA fills an SM's issue slots, and neighbours' ends with them.
  if (work.loop == Loop::kInterleaved && work.unit != Unit::kFp32 && blocks > 1)
    return shared_finish(in, resident, blocks);
  const bool streamed = work.loop == Loop::kStreamed;
  llvm::SmallVector<double, 8> steps, alone;
  for (const Step& step : work.steps) {
    steps.push_back(step_seconds(in, step, blocks, resident.spill_bytes));
    alone.push_back(streamed ? step_seconds_alone(in, step) : steps.back());
  }
  const double tile = tile_seconds(in);
  const auto seconds = [&](const Run& run, const llvm::SmallVector<double, 8>& each) {
    double sum = run.tiles * tile;
    for (size_t kind = 0; kind < run.steps.size(); ++kind) sum += run.steps[kind] * each[kind];
    return sum;
  };
  llvm::SmallVector<BlockRun, 64> runs;
  for (const Run& run : work.runs) runs.push_back({seconds(run, steps), run.count, seconds(run, alone)});
  // Persistent grids are made for the target's SMs: on a device with fewer their last blocks start late.
  const int64_t slots = std::max<int64_t>(1, int64_t{in.device.sms} * blocks / std::max(1, work.cluster));
  Finish out;
  const double sharers =
      streamed ? std::min<double>(static_cast<double>(slots), work.grid) : static_cast<double>(slots);
  const double all = seconds(work.all, steps);
  out.balanced = all / std::max(1.0, sharers);
  if (work.first_bytes > 0) out.first_share = seconds(work.first, steps) / all;
  out.seconds = std::max(makespan(runs, work.repeats, slots), out.balanced);
  return out;
}

double l2_seconds(const CostInput& in) {
  const Work& work = in.work;
  // What the memory fills it with and takes from it, too.
  if (work.loop == Loop::kStreamed) {
    double bytes = work.l2_bytes + memory_bytes(in);
    for (size_t kind = 0; kind < work.all.steps.size(); ++kind)
      bytes -= work.all.steps[kind] * std::max(1, work.cluster) * read_together(in, work.steps[kind]);
    return bytes / (in.rates.feed * in.device.sms * in.device.clock_hz);
  }
  const double scale = in.device.sms * in.device.clock_hz / (in.target.sms * in.target.clock_hz);
  return work.l2_bytes / (in.target.l2_bytes_per_s * scale);
}

}  // namespace

DeviceModel model_of(const Target& target) {
  return {target.sms, target.clock_hz, target.l2_bytes, target.dram_bytes_per_s, &rates_of(target), &target};
}

Prediction predict(const Work& work, const Target& target, const DeviceModel& device,
                   const std::optional<Resources>& resources, const std::optional<double>& step_cycles) {
  const CostInput in{work,
                     target,
                     device,
                     device.rates->loop(work.rates),
                     device.rates->device(),
                     resources ? &*resources : nullptr,
                     step_cycles ? &*step_cycles : nullptr};
  const Occupancy resident = occupancy(in);
  const Finish finish = finish_of(in, resident);

  Prediction r;
  r.blocks_per_sm = resident.blocks;
  r.compute_s = finish.balanced;
  r.tail_s = finish.seconds - finish.balanced;
  r.l2_s = l2_seconds(in);
  const MemorySeconds memory = memory_seconds(in);
  r.dram_s = memory.all;
  r.fixed_s = in.rates.launch + in.loop.start + (work.cluster > 1 ? in.loop.cluster : 0);
  for (const Pass& pass : work.passes) r.fixed_s += pass_seconds(in, pass);
  if (work.sector_writes > 0)
    r.fixed_s += work.sector_writes / (in.rates.sector_writes * device.sms * device.clock_hz);
  // Streamed loops are fed by the L2 step by step, and by all of it at most; the others ask it for whole tiles at a time.
  double limit = work.loop == Loop::kStreamed
                     ? product_seconds(std::max(finish.seconds, r.l2_s), memory, 0, finish.first_share)
                     : product_seconds(finish.seconds, memory, r.l2_s, finish.first_share);
  limit = std::max(limit, work.chained * in.loop.chained);
  if (work.instructions > 0) {  // loads wait in turns; arithmetic is beside them
    r.compute_s = spill_factor(in) * work.instructions * in.loop.instruction /
                  (in.rates.lanes * device.sms * device.clock_hz);
    r.l2_s = finish.seconds;
    const double grid = work.grid * std::max(1, work.cluster);
    r.tail_s = in.loop.idle_tail * r.dram_s * std::clamp(device.sms / grid - 0.5, 0.0, 0.5);
    limit = soft_max({r.dram_s, r.compute_s, r.l2_s}) + r.tail_s + work.chained * in.loop.chained;
  }
  r.seconds = in.loop.doubt * (r.fixed_s + limit);
  name_limiter(r, work.unit == Unit::kFp32 ? "fma" : "tensor");
  return r;
}

Prediction predict(const Candidate& candidate, const DeviceModel& device,
                   const std::optional<Resources>& resources) {
  // Kernels of an older target are predicted by that one's units.
  const Target& target = device.gpu->name == candidate.target->name ? *device.gpu : *candidate.target;
  return predict(candidate.family->work(candidate.problem, target, candidate.config, device.sms), target,
                 device, resources);
}

}  // namespace trigen
