#include "cache/verdict.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "cache/host.h"
#include "cache/row.h"
#include "cache/signature.h"
#include "cache/trust.h"
#include "llvm/Support/FormatVariadic.h"

namespace trigen::cache {
namespace {

std::string hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

// {0} the cache, {1} the detail in brackets, {2} another way for the user, {3} the path, {4} the detail, {5} the
// lock timeout, {6} the uid, {7} its rights, {8} and {9} variables.
const char* words_of(Health health) {
  switch (health) {
    case Health::kHealthy:
      return "";
    case Health::kMissing:
      return "{0} does not exist";
    case Health::kEmpty:
      return "{0} is empty";
    case Health::kForeign:
      return "{3} is not a trigen cache{1}; it is left alone and not used; move it away or {2}";
    case Health::kSchema:
      return "{0} is of another version{1}; it is left alone and not used; use the trigen that wrote it or "
             "{2}";
    case Health::kDamaged:
      return "{0} is damaged{1}; it is not used; {2}";
    case Health::kLocked:
      return "{0} is locked by another program{1} for longer than {5} ms; locks last milliseconds; end the "
             "program that keeps it or {2}";
    case Health::kDenied:
      return "{0} may not be used by uid {6}{1}; file and folder must be yours{7}; correct the permissions "
             "or {2}";
    case Health::kDistrust:
      return "{0} is not trusted{1}; nothing was touched; whoever may write a cache, its folder or a file "
             "beside "
             "it can change kernels and have files deleted, so they must be yours or root's alone: correct "
             "owner "
             "and mode, use a folder of mode 0700, or list the folder in {8}";
    case Health::kUnsigned:
      return "{0} is not used, because {9} or trusted_keys asks for signatures: it {4}";
    case Health::kReadOnly:
      return "{0} is read-only{1}; look-ups may go on, storing needs a writable file and folder; {2}";
    case Health::kFull:
      return "no space left for {0}{1}; nothing was stored, what was there is intact; free space (disk, "
             "quota or "
             "file size limit) or {2}";
    case Health::kFailed:
      return "{0} cannot be used{1}; it needs a local file system that works; {2}";
    case Health::kInterrupted:
      return "{0} has the journal of a writer that died, and cannot be read behind it{1}; any put of a "
             "process "
             "that may write it repairs it, or {2}";
    case Health::kForked:
      return "{0} is off in this process: it was forked in the middle of a cache operation; fork between "
             "operations or start the process with exec";
  }
  return "";
}

}  // namespace

bool Judge::is_locked() const {
  return !is_bundle(plan_.path) && !plan_.unlocked &&
         (plan_.user || ::access((plan_.path + ".lock").c_str(), F_OK) == 0);
}

Verdict Judge::check_place() const {
  constexpr size_t kLongestPath = 500;  // SQLite's VFS ends at 512 bytes, "-journal" and all
  if (plan_.path.size() > kLongestPath)
    return verdict(Health::kFailed, "its path has " + std::to_string(plan_.path.size()) + " bytes, at most " +
                                        std::to_string(kLongestPath) + " are allowed");
  std::string reason = distrust_of_folder(folder_of(plan_.path), part());
  if (reason.empty()) reason = distrust_of_companions(plan_.path);
  return reason.empty() ? Verdict() : verdict(Health::kDistrust, reason);
}

Verdict Judge::check_file() const {
  struct stat file = {};
  if (::stat(plan_.path.c_str(), &file) != 0) return from_errno(errno == ENOTDIR ? ENOENT : errno);
  if (!S_ISREG(file.st_mode))
    return verdict(Health::kForeign, !S_ISDIR(file.st_mode) ? "not a regular file"
                                     : plan_.user           ? "a folder"
                                                            : "a folder without *.trigen or *.db");
  if (file.st_size == 0) return verdict(Health::kEmpty, "");
  return {};
}

Verdict Judge::check_opened(Database& database, SqlStatus status) const {
  if (!status.ok() && status.primary() != SQLITE_NOTADB && status.primary() != SQLITE_CORRUPT)
    return judge(status);
  // The first read: takes SQLite's lock, rolls an interrupted transaction back, and meets truncation.
  std::string what;
  const bool bundle = is_bundle(plan_.path);
  const SchemaFit fit = fit_schema(database, bundle, status, what);
  const bool unreadable = status.primary() == SQLITE_CORRUPT || status.primary() == SQLITE_NOTADB;
  if (!status.ok() && !unreadable) return judge(status);
  const FileHeader header = database.header();
  const uint32_t ours = bundle ? kBundleId : kApplicationId;
  Verdict v;
  if (header.size == 0) {
    v = verdict(Health::kEmpty, "");
  } else if (!header.sqlite) {
    v = verdict(plan_.by_default && plan_.user ? Health::kDamaged : Health::kForeign, "no SQLite header");
  } else if (!bundle && header.application_id == kBundleId) {
    v = verdict(Health::kForeign, "a bundle, whose name ends in .trigen");
  } else if (header.application_id != ours) {
    v = verdict(Health::kForeign,
                "a SQLite file with application id " + hex(header.application_id) + ", not " + hex(ours));
  } else if (header.user_version != kSchemaVersion) {
    v = verdict(Health::kSchema, "schema " + std::to_string(header.user_version) +
                                     ", this trigen reads schema " + std::to_string(kSchemaVersion));
  } else if (unreadable) {
    v = judge(status);
  } else if (fit != SchemaFit::kOurs) {
    // Without its tables nothing can be stored in it; with a stranger's besides it may be somebody's work.
    v = verdict(fit == SchemaFit::kLacks ? Health::kDamaged : Health::kForeign, what);
  }
  if (header.sqlite && header.application_id == ours) v.schema = header.user_version;
  return v;
}

Verdict Judge::verdict(Health health, const std::string& detail) const {
  Verdict v;
  v.health = health;
  v.text =
      llvm::formatv(words_of(health), "cache '" + plan_.path + "'", detail.empty() ? "" : " (" + detail + ")",
                    plan_.user ? "set TRIGEN_CACHE to another file" : "replace it", "'" + plan_.path + "'",
                    detail, std::to_string(timeout_->busy_ms()), std::to_string(::geteuid()),
                    plan_.user ? " and writable" : " or root's and readable", kTrustedFolders, kTrustedKeys);
  return v;
}

Verdict Judge::from_errno(int error) const {
  const std::string detail = errno_text(error);
  switch (error) {
    case ENOENT:
      return verdict(Health::kMissing, "");
    case EACCES:
    case EPERM:
      return verdict(Health::kDenied, detail);
    case EROFS:
      return verdict(Health::kReadOnly, detail);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return verdict(Health::kFull, detail);
    default: {
      Verdict v = verdict(Health::kFailed, detail);
      v.stale = error == ESTALE;
      return v;
    }
  }
}

Verdict Judge::judge(const SqlStatus& status) const {
  if (status.ok()) return {};
  if (status.refused) return verdict(Health::kDistrust, status.text);
  const std::string system = status.error != 0 ? errno_text(status.error) : "";
  const std::string detail = status.text + (system.empty() ? "" : ", " + system);
  switch (status.primary()) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return verdict(Health::kLocked, detail);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return verdict(Health::kDamaged, detail);
    case SQLITE_READONLY:
      if (status.code == SQLITE_READONLY_ROLLBACK) return verdict(Health::kInterrupted, detail);
      return verdict(Health::kReadOnly, detail);
    case SQLITE_FULL:
      return verdict(Health::kFull, detail);
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return verdict(Health::kDenied, detail);
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR: {
      Verdict v = from_errno(status.error);
      if (v.health != Health::kMissing && v.health != Health::kFailed) return v;
      Verdict failed = verdict(Health::kFailed, detail);
      failed.stale = v.stale;
      return failed;
    }
    default:
      return verdict(Health::kFailed, detail);
  }
}

}  // namespace trigen::cache
