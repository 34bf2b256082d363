#include "generator/cost/dense.h"

#include <algorithm>
#include <cstdio>

namespace trigen {
namespace {

constexpr double kAsFast = 1.02;  // times that differ by less are alike in two runs
constexpr double kFaster = 0.95;

struct UnitRate {
  double flops, share;
};

UnitRate unit_of(const Problem& problem, const Target& target, const DenseRates& rates) {
  const bool half = problem.dtype == DType::kF16 || (problem.dtype == DType::kBF16 && target.bf16_mma);
  if (half) return {target.mma16_flops, rates.tensor_share};
  const bool tf32 = problem.dtype == DType::kF32 && problem.math == Math::kTF32 && target.tf32_mma;
  if (tf32) return {target.tf32_flops, rates.tf32_share};
  return {target.fp32_flops, rates.fp32_share};
}

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 99.5e-6 ? "%.1f us" : "%.0f us", seconds * 1e6);
  return text;
}

}  // namespace

double dense_seconds(const Problem& problem, const Target& target, const DeviceModel& device) {
  if (problem.op == Op::kDecode || problem.op == Op::kGradEpilogue || device.rates == nullptr) return 0;
  const DenseRates& rates = device.rates->dense();
  const UnitRate unit = unit_of(problem, target, rates);
  // Of another device than the target's model: by its SMs and clock.
  const double scale = device.sms * device.clock_hz / (target.sms * target.clock_hz);
  const double rate = unit.flops * unit.share * (target.measured_rates ? 1 : rates.datasheet) * scale;
  const auto B = static_cast<double>(problem.B), H = static_cast<double>(problem.H),
             T = static_cast<double>(problem.T), D = static_cast<double>(problem.D),
             K = static_cast<double>(problem.K);
  const double data = element_size(problem.dtype);
  const bool gradient = problem.op == Op::kGradWeight;
  const double bytes = 2 * B * H * T * D * data +
                       H * T * T * K * (gradient ? static_cast<double>(element_size(problem.wdtype)) : data);
  return rates.start + std::max(count_work(problem).dense_flop / rate, bytes / device.dram_bytes_per_s);
}

bool dense_is_as_fast(double seconds, double dense) { return dense > 0 && dense <= seconds * kAsFast; }

std::string dense_remark(double seconds, bool measured, double dense, bool dense_measured) {
  if (!dense_is_as_fast(seconds, dense)) return "";
  return std::string("a dense product on the masked weight is ") +
         (dense < seconds * kFaster ? "faster: " : "as fast: ") + microseconds(dense) +
         (dense_measured ? " (measured)" : " (estimated)") + " beside " + microseconds(seconds) +
         (measured ? " (measured)" : " (predicted)");
}

}  // namespace trigen
