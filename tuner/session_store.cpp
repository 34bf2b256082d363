// What a tune finds in the store and leaves there: records of choices, samples of candidates.
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
  const auto found = store_.find_record(report_.problem, report_.target, info.name, info.sms, info.driver);
  if (!found || found->match != Match::kExact || found->record.provenance != Provenance::kMeasured ||
      !is_complete(found->record.evidence, candidates_.size(), options_.objective)) {
    return false;
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (report_.candidates[i].candidate != found->record.candidate) continue;
    if (render(candidates_[i]).hash != found->record.binary.source_hash)
      return false;  // the kernel has changed since
    report_.kept = true;
    report_.device = info.name;
    report_.driver = info.driver;
    report_.sms = info.sms;
    report_.provenance = Provenance::kMeasured;
    report_.chosen = found->record.candidate;
    report_.seconds = report_.lower_s = report_.upper_s = found->record.median_us * 1e-6;
    report_.error = found->record.error;
    report_.candidates[i].outcome = Outcome::kChosen;
    report_.stop_reason = "measured before";
    report_.notes.push_back("kept the measurement in " + found->layer + "; --force measures again");
    return true;
  }
  return false;
}

void Session::resume() {
  if (!options_.resume || options_.force) return;
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
              row.resources.registers > 0 ? std::optional(row.resources) : std::nullopt, row.counts)
          .limiter;
  report_.counted = row.counts.has_value();
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
