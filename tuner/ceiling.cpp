#include "tuner/ceiling.h"

namespace trigen {

Ceiling ceiling_of(const Problem& problem, const Target& target, const DeviceModel& device) {
  return ceiling_of(problem, target, device, longest_rows(problem));
}

Ceiling ceiling_of(const Problem& problem, const Target& target, const DeviceModel& device, Rows rows) {
  double rate = target.fp32_flops;
  if (problem.dtype == DType::kF16 || (problem.dtype == DType::kBF16 && target.bf16_mma))
    rate = target.mma16_flops;
  if (problem.dtype == DType::kF32 && problem.math == Math::kTF32 && target.tf32_mma)
    rate = target.tf32_flops;
  if (problem.math == Math::kF16x3 && target.wgmma) rate = target.mma16_flops / 3;
  if (device.sms > 0 && device.clock_hz > 0 && target.sms > 0 && target.clock_hz > 0) {
    rate *= (device.sms * device.clock_hz) / (target.sms * target.clock_hz);
  }
  const double bandwidth = device.dram_bytes_per_s > 0 ? device.dram_bytes_per_s : target.dram_bytes_per_s;
  const Totals work = count_work(problem, rows);
  Ceiling ceiling;
  if (rate > 0) ceiling.compute_s = work.triangle_flop / rate;
  if (bandwidth > 0) ceiling.memory_s = work.min_bytes / bandwidth;
  return ceiling;
}

}  // namespace trigen
