#include "lab/clock/clock.h"

#include <algorithm>
#include <cmath>

#include "generator/error.h"

namespace trigen {
double l2_bytes_of(const SmRates& rates, double sms) {
  constexpr double kOfOne = 64;  // the SM's own way: two sectors a cycle
  return std::min(kOfOne, rates.l2_bytes / std::max(1.0, sms));
}

llvm::Expected<ClockedLoop> clock_candidate(const Candidate& candidate,
                                            const std::vector<MachineFunction>& functions,
                                            const DeviceModel& device,
                                            const std::optional<Resources>& resources) {
  const Target& target = *candidate.target;
  const SmRates* const rates = sm_rates_of(target);
  if (rates == nullptr)
    return make_error(ErrorKind::kUnsupported, "the clock has no timings of " + target.name +
                                                   "; lab/clock/sm_rates.txt has those it knows");
  auto loop = main_loop(functions);
  if (!loop) return loop.takeError();
  ClockedLoop out;
  out.loop = std::move(*loop);
  const Work work = candidate.family->work(candidate.problem, target, candidate.config, device.sms);
  const int resident = predict(work, target, device, resources).blocks_per_sm;
  if (work.loop != Loop::kInterleaved)
    return make_error(ErrorKind::kUnsupported,
                      "the clock follows blocks whose warps all load and multiply, those of " +
                          candidate.family->name() +
                          " have warps that load; name another family with --family");
  out.warps = work.threads / 32;
  out.blocks =
      static_cast<int>(std::clamp(std::ceil(work.grid / device.sms), 1.0, static_cast<double>(resident)));
  const auto clocked = [&](int skipping) {
    return clock_loop({.loop = out.loop,
                       .rates = *rates,
                       .warps = out.warps,
                       .blocks = out.blocks,
                       .l2_bytes = l2_bytes_of(*rates, std::min<double>(work.grid, device.sms)),
                       .skipping = skipping});
  };
  out.timing = clocked(0);
  if (out.timing.cycles <= 0)
    return make_error(ErrorKind::kUnsupported, "the clock cannot follow the main loop of " +
                                                   out.loop.function +
                                                   ": a warp waits for what nothing brings");
  const double all = work.all.steps.front();
  double saved = 0;
  for (const Skipping& one : work.skipping)
    saved += one.steps * std::max(0.0, out.timing.cycles - clocked(one.warps).cycles);
  out.step_cycles = out.timing.cycles - saved / std::max(1.0, all);
  return out;
}

}  // namespace trigen
