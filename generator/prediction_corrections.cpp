#include "generator/prediction_corrections.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trigen {
namespace {

// Weights of times at the same batch size, and of the model's own prediction. Of 28 problems at 4 and 16 times another batch
// size the second may be 0 to 1 (H200).
constexpr double kSame = 3, kModel = 1;
constexpr size_t kFewTimes = 3;

}  // namespace

std::string PredictionCorrections::kind_of(const Candidate& candidate) {
  return candidate.family->name().str() + ":" + to_string(without_order(candidate.config));
}

void PredictionCorrections::add(llvm::ArrayRef<Timed> times, const DeviceModel& device, double ratio) {
  if (times.size() < kFewTimes) return;
  std::vector<double> logs;
  logs.reserve(times.size());
  for (const Timed& one : times)
    logs.push_back(std::log(one.seconds / predict(one.candidate, device).seconds));
  std::vector<double> sorted = logs;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2), sorted.end());
  const double median = sorted[sorted.size() / 2];
  std::map<std::string, Kind> own;  // the mean of each kind counts once
  for (size_t i = 0; i < times.size(); ++i) {
    Kind& kind = own[kind_of(times[i].candidate)];
    kind.logs += logs[i] - median;
    kind.weight += 1;
  }
  const double weight = kSame / (1 + std::abs(std::log2(ratio)));
  for (const auto& [name, kind] : own) {
    kinds_[name].logs += weight * kind.logs / kind.weight;
    kinds_[name].weight += weight;
  }
}

double PredictionCorrections::factor(const Candidate& candidate) const {
  const auto found = kinds_.find(kind_of(candidate));
  return found == kinds_.end() ? 1 : std::exp(found->second.logs / (found->second.weight + kModel));
}

}  // namespace trigen
