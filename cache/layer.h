// One layer: a cache file, how it is opened, what can be wrong with it, and what is done about that.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "cache/connection.h"
#include "cache/index.h"
#include "cache/lock.h"
#include "cache/patience.h"
#include "cache/signed_file.h"
#include "cache/store.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen::cache {

// One line per distinct problem, however often it comes.
class Log {
 public:
  explicit Log(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}
  void once(const std::string& line);

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;
  std::function<void(const std::string&)> sink_;
};

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
  kUnsigned,     // of nobody whose signature the user asks for
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

struct LayerPlan {
  std::string path;
  bool user = false;        // puts go here
  bool by_default = false;  // trigen chose the path, nobody named it
  bool own = false;         // where this user's trigen writes: what it wrote there needs no signature
  bool unlocked = false;    // read without locks, though a lock file lies beside it: a network file system
  std::string stands_for = {};  // of a spool: the user layer's own path (cache/spool.h)
};

// A bundle by its name, *.trigen: one immutable file, which is never locked, written or journalled.
bool is_bundle(llvm::StringRef path);

// The layers that Options::layers stands for; the first one that is no bundle is the user layer. None where
// `none` alone is named, there or in TRIGEN_CACHE: no cache file is read or written.
std::vector<LayerPlan> plan_layers(const std::vector<std::string>& named);
// One file that is only read, whatever would be written in its stead.
LayerPlan plan_reading(const std::string& path);
// The installation prefixes that a folder of code lies below, nearest first: what is above "lib" or "bin".
std::vector<std::string> prefixes_of(llvm::StringRef folder);

class Layer {
 public:
  using Work = llvm::function_ref<SqlStatus(Database&)>;

  Layer(LayerPlan plan, bool read_only, Patience* patience, Log* log, const Signers* signers);
  ~Layer() { publish(/*now=*/true); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // Opens, checks, runs `work`, closes. False when the layer cannot be read: that is logged, and a damaged
  // user layer is set aside.
  bool read(Work work);
  // The same without logging and without touching anything.
  Verdict inspect(Work work);
  // In one transaction, in a file that is made when it is not there.
  llvm::Error write(Work work);
  // Writes the file anew without its free pages; its bytes after that.
  llvm::Error compact(int64_t& bytes);
  LayerInfo info();

  IndexKeeper& index() { return index_; }
  const std::string& path() const { return plan_.path; }
  std::string lock_path() const { return plan_.path + ".lock"; }
  bool user() const { return plan_.user; }
  bool stores() const { return plan_.user && !read_only_; }
  // Healthy when a file may be made or written here: looks who else may, then makes the folder, 0700.
  Verdict prepare() const;

 private:
  Verdict open_checked(Database& database, OpenMode mode, Clock::time_point deadline) const;
  bool is_locked_layer() const;
  Verdict check_place() const;
  Verdict check_file() const;
  Verdict check_opened(Database& database, SqlStatus opened) const;
  Verdict open_behind_journal(Database& database) const;
  bool must_be_signed() const;
  bool is_own(Database& database) const;
  Verdict read_signed_file(Work work) const;
  std::string signed_bytes(SignedFile::Bytes& bytes) const;
  Verdict read_file(Work work, Clock::time_point deadline, bool& foreign) const;
  Verdict work_on(std::unique_ptr<Database> database, const ConnectionOf& of, uint32_t schema,
                  Work work) const;
  Verdict try_read(Work work, Clock::time_point deadline) const;
  void remember(const Verdict& v, Clock::time_point since);
  llvm::Error write_with(llvm::function_ref<Verdict(Clock::time_point)> attempt);
  Verdict try_write(Work work, Clock::time_point deadline) const;
  Verdict try_compact(int64_t& bytes, Clock::time_point deadline) const;
  Verdict create_file() const;
  SqlStatus create_schema(Database& database) const;
  Verdict judge(const SqlStatus& status) const;
  Verdict from_errno(int error) const;
  Verdict verdict(Health health, const std::string& detail) const;
  // A spool's rows, where they were put since the last time: now, or when that is kPublishEvery ago.
  void publish(bool now);
  bool recheck_and_set_aside(Clock::time_point deadline);
  void set_aside(const std::string& reason);
  bool may_write() const;
  void keep_write_problem(const std::string& text);
  std::string kept_write_problem();

  const LayerPlan plan_;
  const bool read_only_;
  Patience* const patience_;
  std::atomic<bool> met_lock_{false};  // the last time somebody asked
  IndexKeeper index_;
  Log* const log_;
  const Signers* const signers_;
  mutable SignedFile signed_file_;
  mutable KeptConnection connection_;
  std::mutex mutex_;
  std::string write_problem_;  // of the last put, empty when it went well
  std::atomic<bool> unpublished_{false};
  std::atomic<Clock::rep> published_{0};  // ticks
};

}  // namespace trigen::cache
