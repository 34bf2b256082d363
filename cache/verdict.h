// Verdicts on a layer's file: its fault, and the text that says so.
#pragma once

#include <string>

#include "cache/database.h"
#include "cache/folder.h"
#include "cache/lock.h"

namespace trigen::cache {

enum class Health {
  kHealthy,
  kMissing,      // no such file: an ordinary miss
  kEmpty,        // no bytes: as good as missing
  kForeign,      // not a cache of ours; never touched
  kSchema,       // of another schema version; never touched
  kDamaged,      // ours, and SQLite cannot read it
  kLocked,       // somebody kept it longer than we wait
  kDenied,       // permissions
  kDistrust,     // others may write it, its folder or what lies beside it; nothing is touched
  kUnsigned,     // by none of the signers that the user asks for
  kReadOnly,     // file system or file
  kFull,         // disk, quota or file size limit
  kFailed,       // another system call failed
  kInterrupted,  // a writer died in a put and this reader can neither roll back nor look behind its journal
  kForked,       // this process is the child of a fork in the middle of an operation
};

struct Verdict {
  Health health = Health::kHealthy;
  std::string text;  // found, allowed, next step
  uint32_t schema = 0;
  bool stale = false;  // a handle of a network file system whose file was replaced
  bool healthy() const { return health == Health::kHealthy; }
  bool absent() const { return health == Health::kMissing || health == Health::kEmpty; }
};

// The judge of one layer's file.
class Judge {
 public:
  Judge(const LayerPlan& plan, const LockTimeout* timeout) : plan_(plan), timeout_(timeout) {}
  // A layer without a lock file beside it is a shipped one: it has no writers, and SQLite need not lock it
  // either.
  bool is_locked() const;
  FilePart part() const { return is_locked() ? FilePart::kLayer : FilePart::kShipped; }
  // Before anything is made or opened: who else may put files here, and what did they?
  Verdict check_place() const;
  // Before SQLite sees it: is it there and a file? Whose it is, the guard asks of the opened one.
  Verdict check_file() const;
  // After SQLite opened the file with this status: header, schema.
  Verdict check_opened(Database& database, SqlStatus status) const;

  Verdict verdict(Health health, const std::string& detail) const;
  Verdict from_errno(int error) const;
  Verdict judge(const SqlStatus& status) const;

 private:
  const LayerPlan& plan_;
  const LockTimeout* const timeout_;
};

}  // namespace trigen::cache
