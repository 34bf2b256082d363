#include "runtime/ranking.h"

#include "generator/cost/cost.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {

llvm::Expected<std::vector<Candidate>> list_candidates_on(const Device* device, const Problem& problem,
                                                          const Target& target, const Family* family) {
  auto candidates = list_candidates(problem, target, family);
  if (!candidates || device == nullptr || device->info().sms <= 0 || device->info().sms == target.sms)
    return candidates;
  DeviceModel model = model_of(target);
  model.sms = device->info().sms;
  std::vector<std::pair<double, Candidate>> ranked;
  for (const Candidate& candidate : *candidates) {
    const double seconds = predict(candidate, model).seconds;
    ranked.emplace_back(seconds, candidate);
  }
  llvm::stable_sort(ranked, llvm::less_first());
  candidates->clear();
  for (const auto& [seconds, candidate] : ranked) candidates->push_back(candidate);
  return candidates;
}

}  // namespace trigen
