#include "cache/findings.h"

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

}  // namespace trigen::cache
