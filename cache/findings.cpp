#include "cache/findings.h"

#include <ctime>

#include "cache/host.h"
#include "cache/lock.h"
#include "cache/row.h"
#include "generator/error.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cache {
namespace {

bool has_findings(Database& database, SqlStatus& status) {
  Statement table(database, "SELECT 1 FROM sqlite_schema WHERE name='findings'");
  const bool there = table.step();
  status = table.status();
  return there;
}

bool names_home(Database& database, const std::string& home, SqlStatus& status) {
  Statement there(database, "SELECT 1 FROM findings WHERE kind=? AND name=?");
  there.bind_int(static_cast<int>(FindingKind::kHome)).bind_text(home);
  const bool named = there.step();
  status = there.status();
  return named;
}

// FindingKind: canaries that went well, and the homes.
constexpr char kForgetHome[] = "DELETE FROM findings WHERE (kind=1 AND value=1) OR kind=3";

SqlStatus list_as_imported(Database& database, std::vector<Finding>& findings) {
  Statement rows(database,
                 "SELECT digest,candidate FROM binaries UNION ALL SELECT digest,candidate FROM records");
  rows.allow_bytes(kMaxFieldBytes);
  while (!rows.spent() && rows.step()) {
    Finding imported;
    imported.kind = FindingKind::kImport;
    imported.name = llvm::toHex(rows.blob(), /*LowerCase=*/true);
    imported.text = rows.text();
    findings.push_back(std::move(imported));
  }
  return rows.status();
}

}  // namespace

SqlStatus put_finding_row(Database& database, const Finding& finding) {
  std::string create = kCreateFindings;
  create.insert(create.find("findings"), "IF NOT EXISTS ");
  if (SqlStatus status = database.run(create.c_str()); !status.ok()) return status;
  Finding row = finding;
  if (row.stored_at == 0) row.stored_at = std::time(nullptr);
  const std::string digest = finding_digest(row);
  Statement insert(database, "INSERT OR REPLACE INTO findings VALUES (?,?,?,?,?,?,?,?)");
  insert.bind_int(static_cast<int>(row.kind)).bind_text(row.name).bind_text(row.device).bind_text(row.driver);
  insert.bind_int(row.value).bind_text(row.text).bind_int(row.stored_at).bind_blob(digest);
  insert.step();
  return insert.status();
}

SqlStatus read_findings(Database& database, const std::string& home, std::vector<Finding>& findings) {
  findings.clear();
  SqlStatus status;
  if (has_findings(database, status)) {
    Statement rows(database, "SELECT * FROM findings ORDER BY stored_at,rowid");
    rows.allow_bytes(kMaxFieldBytes);
    while (!rows.spent() && rows.step()) {
      Finding finding;
      finding.kind = static_cast<FindingKind>(rows.integer());
      finding.name = rows.text();
      finding.device = rows.text();
      finding.driver = rows.text();
      finding.value = rows.integer();
      finding.text = rows.text();
      finding.stored_at = rows.integer();
      if (rows.blob() == finding_digest(finding)) findings.push_back(std::move(finding));
    }
    status = rows.status();
  }
  if (!status.ok()) return status;
  const bool moved = llvm::none_of(
      findings, [&](const Finding& f) { return f.kind == FindingKind::kHome && f.name == home; });
  llvm::erase_if(findings, [&](const Finding& f) {
    return f.kind == FindingKind::kHome || (moved && f.kind == FindingKind::kCanary && f.value == 1);
  });
  if (moved) status = list_as_imported(database, findings);
  return status;
}

bool is_at_home(Database& database, const std::string& home) {
  SqlStatus status;
  if (has_findings(database, status)) {
    if (names_home(database, home, status)) return true;
  }
  Statement rows(database, "SELECT EXISTS(SELECT 1 FROM binaries) OR EXISTS(SELECT 1 FROM records)");
  return rows.step() && rows.integer() == 0;
}

SqlStatus settle(Database& database, const std::string& home) {
  SqlStatus status;
  if (has_findings(database, status)) {
    if (names_home(database, home, status)) return {};
    if (status.ok()) status = database.run(kForgetHome);
  }
  std::vector<Finding> imported;
  if (status.ok()) status = list_as_imported(database, imported);
  for (const Finding& finding : imported)
    if (status.ok()) status = put_finding_row(database, finding);
  Finding here;
  here.kind = FindingKind::kHome;
  here.name = home;
  return status.ok() ? put_finding_row(database, here) : status;
}

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
    SqlStatus status;
    if (!has_findings(database, status)) return status;
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

}  // namespace trigen::cache
