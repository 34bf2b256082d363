#include "runtime/canary.h"

#include <atomic>
#include <map>
#include <mutex>

#include "runtime/canary_run.h"
#include "runtime/log.h"

namespace trigen {

namespace {

std::atomic<int64_t> counts[3];  // by CanaryResult

std::optional<cache::Finding> find_finding(const Binary& binary, const Device& device, Store& store) {
  return store.find_finding(cache::FindingKind::kCanary, binary.finding_name(), device.info().name,
                            device.info().driver);
}

CanaryReport counted(CanaryReport report) {
  ++counts[static_cast<int>(report.result)];
  return report;
}

}  // namespace

CanaryCounts canary_counts() {
  const auto of = [](CanaryResult result) { return counts[static_cast<int>(result)].load(); };
  return {of(CanaryResult::kRight), of(CanaryResult::kWrong), of(CanaryResult::kSkipped)};
}

bool needs_canary(const Resolution& resolution, const Device& device, Store& store,
                  const PlanOptions& options) {
  if (!options.canary) return false;
  const Binary& binary = resolution.binary;
  const bool checked =
      resolution.provenance == Provenance::kMeasured && resolution.origin == BinaryOrigin::kCache;
  if (!binary.shipped && (checked || (device.info().emulated && !options.canary_emulated))) return false;
  const auto found = find_finding(binary, device, store);
  return !found || found->value != 1;
}

bool is_quarantined(const Binary& binary, const Device& device, Store& store) {
  const auto found = find_finding(binary, device, store);
  return found && found->value == 0;
}

CanaryReport run_canary(const Plan& plan) { return counted(run_on_batches(plan)); }

namespace {

// Says once what is wrong and what comes next. The error for a report of a loss.
llvm::Error keep_finding(const CanaryReport& report, const Resolution& resolution, const Device& device,
                         Store& store, bool& kept) {
  const std::string what = describe(resolution.candidate) + " for " + to_string(resolution.candidate.problem);
  cache::Finding finding;
  finding.kind = cache::FindingKind::kCanary;
  finding.name = resolution.binary.finding_name();
  finding.device = device.info().name;
  finding.driver = device.info().driver;
  finding.value = report.result == CanaryResult::kRight ? 1 : 0;
  const bool shipped = resolution.binary.shipped;
  const std::string from =
      shipped ? " of cache '" + resolution.binary.layer + "'" : ", compiled on this machine,";
  finding.text = what + (shipped ? " of " + resolution.binary.layer : ", compiled on this machine") +
                 (report.text.empty() ? "" : ": " + report.text);
  std::string problem;
  if (llvm::Error error = store.put_finding(finding)) problem = take_error(std::move(error)).message;
  kept = problem.empty();
  if (report.result == CanaryResult::kRight) return llvm::Error::success();
  const std::string fails =
      "kernel " + what + from + " fails its canary on " + device.info().name + " (" + report.text + ")";
  if (!report.lost.empty())
    return make_error(
        ErrorKind::kDevice,
        fails + ": " + report.lost + "; " +
            (kept ? "it is in quarantine: start the process again, which takes another kernel"
                  : "it cannot be put in quarantine (" + problem +
                        "), so the process must not meet it when it is started again: let TRIGEN_CACHE "
                        "name a file that can be written, or take that kernel's cache file away"));
  log_once(
      LogLevel::kWarning, finding.name,
      "wrong: " + fails + "; it is in quarantine" + (kept ? "" : " for this process (" + problem + ")") +
          " and another one is taken; `trigen cache quarantine` shows it, TRIGEN_CANARY=0 runs kernels "
          "unseen; " +
          (shipped ? "tell whoever made that file" : "please report it, with what `trigen doctor` says"));
  return llvm::Error::success();
}

// The canaries that took a device from this process.
struct Losses {
  std::mutex mutex;
  std::map<const Device*, std::string> texts;
  static Losses& get() {
    static Losses* const losses = new Losses;
    return *losses;
  }
};

}  // namespace

llvm::Expected<CanaryResult> try_canary(const Plan& plan, const Device& device, Store& store) {
  const Resolution& resolution = plan.resolution();
  bool unended = false, kept = true;
  auto mark = store.try_mark(
      "canary\n" + resolution.binary.finding_name() + "\n" + device.info().name + "\n" + device.info().driver,
      unended);
  const CanaryReport report =
      unended ? counted({CanaryResult::kWrong,
                         "one began and never ended: its process was killed, or did not live through it"})
              : run_canary(plan);
  if (report.result == CanaryResult::kSkipped) return report.result;
  llvm::Error loss = keep_finding(report, resolution, device, store, kept);
  if (!kept && report.result == CanaryResult::kWrong) (void)mark.release();  // says so to the next process
  if (!loss) return report.result;
  const ErrorText text = take_error(std::move(loss));
  Losses& losses = Losses::get();
  const std::lock_guard<std::mutex> lock(losses.mutex);
  losses.texts.try_emplace(&device, text.message);
  return make_error(text.kind, text.message);
}

llvm::Error refuse_lost(const Device& device) {
  Losses& losses = Losses::get();
  const std::lock_guard<std::mutex> lock(losses.mutex);
  const auto found = losses.texts.find(&device);
  if (found == losses.texts.end()) return llvm::Error::success();
  return make_error(ErrorKind::kDevice,
                    "no plan can be made on this device in this process any more: " + found->second);
}

}  // namespace trigen
