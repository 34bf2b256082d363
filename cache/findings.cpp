#include "cache/findings.h"

#include "cache/environment.h"
#include "cache/filesystem.h"
#include "cache/fork.h"
#include "cache/row.h"
#include "generator/error.h"

namespace trigen::cache {

void Findings::add(const Finding& finding) {
  const bool wrong = finding.kind == FindingKind::kCanary && finding.value == 0;
  if (wrong || finding.kind == FindingKind::kImport) {
    if (marks_.use_count() > 1) marks_ = std::make_shared<Marks>(*marks_);
    (wrong ? marks_->quarantined : marks_->imported).insert(finding.name);
  }
  known_.insert_or_assign(Key(finding.kind, finding.name, finding.device, finding.driver), finding);
}

template <typename Use>
void Findings::with(Use use) {
  std::vector<Finding> stored;
  bool loaded = false;
  {
    const Operation operation;  // as in Log::once
    if (!operation.allowed()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    loaded = loaded_;
  }
  // Outside the lock: the layer may have to be waited for.
  if (!loaded && user_ != nullptr)
    user_->read([&](Database& database) { return read_findings(database, home_of(user_->path()), stored); });
  const Operation operation;
  if (!operation.allowed()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!loaded_)
    for (const Finding& finding : stored) add(finding);
  loaded_ = true;
  use();
}

std::optional<Finding> Findings::find(FindingKind kind, llvm::StringRef name, llvm::StringRef device,
                                      llvm::StringRef driver) {
  std::optional<Finding> found;
  with([&] {
    const auto at = known_.find(Key(kind, name.str(), device.str(), driver.str()));
    if (at != known_.end()) found = at->second;
  });
  return found;
}

std::shared_ptr<const Findings::Marks> Findings::marks() {
  std::shared_ptr<const Marks> marks;
  with([&] { marks = marks_; });
  return marks ? marks : std::make_shared<Marks>();
}

llvm::Error Findings::put(const Finding& finding) {
  const bool may_wait = finding.kind == FindingKind::kCanary && finding.value == 1;
  bool waits = false;
  with([&] {
    add(finding);
    if (user_ != nullptr) unwritten_.push_back(finding);
    waits = may_wait && Clock::now() < write_after_;
  });
  if (user_ == nullptr)
    return make_error(ErrorKind::kCache, "no cache to store in; set TRIGEN_CACHE to a file");
  return waits ? llvm::Error::success() : flush();
}

llvm::Error Findings::flush() {
  // A write waits for the disk four times: a process that makes many plans spends a twentieth on them at most.
  constexpr int kShare = 20;
  std::vector<Finding> taken;
  with([&] { taken.swap(unwritten_); });
  if (taken.empty() || user_ == nullptr) return llvm::Error::success();
  const Clock::time_point since = Clock::now();
  llvm::Error error = user_->write([&](Database& database) {
    SqlStatus status;
    for (const Finding& finding : taken)
      if (status.ok()) status = put_finding_row(database, finding);
    return status;
  });
  const Clock::time_point until = Clock::now();
  with([&] { write_after_ = until + kShare * (until - since); });
  return error;
}

std::vector<Finding> Findings::list() {
  std::vector<Finding> list;
  with([&] {
    for (const auto& [key, finding] : known_) list.push_back(finding);
  });
  return list;
}

llvm::Error Findings::clear(FindingKind kind) {
  with([&] {
    for (auto at = known_.begin(); at != known_.end();)
      at = std::get<0>(at->first) == kind ? known_.erase(at) : std::next(at);
    if (kind == FindingKind::kCanary) marks_ = std::make_shared<Marks>(Marks{{}, marks_->imported});
  });
  if (user_ == nullptr) return llvm::Error::success();
  return user_->write([&](Database& database) {
    Statement table(database, "SELECT 1 FROM sqlite_schema WHERE name='findings'");
    if (!table.step()) return table.status();
    Statement erase(database, "DELETE FROM findings WHERE kind=?");
    erase.bind_int(static_cast<int>(kind));
    erase.step();
    return erase.status();
  });
}

Signers signers_of(TrustedKeys trusted, Findings& findings) {
  Signers signers;
  signers.trusted = std::move(trusted);
  signers.newest = [&findings](const std::string& name) {
    const auto found = findings.find(FindingKind::kSignature, name, "", "");
    return found && found->value <= latest_date() ? found->value : 0;
  };
  signers.remember = [&findings, newest = signers.newest](const std::string& name, int64_t timestamp) {
    if (timestamp <= newest(name)) return;
    Finding finding;
    finding.kind = FindingKind::kSignature;
    finding.name = name;
    finding.value = timestamp;
    llvm::consumeError(findings.put(finding));  // known to this process at least
  };
  return signers;
}

UserLayer::UserLayer(const Store::Options& options)
    : patience_(options.busy_ms),
      log_([](const std::string&) {}),
      signers_(signers_of(trusted_keys(options.trusted_keys), findings_)) {
  for (LayerPlan& plan : plan_layers(options.layers)) {
    if (!plan.user || layer_) continue;
    stands_for_ = plan.stands_for;
    layer_.emplace(std::move(plan), options.read_only, &patience_, &log_, &signers_);
    findings_.keep_in(&*layer_);
  }
}

llvm::Expected<Layer*> UserLayer::get() {
  if (layer_) return &*layer_;
  return make_error(ErrorKind::kCache,
                    "no cache file to write: bundles are never written to; name one with --cache or in "
                    "TRIGEN_CACHE");
}

}  // namespace trigen::cache
