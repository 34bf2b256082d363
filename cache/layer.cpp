#include "cache/layer.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "cache/findings.h"
#include "cache/folder.h"
#include "cache/host.h"
#include "cache/row.h"
#include "cache/trust.h"
#include "generator/error.h"

namespace trigen::cache {
namespace {

constexpr int kMostSetAside = 999;

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 1));
}

std::string set_aside_path(const std::string& path, int n) { return path + ".corrupt-" + std::to_string(n); }

}  // namespace

void Log::once(const std::string& line) {
  if (!sink_) return;
  // An operation, so that fork() does not fall between lock and unlock; in a child where it may have, no
  // waiting.
  Operation operation;
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  if (operation.allowed())
    lock.lock();
  else if (!lock.try_lock())
    return;
  if (seen_.size() >= 1000 || !seen_.insert(line).second) return;
  sink_(line);
}

Layer::Layer(LayerPlan plan, bool read_only, LockTimeout* timeout, Log* log, const Signers* signers)
    : plan_(std::move(plan)), read_only_(read_only), timeout_(timeout), log_(log), signers_(signers) {}

void Layer::remember(const Verdict& v, Clock::time_point since) {
  const bool locked = v.health == Health::kLocked;
  if (locked)
    timeout_->met_lock(since);
  else if (met_lock_)
    timeout_->met_none();
  met_lock_ = locked;
}

Verdict Layer::open_checked(Database& database, OpenMode mode, Clock::time_point deadline) const {
  return judge_.check_opened(database, database.open(plan_.path, mode, left_ms(deadline)));
}

Verdict Layer::open_behind_journal(Database& database) const {
  std::string image;
  const std::string reason = read_behind_journal(plan_.path, judge_.part(), image);
  if (!reason.empty()) return judge_.verdict(Health::kInterrupted, reason);
  return judge_.check_opened(database, database.open_image(std::move(image)));
}

// Nobody signs the file that this user's trigen wrote: its owner, its place (cache/trust.h) and its home answer for it.
// Known before SQLite opens it: an own file has its lock file beside it. (Where trigen locks nothing, the owner
// alone answers.)
bool Layer::must_be_signed() const {
  if (!signers_->trusted.required) return false;
  struct stat file = {};
  if (!plan_.own || ::stat(plan_.path.c_str(), &file) != 0) return !plan_.own;
  const bool unlocked = is_bundle(plan_.path) || plan_.unlocked || file.st_size == 0;
  return file.st_uid != ::geteuid() || (!unlocked && ::access(lock_path().c_str(), F_OK) != 0);
}

// Was an opened file, which then need not be signed, written here? An image may have brought it, with a lock file
// and as a file of root's.
bool Layer::is_own(Database& database) const {
  if (!signers_->trusted.required || !plan_.own || is_bundle(plan_.path) || plan_.unlocked) return true;
  return is_at_home(database, home_of(plan_.path));
}

// "" and the bytes that somebody trusted signed, or why there are none.
std::string Layer::signed_bytes(SignedFile::Bytes& bytes) const {
  std::string reason;
  bytes = signed_file_.read(plan_.path, judge_.part(), signers_->trusted, reason);
  if (reason.empty() || !plan_.own) return reason;
  return "was not written here by this user's trigen, and " + reason +
         "; when it is moved away, a new one is begun";
}

Verdict Layer::read_signed_file(Work work) const {
  SignedFile::Bytes bytes;
  std::string reason;
  {
    Operation operation;
    if (!operation.allowed()) return judge_.verdict(Health::kForked, "");
    reason = signed_bytes(bytes);
  }
  if (bytes != nullptr && !plan_.user) reason = signed_file_.refuse_replay(*signers_);
  if (!reason.empty()) return judge_.verdict(Health::kUnsigned, reason);
  Operation operation;
  if (!operation.allowed()) return judge_.verdict(Health::kForked, "");
  const ConnectionOf of{{}, bytes.get()};
  if (auto kept = connection_.take(of)) return work_on(std::move(kept), of, kSchemaVersion, work);
  auto database = std::make_unique<Database>();
  const Verdict v = judge_.check_opened(*database, database->open_shared_image(*bytes));
  return v.healthy() ? work_on(std::move(database), of, v.schema, work) : v;
}

// `of`: what the connection reads, where it may be kept.
Verdict Layer::work_on(std::unique_ptr<Database> database, const ConnectionOf& of, uint32_t schema,
                       Work work) const {
  Verdict v = judge_.judge(work(*database));
  v.schema = schema;
  if (v.healthy() && !(of == ConnectionOf())) connection_.give(std::move(database), of);
  return v;
}

Verdict Layer::try_read(Work work, Clock::time_point deadline) const {
  bool foreign = must_be_signed();
  if (!foreign) {
    Verdict v = read_file(work, deadline, foreign);
    if (!foreign) return v;
  }
  if (Verdict v = judge_.check_file(); !v.healthy()) return v;
  if (Verdict v = judge_.check_place(); !v.healthy()) return v;
  return read_signed_file(work);
}

// `foreign`: nothing was read, for the file must be signed after all.
Verdict Layer::read_file(Work work, Clock::time_point deadline, bool& foreign) const {
  const bool locked = judge_.is_locked();
  // A file without writers: its owner and place were judged when it was opened. While it is the same file and
  // unchanged it need not be opened again. (A network file system's stat() may be late.)
  ConnectionOf of;
  if (!locked) {
    const FileIdentity file = FileIdentity::of(plan_.path);
    if (file.settled() && !plan_.unlocked) of.file = file;
    Operation operation;
    if (!operation.allowed()) return judge_.verdict(Health::kForked, "");
    if (auto kept = connection_.take(of)) return work_on(std::move(kept), of, kSchemaVersion, work);
  }
  if (Verdict v = judge_.check_file(); !v.healthy()) return v;
  if (Verdict v = judge_.check_place(); !v.healthy()) return v;
  OpenMode mode = locked ? OpenMode::kReadOnly : OpenMode::kImmutable;
  RangeLock lock;
  if (locked) {
    int error = 0;
    LockResult result = lock.acquire(lock_path(), kLayerByte, LockKind::kShared, stores(), deadline, error);
    // No writer is at work now. A journal with bytes in it is a dead one's: whoever rolls it back must be
    // alone.
    struct stat journal = {};
    if (result == LockResult::kLocked && stores() &&
        ::stat((plan_.path + "-journal").c_str(), &journal) == 0 && journal.st_size > 0) {
      result = lock.acquire(lock_path(), kLayerByte, LockKind::kExclusive, true, deadline, error);
      mode = OpenMode::kReadWrite;
    }
    if (result == LockResult::kBusy) return judge_.verdict(Health::kLocked, "its lock file");
    // Without a lock of ours (read-only folder, no locks on this file system) SQLite's own remain, and rows
    // are digested.
  }
  Operation operation;
  if (!operation.allowed()) return judge_.verdict(Health::kForked, "");
  auto database = std::make_unique<Database>();
  Verdict v = open_checked(*database, mode, deadline);
  // A dead writer's journal that this process may not roll back.
  if (v.health == Health::kInterrupted ||
      (mode == OpenMode::kReadWrite && (v.health == Health::kReadOnly || v.health == Health::kDenied))) {
    v = open_behind_journal(*database);
    of = {};
  }
  if (!v.healthy()) return v;
  foreign = !is_own(*database);
  return foreign ? v : work_on(std::move(database), of, v.schema, work);
}

bool Layer::read(Work work) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Clock::time_point since = Clock::now(), until = timeout_->deadline(/*put=*/false);
    const Verdict v = try_read(work, until);
    remember(v, since);
    if (v.healthy()) return true;
    if (v.absent()) return false;
    if (v.stale && attempt == 0) continue;  // look it up anew
    if (v.health == Health::kDamaged && stores() && attempt == 0) {
      if (recheck_and_set_aside(until)) return false;
      continue;  // somebody else did, or it was no damage after all
    }
    log_->once(v.text);
    return false;
  }
  return false;
}

Verdict Layer::inspect(Work work) {
  const Clock::time_point since = Clock::now();
  Verdict v = try_read(work, timeout_->deadline(/*put=*/false));
  remember(v, since);
  return v;
}

Verdict Layer::prepare() const {
  if (Verdict v = judge_.check_file(); !v.healthy() && !v.absent()) return v;
  if (Verdict v = judge_.check_place(); !v.healthy()) return v;
  const int error = make_folders(folder_of(plan_.path));
  if (error == 0) return {};
  // A folder that cannot be made because something on the way is missing or no folder.
  if (error == ENOENT || error == ENOTDIR)
    return judge_.verdict(Health::kFailed, "its folder: " + errno_text(error));
  return judge_.from_errno(error);
}

Verdict Layer::create_file() const {
  // A new file is open nowhere else, so that this close drops no locks. SQLite's journal takes its mode from it.
  const int descriptor = ::open(plan_.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno == EEXIST ? Verdict() : judge_.from_errno(errno);
  ::close(descriptor);
  return {};
}

SqlStatus Layer::create_schema(Database& database) const {
  const std::string sql = std::string("BEGIN EXCLUSIVE;") + kCreateSchema +
                          "PRAGMA application_id=" + std::to_string(kApplicationId) +
                          ";PRAGMA user_version=" + std::to_string(kSchemaVersion) + ";COMMIT";
  SqlStatus status = database.run(sql.c_str());
  if (!status.ok()) database.run("ROLLBACK");
  return status;
}

Verdict Layer::try_write(Work work, Clock::time_point deadline) const {
  Verdict v = judge_.check_file();
  if (v.health == Health::kMissing) v = create_file();
  if (!v.healthy() && v.health != Health::kEmpty) return v;
  Operation operation;
  if (!operation.allowed()) return judge_.verdict(Health::kForked, "");
  Database database;
  v = open_checked(database, OpenMode::kReadWrite, deadline);
  if (v.health == Health::kEmpty) v = judge_.judge(create_schema(database));
  if (!v.healthy()) return v;
  SignedFile::Bytes bytes;
  if (std::string reason = is_own(database) ? "" : signed_bytes(bytes); !reason.empty())
    return judge_.verdict(Health::kUnsigned, reason);
  SqlStatus status = database.run("PRAGMA synchronous=FULL");
  if (status.ok() && database.header().wal) status = database.run("PRAGMA journal_mode=DELETE");
  if (status.ok()) status = database.run("BEGIN IMMEDIATE");
  if (status.ok()) {
    status = settle(database, home_of(plan_.path));
    if (status.ok()) status = work(database);
    if (status.ok()) status = database.run("COMMIT");
    if (!status.ok()) database.run("ROLLBACK");
  }
  return judge_.judge(status);
}

Verdict Layer::try_compact(int64_t& bytes, Clock::time_point deadline) const {
  Operation operation;
  if (!operation.allowed()) return judge_.verdict(Health::kForked, "");
  Database database;
  Verdict v = open_checked(database, OpenMode::kReadWrite, deadline);
  if (!v.healthy()) return v;
  v = judge_.judge(database.vacuum());
  bytes = database.header().size;
  return v;
}

llvm::Error Layer::compact(int64_t& bytes) {
  return write_with([&](Clock::time_point until) { return try_compact(bytes, until); });
}

llvm::Error Layer::write(Work work) {
  return write_with([&](Clock::time_point until) { return try_write(work, until); });
}

llvm::Error Layer::write_with(llvm::function_ref<Verdict(Clock::time_point)> attempt_once) {
  if (!stores())
    return make_error(ErrorKind::kCache,
                      "cache '" + plan_.path + "' was opened for reading only; open it for writing to store");
  const Clock::time_point since = Clock::now(), until = timeout_->deadline(/*put=*/true);
  Verdict v = prepare();
  for (int attempt = 0; v.healthy() && attempt < 2; ++attempt) {
    RangeLock lock;
    int error = 0;
    switch (lock.acquire(lock_path(), kLayerByte, LockKind::kExclusive, /*create=*/true, until, error)) {
      case LockResult::kLocked:
        break;
      case LockResult::kBusy:
        v = judge_.verdict(Health::kLocked, "its lock file");
        continue;
      case LockResult::kAbsent:  // the folder is there: prepare() made it
        v = error == ENOENT
                ? judge_.verdict(Health::kFailed, "no file can be made in " + folder_of(plan_.path))
                : judge_.from_errno(error);
        continue;
      case LockResult::kFailed:
        v = judge_.verdict(Health::kFailed, "no locks here: " + errno_text(error));
        continue;
    }
    v = attempt_once(until);
    if (v.health != Health::kDamaged || attempt > 0) break;
    set_aside(v.text);
    v = {};
  }
  index_.forget();
  remember(v, since);
  keep_write_problem(v.text);
  if (v.healthy()) {
    begin_usage(plan_.path);
    unpublished_ = !plan_.stands_for.empty();
    publish(/*now=*/false);
    return llvm::Error::success();
  }
  log_->once(v.text);
  return make_error(ErrorKind::kCache, v.text);
}

void Layer::publish(bool now) {
  constexpr std::chrono::seconds kPublishEvery{10};
  const Clock::time_point last{Clock::duration(published_)}, here = Clock::now();
  if (!unpublished_ || (!now && published_ != 0 && here - last < kPublishEvery)) return;
  published_ = here.time_since_epoch().count();
  unpublished_ = false;
  const std::optional<Spool> spool = spool_for(plan_.stands_for);
  if (!spool) return;
  // One process of the node at a time, so that an older reading never replaces a newer one.
  RangeLock lock;
  int error = 0;
  lock.acquire(lock_path(), kPublishByte, LockKind::kExclusive, /*create=*/true,
               here + std::chrono::seconds(5), error);
  Contents contents;
  const Verdict v = inspect(
      [&](Database& database) { return read_contents(database, /*bundle=*/false, ReadFor::kRun, contents); });
  std::string problem = v.text;
  if (v.healthy()) {
    auto image = bundle_image(contents, {{"made_by", "spool"}});
    problem = image ? cache::publish(*spool, *image) : take_error(image.takeError()).message;
  }
  if (problem.empty()) return;
  unpublished_ = true;  // once more when the store is closed
  log_->once("what is put stays in '" + plan_.path + "' on this node, it cannot be published beside '" +
             plan_.stands_for + "' (" + problem + ")");
}

// A reader met damage under a shared lock: look again alone, with a check of the whole file, before anything
// is moved.
bool Layer::recheck_and_set_aside(Clock::time_point deadline) {
  RangeLock lock;
  int error = 0;
  if (lock.acquire(lock_path(), kLayerByte, LockKind::kExclusive, /*create=*/true, deadline, error) !=
      LockResult::kLocked)
    return false;
  Verdict v;
  {
    Operation operation;
    if (!operation.allowed() || !judge_.check_file().healthy()) return false;
    Database database;
    v = open_checked(database, OpenMode::kReadWrite, deadline);
    if (v.healthy()) {
      if (const SqlStatus pages = database.check_pages(); !pages.ok())
        v = judge_.verdict(Health::kDamaged, pages.text);
    }
  }
  if (v.health != Health::kDamaged) return false;
  set_aside(v.text);
  return true;
}

// Under the exclusive lock, without a connection. The journal goes first, so that none is left for the new
// file.
void Layer::set_aside(const std::string& reason) {
  const std::string journal = plan_.path + "-journal";
  for (int n = 1; n <= kMostSetAside; ++n) {
    const std::string target = set_aside_path(plan_.path, n);
    if (::access(target.c_str(), F_OK) == 0) continue;
    std::string target_journal = target;
    ::rename(journal.c_str(), target_journal.append("-journal").c_str());
    if (::rename(plan_.path.c_str(), target.c_str()) != 0) {
      log_->once(reason + "; it could not be set aside (" + errno_text(errno) + ")");
      return;
    }
    sync_folder(folder_of(plan_.path));
    std::string line = reason;
    log_->once(line.append("; it was set aside as '").append(target).append("' and a new one is begun"));
    return;
  }
  log_->once(reason + "; " + std::to_string(kMostSetAside) +
             " damaged files are set aside already, remove some");
}

// Operations for fork()'s sake, as in Log::once. A child that was torn keeps none: its every verdict says so.
void Layer::keep_write_problem(const std::string& text) {
  Operation operation;
  if (!operation.allowed()) return;
  std::lock_guard<std::mutex> guard(mutex_);
  write_problem_ = text;
}

std::string Layer::kept_write_problem() {
  Operation operation;
  if (!operation.allowed()) return {};
  std::lock_guard<std::mutex> guard(mutex_);
  return write_problem_;
}

bool Layer::may_write() const {
  if (!plan_.user) return false;
  const std::string folder = existing_folder(folder_of(plan_.path));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return false;
  return ::access(plan_.path.c_str(), F_OK) != 0 || ::access(plan_.path.c_str(), W_OK) == 0;
}

LayerInfo Layer::info() {
  LayerInfo info;
  info.path = plan_.path;
  info.user_layer = plan_.user;
  Verdict v = inspect([&](Database& database) {
    Statement count(database, "SELECT (SELECT count(*) FROM binaries),(SELECT count(*) FROM records)");
    if (count.step()) {
      info.binaries = count.integer();
      info.records = count.integer();
    }
    return count.status();
  });
  if (v.absent() && stores())
    if (const Verdict place = judge_.check_place(); !place.healthy()) v = place;
  struct stat file = {};
  info.exists = ::stat(plan_.path.c_str(), &file) == 0;
  info.bytes = info.exists ? static_cast<int64_t>(file.st_size) : 0;
  info.schema = static_cast<int>(v.schema);
  if (!v.healthy() && !v.absent()) info.problem = v.text;
  info.writable = info.problem.empty() && may_write();
  if (info.problem.empty() && stores() && !info.writable)
    info.problem =
        judge_.verdict(Health::kReadOnly, "no permission to write, or a read-only file system").text;
  if (info.problem.empty()) info.problem = kept_write_problem();
  const std::string network = network_filesystem(existing_folder(folder_of(plan_.path)));
  if (!plan_.stands_for.empty())
    info.note = "stands in for '" + plan_.stands_for + "' on " +
                network_filesystem(existing_folder(folder_of(plan_.stands_for))) + "; published in '" +
                plan_.stands_for + ".d'";
  if (!network.empty() && plan_.user)
    info.note = "on " + network +
                ", where locks between machines may not hold: set TRIGEN_CACHE to a file on a local disk";
  int set_aside_files = 0;
  while (set_aside_files < kMostSetAside &&
         ::access(set_aside_path(plan_.path, set_aside_files + 1).c_str(), F_OK) == 0)
    ++set_aside_files;
  if (set_aside_files > 0)
    info.note += std::string(info.note.empty() ? "" : "; ") + std::to_string(set_aside_files) +
                 " damaged file(s) set aside beside it as .corrupt-N";
  return info;
}

llvm::Expected<Contents> read_layer(LayerPlan plan, ReadFor use, const Signers& signers, Rows rows) {
  LockTimeout timeout(StoreOptions().busy_ms);
  Log log({});
  plan.own = plan.own && use != ReadFor::kImport;
  Layer layer(std::move(plan), /*read_only=*/true, &timeout, &log, &signers);
  Contents contents;
  const Verdict v = layer.inspect([&](Database& database) {
    return read_contents(database, is_bundle(layer.path()), use, contents, rows);
  });
  if (v.healthy()) return contents;
  return make_error(ErrorKind::kCache, v.absent() ? v.text + "; name a cache file or a bundle" : v.text);
}

}  // namespace trigen::cache
