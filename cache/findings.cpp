#include "cache/findings.h"

#include "cache/fork.h"
#include "cache/row.h"
#include "generator/error.h"

namespace trigen::cache {

void Findings::add(const Finding& finding) {
  if (finding.kind == FindingKind::kCanary && finding.value == 0) marks_.quarantined.insert(finding.name);
  if (finding.kind == FindingKind::kImport) marks_.imported.insert(finding.name);
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
    user_->read([&](Database& database) { return read_findings(database, stored); });
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

Findings::Marks Findings::marks() {
  Marks marks;
  with([&] { marks = marks_; });
  return marks;
}

llvm::Error Findings::put(const Finding& finding) {
  with([&] { add(finding); });
  if (user_ == nullptr)
    return make_error(ErrorKind::kCache, "no cache to store in; set TRIGEN_CACHE to a file");
  return user_->write([&](Database& database) { return put_finding_row(database, finding); });
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
    if (kind == FindingKind::kCanary) marks_.quarantined.clear();
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
