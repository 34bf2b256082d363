// A tune's dealings with the store: records of choices, samples of candidates, its turn.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "check/text.h"
#include "tuner/evidence.h"
#include "tuner/session.h"

namespace trigen {

void Session::note_cache(const std::string& problem) {
  if (problem.empty() || cache_noted_) return;
  cache_noted_ = true;
  report_.stored = false;
  report_.notes.push_back("the cache was not written: " + problem);
}

bool Session::keep_existing() {
  if (options_.force || options_.config) return false;
  const DeviceInfo& info = device_->info();
  const auto found =
      store_.find_record(report_.problem, {report_.target}, {info.name, info.sms, info.driver});
  if (!found || found->match != Match::kExact || found->record.provenance != Provenance::kMeasured ||
      !is_complete(found->record.evidence, candidates_.size(), options_.objective)) {
    return false;
  }
  if (!keep(*found)) return false;
  report_.device = info.name;
  report_.driver = info.driver;
  report_.sms = info.sms;
  report_.stop_reason = waited_since_ != 0 ? "measured by another process" : "measured before";
  report_.notes.push_back((waited_since_ != 0
                               ? "took the measurement that another process stored meanwhile in "
                               : "kept the measurement in ") +
                          found->layer + "; --force measures again");
  return true;
}

bool Session::keep_prediction() {
  if (waited_since_ == 0) return false;
  const Record own = record_of(0);
  const auto found = store_.find_record(own.problem, {own.arch}, {own.device, own.sms, own.driver});
  if (!found || found->record.provenance != Provenance::kPredicted ||
      found->record.stored_at < waited_since_ || !keep(*found))
    return false;
  report_.stop_reason = "predicted by another process";
  report_.notes.push_back("took the choice that another process stored meanwhile in " + found->layer +
                          "; --force tunes again");
  return true;
}

bool Session::keep(const FoundRecord& found) {
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (report_.candidates[i].candidate != found.record.candidate) continue;
    if (render(candidates_[i]).hash != found.record.binary.source_hash)
      return false;  // the kernel has changed since
    report_.kept = true;
    report_.provenance = found.record.provenance;
    report_.chosen = found.record.candidate;
    report_.seconds = report_.lower_s = report_.upper_s = found.record.median_us * 1e-6;
    report_.error = found.record.error;
    report_.candidates[i].outcome = Outcome::kChosen;
    return true;
  }
  return false;
}

// Tunes of one name give one choice.
std::string Session::turn_name() const {
  const Record own = record_of(0);
  std::string name = "tune\n" + own.problem + "\n" + own.arch + "\n" + own.device + "\n" +
                     std::to_string(own.sms) + "\n" + own.driver + "\n" + to_string(options_.objective) +
                     "\n" + (options_.family != nullptr ? options_.family->name().str() : "");
  if (!measured()) name += format("\n%zu", options_.predict_candidates);
  return name;
}

std::unique_ptr<Store::Lease> Session::take_turn() {
  // A tune that lives takes its budget and its finals, twice that where the compiler is slow.
  constexpr double kLongest_s = 600;
  constexpr auto kPause = std::chrono::milliseconds(50);
  if (options_.config || options_.sample) return nullptr;
  const std::string name = turn_name();
  const double longest_s = std::max(kLongest_s, 2 * options_.search.budget_s);
  for (;;) {
    if (auto turn = store_.try_lease(name)) {
      if (waited_since_ != 0) start_ = std::chrono::steady_clock::now();  // the budget is for tuning
      return turn;
    }
    if (options_.force || cancelled()) return nullptr;
    if (elapsed() > longest_s) {
      report_.notes.push_back(format(
          "another process has been tuning this for %.0f s and is not done; tuned here too", elapsed()));
      start_ = std::chrono::steady_clock::now();
      return nullptr;
    }
    if (waited_since_ == 0) waited_since_ = static_cast<int64_t>(std::time(nullptr));
    show("waiting for another process's tune", 0, 1, 0, "");
    std::this_thread::sleep_for(kPause);
  }
}

void Session::resume() {
  if (options_.force) return;
  size_t taken = 0;
  const Record own = record_of(0);
  for (const Record& sample : store_.find_samples(report_.problem, report_.target, own.device)) {
    if (sample.driver != own.driver || sample.sms != own.sms) continue;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      CandidateReport& row = report_.candidates[i];
      if (row.candidate != sample.candidate || row.resumed) continue;
      if (render(candidates_[i]).hash != sample.binary.source_hash || !read_sample(sample.evidence, row))
        continue;
      row.resumed = true;
      keys_[i] = sample.binary;
      ++taken;
      if (row.outcome == Outcome::kTimed) {
        search_.timed(i, summarize(row.quick).median);
      } else {
        search_.failed(i);
      }
    }
  }
  if (taken > 0)
    report_.notes.push_back(format("resumed: %zu candidates were measured before the interruption", taken));
}

Record Session::record_of(size_t index) const {
  Record record;
  record.problem = report_.problem;
  record.arch = report_.target;
  record.candidate = report_.candidates[index].candidate;
  record.binary = keys_[index];
  record.error = report_.candidates[index].error;
  if (measured()) {
    record.device = device_->info().name;
    record.sms = device_->info().sms;
    record.driver = device_->info().driver;
  }
  return record;
}

void Session::store_sample(size_t index) {
  report_.candidates[index].at_s = elapsed();
  if (options_.sample) return;  // not checked yet: nothing for another tune to go on with
  Record record = record_of(index);
  const CandidateReport& row = report_.candidates[index];
  record.provenance = Provenance::kMeasured;
  record.median_us = summarize(row.quick).median * 1e6;
  record.evidence = sample_of(row);
  if (auto error = store_.put_sample(record)) note_cache(take_error(std::move(error)).message);
}

void Session::store_choice(size_t index, Provenance provenance) {
  CandidateReport& row = report_.candidates[index];
  row.outcome = Outcome::kChosen;
  report_.provenance = provenance;
  report_.chosen = row.candidate;
  report_.error = row.error;
  report_.tolerance = row.tolerance;
  report_.limiter =
      predict(candidates_[index], provenance == Provenance::kMeasured ? device_->model() : model_of(target_),
              row.resources.registers > 0 ? std::optional(row.resources) : std::nullopt)
          .limiter;
  report_.elapsed_s = elapsed();
  Record record = record_of(index);
  record.provenance = provenance;
  record.median_us = report_.seconds * 1e6;
  record.evidence = evidence_of(report_);
  if (auto error = store_.put_record(record)) note_cache(take_error(std::move(error)).message);
}

llvm::Expected<bool> Session::choose_predicted(size_t index, const Binary& binary) {
  keys_[index] = binary.key;
  auto right = check_emulated(index, binary);
  if (!right || !*right) return right;
  report_.seconds = report_.candidates[index].predicted_s;
  report_.complete = !cancelled();
  store_choice(index, Provenance::kPredicted);
  return true;
}

}  // namespace trigen
