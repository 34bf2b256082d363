#include "runtime/learnt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace trigen {
namespace {

using nlohmann::json;

// The batch size of the record's problem, if it is `problem` but for that.
std::optional<Problem> at_any_batch(const Record& record, const Problem& problem) {
  auto there = parse_problem(record.problem);
  if (!there) {
    llvm::consumeError(there.takeError());
    return std::nullopt;
  }
  Problem same = *there;
  same.B = problem.B;
  if (to_string(same) != to_string(problem)) return std::nullopt;
  return *there;
}

// What a tune timed alone, of candidates that are some today (tuner/evidence.cpp writes them).
std::vector<Lessons::Timed> times_of(const std::string& evidence, const Problem& problem,
                                     const Target& target) {
  std::vector<Lessons::Timed> times;
  const json value = json::parse(evidence, nullptr, false);
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

Learnt learn(const Problem& problem, const Target& target, const Device& device, Store& store) {
  Learnt out;
  const DeviceInfo& info = device.info();
  for (const FoundRecord& found : store.list_records()) {
    const Record& record = found.record;
    if (record.arch != target.name || record.provenance != Provenance::kMeasured) continue;
    const auto there = at_any_batch(record, problem);
    if (!there) continue;
    const bool elsewhere = record.device != info.name || record.sms != info.sms;
    if (there->B == problem.B && !elsewhere) continue;  // a record of its own
    DeviceModel model = model_of(target);
    if (record.sms > 0) model.sms = record.sms;
    const auto times = times_of(store.find_evidence(found), *there, target);
    const bool before = out.lessons.empty();
    out.lessons.add(times, model, static_cast<double>(there->B) / static_cast<double>(problem.B));
    if (before && out.lessons.empty()) continue;
    out.from += (out.from.empty() ? "ranked by times of B=" : ", B=") + std::to_string(there->B);
    if (elsewhere) out.from += " on " + record.device;
  }
  return out;
}

}  // namespace trigen
