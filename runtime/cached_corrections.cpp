#include "runtime/cached_corrections.h"

#include <algorithm>
#include <vector>

#include "runtime/json.h"

namespace trigen {
namespace {

using nlohmann::json;

constexpr size_t kNamedAtMost = 3;

// Times of candidates that a tune timed alone, from its evidence (tuner/evidence.cpp); today's candidates only.
std::vector<PredictionCorrections::Timed> times_of(const std::string& evidence, const Problem& problem,
                                                   const Target& target) {
  std::vector<PredictionCorrections::Timed> times;
  const json value = read_json(evidence);
  if (!value.is_object() || !value.contains("candidates") || !value["candidates"].is_array()) return times;
  for (const json& row : value["candidates"]) {
    if (!row.is_object() || !row.contains("candidate") || !row["candidate"].is_string()) continue;
    std::vector<double> us;
    if (row.contains("quick_us") && row["quick_us"].is_array())
      for (const json& one : row["quick_us"])
        if (one.is_number() && one.get<double>() > 0) us.push_back(one.get<double>());
    if (us.empty()) continue;
    std::nth_element(us.begin(), us.begin() + static_cast<ptrdiff_t>(us.size() / 2), us.end());
    auto candidate = parse_candidate(problem, target, row["candidate"].get<std::string>());
    if (candidate && !candidate->generic)
      times.push_back({*candidate, us[us.size() / 2] * 1e-6});
    else
      llvm::consumeError(candidate.takeError());
  }
  return times;
}

}  // namespace

CachedCorrections find_corrections(const Problem& problem, const Target& target, const Device& device,
                                   Store& store) {
  CachedCorrections out;
  const DeviceInfo& info = device.info();
  const std::string text = to_string(problem), batches = ",B=" + std::to_string(problem.B);
  const size_t at = text.find(batches);
  const std::string prefix = text.substr(0, at + 3), suffix = text.substr(at + batches.size());
  const cache::DeviceQuery here = {info.name, info.sms, info.driver};
  size_t named = 0, more = 0;
  for (const FoundRecord& found : store.find_measured(prefix, suffix, target.name, here)) {
    const Record& record = found.record;
    auto there = parse_problem(record.problem);
    if (!there) {
      llvm::consumeError(there.takeError());
      continue;
    }
    const bool elsewhere = record.device != info.name || record.sms != info.sms;
    if (there->B == problem.B && !elsewhere) continue;  // a record of its own
    DeviceModel model = model_of(target);
    if (record.sms > 0) model.sms = record.sms;
    const bool before = out.corrections.empty();
    out.corrections.add(times_of(record.evidence, *there, target), model,
                        static_cast<double>(there->B) / static_cast<double>(problem.B));
    if (before && out.corrections.empty()) continue;
    if (named == kNamedAtMost) {
      ++more;
      continue;
    }
    out.from += (named++ == 0 ? "ranked by times of B=" : ", B=") + std::to_string(there->B);
    if (elsewhere) out.from += " on " + record.device;
  }
  if (more > 0) out.from += " and " + std::to_string(more) + " more";
  return out;
}

}  // namespace trigen
