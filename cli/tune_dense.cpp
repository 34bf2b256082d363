#include "cli/tune_dense.h"

#include <algorithm>

#include "cache/host.h"
#include "check/text.h"
#include "cli/problem_options.h"
#include "generator/cost/dense.h"
#include "generator/slow_path.h"
#include "peers/compare.h"

namespace trigen::cli {
namespace {

BesideDense times_of(const TuneReport& report) {
  return {report.seconds, report.provenance == Provenance::kMeasured, report.dense_s, report.dense_measured};
}

// cuBLAS's time of one run with the choice where that can be had, else an estimate, and why.
std::vector<std::string> add_dense(TuneReport& report, const Problem& problem, const Target& target,
                                   const Device* device, Store& store, const DenseOptions& options) {
  const bool measured = report.provenance == Provenance::kMeasured && device != nullptr;
  report.dense_s = measured ? dense_seconds(problem, device->gpu(), device->model())
                            : dense_seconds(problem, target, model_of(target));
  if (!measured || report.kept || report.dense_s == 0 || options.cancel->load()) return {};
  CompareOptions compare_options;
  compare_options.rounds = 11;
  compare_options.seed = options.seed;
  compare_options.cancel = options.cancel;
  auto compared = compare(problem, *device, store, compare_options);
  if (!compared) return {"dense is an estimate: " + take_error(compared.takeError()).message};
  for (const ComparedArm& arm : compared->arms) {
    if (&arm == &compared->arms.front() || arm.ratio <= 0) continue;
    const double seconds = report.seconds * arm.ratio;  // of one run, as the clocks were there
    if (!report.dense_measured || seconds < report.dense_s) report.dense_s = seconds;
    report.dense_measured = true;
  }
  std::vector<std::string> notes;
  if (!report.dense_measured)
    for (const std::string& note : compared->notes) notes.push_back("dense is an estimate: " + note);
  return notes;
}

// In words, for whom a column of times says nothing; the report has all of them, for --json.
void add_remarks(TuneReport& report, const Problem& problem, const Target& target,
                 std::vector<std::string>& remarks) {
  const std::string dense = dense_remark(problem.op, times_of(report));
  if (!dense.empty()) report.notes.push_back(dense);
  auto candidate = parse_candidate(problem, target, report.chosen);
  if (!candidate) return llvm::consumeError(candidate.takeError());
  const std::string slow = slow_path_warning(*candidate, target);
  if (slow.empty()) return;
  report.notes.push_back(slow);
  if (std::find(remarks.begin(), remarks.end(), slow) == remarks.end()) remarks.push_back(slow);
}

// One remark on the problems that a dense product is faster for, or may be.
std::string dense_remark_of(const std::vector<TuneReport>& reports, const std::vector<Problem>& problems) {
  std::vector<const TuneReport*> lost;
  std::string product, remark;  // of the last one that was lost
  size_t close = 0;             // of these, where only timing both can tell
  for (size_t i = 0; i < reports.size(); ++i) {
    const TuneReport& report = reports[i];
    const BesideDense times = times_of(report);
    const std::string one = dense_remark(problems[i].op, times);
    if (one.empty()) continue;
    remark = one;
    const std::string name = dense_product(problems[i].op);
    product = lost.empty() || product == name ? name : "a dense product";
    lost.push_back(&report);
    close += verdict_of(times) == DenseVerdict::kClose && !times.dense_measured ? 1 : 0;
  }
  if (lost.empty()) return "";
  if (lost.size() == 1) return short_problem(lost.front()->problem) + ": " + remark;
  std::string text = format("%s %s as fast or faster for %zu of %zu problems", product.c_str(),
                            close == 0 ? "is" : "is or may be", lost.size(), reports.size());
  text += close == 0 ? ":" : format(" (%zu too close to tell: time both):", close);
  for (const TuneReport* report : lost)
    text += "\n  " + short_problem(report->problem) + "  " + format_seconds(report->dense_s) +
            (report->dense_measured ? "" : " est.") + " beside " + format_seconds(report->seconds);
  return text;
}

}  // namespace

DenseWords stand_beside_dense(std::vector<TuneReport>& reports, const std::vector<Problem>& problems,
                              const Target& target, llvm::ArrayRef<const Device*> stations, Store& store,
                              const DenseOptions& options) {
  DenseWords words;
  std::vector<const Device*> devices;  // in this process
  for (const Device* station : stations) {
    if (station->info().emulated) continue;
    if (auto opened = Device::open(std::to_string(station->info().ordinal)))
      devices.push_back(*opened);
    else
      words.notes.push_back("dense is an estimate: " + take_error(opened.takeError()).message);
  }
  // Each device times what was measured on its kind, beside the others.
  std::vector<std::vector<std::string>> notes(reports.size());
  std::vector<std::atomic<bool>> taken(reports.size());
  const auto time_on = [&](const Device* device) {
    for (size_t i = 0; i < reports.size(); ++i)
      if ((device == nullptr || device->info().name == reports[i].device) && !taken[i].exchange(true))
        notes[i] = add_dense(reports[i], problems[i], target, device, store, options);
  };
  std::atomic<size_t> next{0};
  on_threads(devices.size(), [&] {
    for (size_t i = next++; i < devices.size(); i = next++) time_on(devices[i]);
  });
  time_on(nullptr);  // what is left
  for (size_t i = 0; i < reports.size(); ++i) {
    reports[i].notes.insert(reports[i].notes.end(), notes[i].begin(), notes[i].end());
    words.notes.insert(words.notes.end(), notes[i].begin(), notes[i].end());
    add_remarks(reports[i], problems[i], target, words.remarks);
  }
  const std::string dense = dense_remark_of(reports, problems);
  if (!dense.empty()) words.remarks.insert(words.remarks.begin(), dense);
  return words;
}

}  // namespace trigen::cli
