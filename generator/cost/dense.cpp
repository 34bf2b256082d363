#include "generator/cost/dense.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace trigen {
namespace {

constexpr int64_t kDepth = 64;      // of k, a step of the main loop
constexpr int64_t kLeastSteps = 4;  // of a part of k
constexpr int64_t kMostParts = 64;
constexpr double kSumBytes = 4;

// One product of all heads and batches: C[m][n] += A[m][k] B[k][n], `count` times.
struct Product {
  int64_t m, n, k, count;
};

Product product_of(Problem p) {
  p.w = WeightForm::kDense, p.width = 0;
  return {p.T, output_columns(p), sum_terms(p), p.H};
}

int64_t blocks_in(int64_t size, int64_t block) { return (size + block - 1) / block; }

// FLOP/s of all SMs in a main loop.
double rate_of(const Problem& problem, const Target& target, const DeviceModel& device) {
  const DenseRates& rates = device.rates->dense();
  const bool half = problem.dtype == DType::kF16 || (problem.dtype == DType::kBF16 && target.bf16_mma);
  const bool tf32 = problem.dtype == DType::kF32 && problem.math == Math::kTF32 && target.tf32_mma;
  const double flops = half   ? target.mma16_flops * rates.tensor_share
                       : tf32 ? target.tf32_flops * rates.tf32_share
                              : target.fp32_flops * rates.fp32_share;
  // Rows that do not begin at multiples of 16 bytes, and tokens that do not fill them (in padded rows, too): loads of
  // half as many bytes, and so on.
  const int64_t row = problem.T * element_size(problem.dtype), align = std::min(problem.align, row & -row);
  const double narrow = std::pow(rates.unaligned, std::log2(16.0 / static_cast<double>(align)));
  // Devices other than the target's model scale by their SMs and clock.
  const double scale = device.sms * device.clock_hz / (target.sms * target.clock_hz);
  return flops / narrow * (target.measured_rates ? 1 : rates.datasheet) * scale;
}

double products_seconds(const Product& p, double rate, const DeviceModel& device) {
  const DenseRates& rates = device.rates->dense();
  constexpr struct { int64_t m, n; } kTiles[] = {{128, 256}, {256, 128}, {128, 128}, {64, 64}};
  const auto sms = static_cast<double>(device.sms);
  const int64_t depth = blocks_in(p.k, kDepth);
  double best = HUGE_VAL;
  for (const auto& [m, n] : kTiles) {
    const double part_of_largest = static_cast<double>(m * n) / (128 * 256);
    const double step = 2 * static_cast<double>(m * n * kDepth) / (rate / sms);
    const double tiles = static_cast<double>(blocks_in(p.m, m) * blocks_in(p.n, n) * p.count);
    for (int64_t parts = 1; parts <= kMostParts; ++parts) {
      const int64_t steps = blocks_in(depth, parts);
      if (parts > 1 && steps < kLeastSteps) break;
      const double rounds = tiles * static_cast<double>(parts) / sms, whole = std::ceil(rounds);
      // Idle part of the last round: the share that nothing else fills.
      const double paid = whole <= 1 ? 1 : rounds + (whole - rounds) * rates.wave;
      double seconds = paid * (static_cast<double>(steps) * step + rates.tile * part_of_largest);
      if (parts > 1)  // sums written and read again
        seconds += rates.parts_start + 2 * kSumBytes * static_cast<double>(parts) *
                                           static_cast<double>(p.m * p.count) * static_cast<double>(p.n) /
                                           rates.parts_bytes_per_s;
      best = std::min(best, seconds);
    }
  }
  return best;
}

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 99.5e-6 ? "%.1f us" : "%.0f us", seconds * 1e6);
  return text;
}

}  // namespace

double dense_seconds(const Problem& problem, const Target& target, const DeviceModel& device) {
  if (!is_whole_product(problem.op) || device.rates == nullptr) return 0;
  const DenseRates& rates = device.rates->dense();
  const double memory = rates.memory_share * device.dram_bytes_per_s;
  const auto K = static_cast<double>(problem.K), H = static_cast<double>(problem.H),
             T = static_cast<double>(problem.T);
  const auto data = static_cast<double>(element_size(problem.dtype));
  const double activation = static_cast<double>(problem.B * problem.D) * H * T * data;
  const bool gradient = makes_weights(problem.op);
  const Epilogue& e = problem.epilogue;
  const bool pass = !gradient && (e.gate || e.pre || e.act == Activation::kSiLU ||
                                  (e.residual && e.act != Activation::kNone));
  const double weight = H * T * T * K * (gradient ? static_cast<double>(element_size(problem.wdtype)) : data);
  const double bytes = activation * (K + 1 + (e.residual && !pass ? 1 : 0)) + weight;
  const double products = products_seconds(product_of(problem), rate_of(problem, target, device), device);
  double seconds = rates.start + std::cbrt(std::pow(products, 3) + std::pow(bytes / memory, 3));
  if (pass) seconds += rates.pass_start + activation * (2 + e.gate + e.residual + e.pre) / memory;
  return seconds;
}

DenseVerdict verdict_of(const BesideDense& times) {
  if (times.dense_s <= 0 || times.seconds <= 0) return DenseVerdict::kUnknown;
  const double sure = times.dense_measured ? kSureMeasured : times.measured ? kSureEstimated : kSurePredicted;
  if (times.dense_s > times.seconds * sure) return DenseVerdict::kTriangle;
  return times.seconds > times.dense_s * sure ? DenseVerdict::kDense : DenseVerdict::kClose;
}

std::string dense_product(Op op) {
  return op == Op::kGram ? "a dense product of both triangles" : "a dense product on the masked weight";
}

std::string dense_remark(Op op, const BesideDense& times) {
  const DenseVerdict verdict = verdict_of(times);
  if (verdict == DenseVerdict::kUnknown || verdict == DenseVerdict::kTriangle) return "";
  const bool faster = verdict == DenseVerdict::kDense;
  return dense_product(op) +
         (faster                 ? " is faster: "
          : times.dense_measured ? " is as fast: "
                                 : " may be as fast: ") +
         microseconds(times.dense_s) + (times.dense_measured ? " (measured)" : " (estimated)") + " beside " +
         microseconds(times.seconds) + (times.measured ? " (measured)" : " (predicted)") +
         (faster || times.dense_measured ? "" : "; too close to tell, time both");
}

}  // namespace trigen
