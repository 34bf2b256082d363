#include "tuner/statistics.h"

#include <algorithm>
#include <cmath>

namespace trigen {

double quantile(llvm::ArrayRef<double> sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

Summary summarize(llvm::ArrayRef<double> samples) {
  Summary s;
  s.count = samples.size();
  if (samples.empty()) return s;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  s.median = quantile(sorted, 0.5);
  s.lower = quantile(sorted, 0.25);
  s.upper = quantile(sorted, 0.75);
  s.minimum = sorted.front();
  s.maximum = sorted.back();
  s.notch = 1.57 * (s.upper - s.lower) / std::sqrt(static_cast<double>(sorted.size()));
  return s;
}

bool drifts(llvm::ArrayRef<double> samples) {
  constexpr double kTolerance = 0.03;
  if (samples.size() < 6) return false;
  const size_t third = samples.size() / 3;
  return summarize(samples.take_back(third)).median >
         (1 + kTolerance) * summarize(samples.take_front(third)).median;
}

std::vector<size_t> outliers(llvm::ArrayRef<double> samples) {
  const Summary s = summarize(samples);
  const double reach = std::max(3 * (s.upper - s.lower), 0.05 * s.median);
  std::vector<size_t> out;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] > s.upper + reach || samples[i] < s.lower - reach) out.push_back(i);
  }
  return out;
}

Choice choose(llvm::ArrayRef<std::vector<double>> samples, double floor) {
  Choice choice;
  double best = HUGE_VAL;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double median = summarize(samples[i]).median;
    if (median < best) {
      best = median;
      choice.fastest = i;
    }
  }
  choice.winner = choice.fastest;
  bool found = false;
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t rounds = std::min(samples[i].size(), samples[choice.fastest].size());
    std::vector<double> ratios(rounds);
    for (size_t r = 0; r < rounds; ++r) ratios[r] = samples[i][r] / samples[choice.fastest][r];
    const Summary s = summarize(ratios);
    choice.ratio.push_back(s.median);
    choice.in_band.push_back(i == choice.fastest || s.median <= 1 + std::max(floor, s.notch));
    if (choice.in_band.back() && !found) {
      choice.winner = i;
      found = true;
    }
  }
  return choice;
}

}  // namespace trigen
