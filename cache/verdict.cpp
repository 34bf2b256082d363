// What is wrong with a layer, in words: what was found, and what to do.
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>

#include "cache/filesystem.h"
#include "cache/layer.h"
#include "cache/signature.h"
#include "cache/trust.h"

namespace trigen::cache {

Verdict Layer::verdict(Health health, const std::string& detail) const {
  const std::string cache = "cache '" + plan_.path + "'";
  const std::string why = detail.empty() ? "" : " (" + detail + ")";
  const char* const another = plan_.user ? "set TRIGEN_CACHE to another file" : "replace it";
  Verdict v;
  v.health = health;
  switch (health) {
    case Health::kHealthy:
      break;
    case Health::kMissing:
      v.text = cache + " does not exist";
      break;
    case Health::kEmpty:
      v.text = cache + " is empty";
      break;
    case Health::kForeign:
      v.text = "'" + plan_.path + "' is not a trigen cache" + why +
               "; it is left alone and not used; move it away or " + another;
      break;
    case Health::kSchema:
      v.text = cache + " is of another version" + why +
               "; it is left alone and not used; use the trigen that wrote it or " + another;
      break;
    case Health::kDamaged:
      v.text = cache + " is damaged" + why + "; it is not used; " + another;
      break;
    case Health::kLocked:
      v.text = cache + " is locked by another program" + why + " for longer than " +
               std::to_string(patience_->busy_ms()) +
               " ms; locks last milliseconds; end the program that keeps it or " + another;
      break;
    case Health::kDenied:
      v.text = cache + " may not be used by uid " + std::to_string(::geteuid()) + why +
               "; file and folder must be yours" +
               (plan_.user ? " and writable" : " or root's and readable") + "; correct the permissions or " +
               another;
      break;
    case Health::kDistrust:
      v.text = cache + " is not trusted" + why +
               "; nothing was touched; whoever may write a cache, its folder or a file beside it can change "
               "kernels and have files deleted, so they must be yours or root's alone: correct owner and "
               "mode, use a folder of mode 0700, or list the folder in " +
               kTrustedFolders;
      break;
    case Health::kUnsigned:
      v.text = cache + " is not used, because " + kTrustedKeys + " or trusted_keys asks for signatures: it " +
               detail;
      break;
    case Health::kReadOnly:
      v.text = cache + " is read-only" + why +
               "; look-ups may go on, storing needs a writable file and folder; " + another;
      break;
    case Health::kFull:
      v.text =
          "no space left for cache '" + plan_.path + "'" + why +
          "; nothing was stored, what was there is intact; free space (disk, quota or file size limit) or " +
          another;
      break;
    case Health::kFailed:
      v.text = cache + " cannot be used" + why + "; it needs a local file system that works; " + another;
      break;
    case Health::kInterrupted:
      v.text = cache + " has the journal of a writer that died, and cannot be read behind it" + why +
               "; any put of a process that may write it repairs it, or " + another;
      break;
    case Health::kForked:
      v.text = cache +
               " is off in this process: it was forked in the middle of a cache operation; fork between "
               "operations or "
               "start the process with exec";
      break;
  }
  return v;
}

Verdict Layer::from_errno(int error) const {
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

Verdict Layer::judge(const SqlStatus& status) const {
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
