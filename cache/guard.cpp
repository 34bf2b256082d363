#include "cache/guard.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <mutex>

#include "cache/filesystem.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

namespace trigen::cache {
namespace {

thread_local Guard* current = nullptr;

// SQLite's SQLITE_TEMP_FILE_PREFIX: sorters and statement journals that grow.
bool is_temporary(llvm::StringRef path) { return path.substr(path.rfind('/') + 1).startswith("etilqs_"); }

bool is_companion(llvm::StringRef path, const std::string& layer) {
  if (!path.consume_front(layer)) return false;
  for (const char* suffix : kBesideSuffixes)
    if (path == suffix) return true;
  return false;
}

int guarded_open(const char* path, int flags, int mode) {
  return current != nullptr ? current->open(path, flags, mode) : ::open(path, flags, mode);
}

int guarded_unlink(const char* path) { return current != nullptr ? current->unlink(path) : ::unlink(path); }

// SQLite's locks on the file are POSIX record locks: they belong to the process, so that another copy of
// SQLite in it neither sees them (it would take our journal for a dead process's and roll our transaction
// back under us) nor leaves them alone (its close() drops them). Locks of the open file description have
// neither fault and conflict with every other program's as the plain ones do. SQLite lets its system calls be
// replaced; this is its fcntl() in our copy.
//
// Its bookkeeping assumes that any descriptor of the process may release what another one took. That holds
// here because a connection lives for one operation, a writer's operation is alone (the layer's lock file),
// and a reader's lock goes with its descriptor at the latest.
int fcntl_with_description_locks(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  int result;
  if (command == F_SETLK || command == F_GETLK) {
    auto* range = va_arg(arguments, struct flock*);
    range->l_pid = 0;  // required, and SQLite leaves it as it was
    result = ::fcntl(descriptor, command == F_SETLK ? F_OFD_SETLK : F_OFD_GETLK, range);
  } else {
    result = ::fcntl(descriptor, command, va_arg(arguments, long));
  }
  va_end(arguments);
  return result;
}

}  // namespace

void Guard::enter(const std::string& layer, FilePart part) {
  layer_ = layer;
  folder_ = folder_of(layer);
  part_ = part;
  refusal_.clear();
  current = this;
}

void Guard::resume() {
  if (layer_.empty()) return;
  refusal_.clear();
  current = this;
}

void Guard::leave() {
  if (current == this) current = nullptr;
}

int Guard::refuse(const std::string& path, const std::string& reason) {
  if (refusal_.empty()) refusal_ = "'" + path + "' " + reason;
  errno = EACCES;
  return -1;
}

int Guard::open(const char* path, int flags, int mode) {
  const llvm::StringRef name = path;
  const bool fresh = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
  if (name == folder_ || name == "/dev/urandom" || name == "/dev/null" || (fresh && is_temporary(name)))
    return ::open(path, flags | O_NOFOLLOW, mode);
  const bool beside = is_companion(name, layer_);
  if (!beside && name != layer_) return refuse(path, "is not of this cache, its journal names it");
  // O_NONBLOCK: opening a FIFO would wait for its other end; on a regular file it changes nothing.
  const int descriptor = ::open(path, flags | O_NOFOLLOW | O_NONBLOCK, mode);
  if (descriptor < 0) return errno == ELOOP ? refuse(path, "is a symbolic link") : -1;
  std::string reason = distrust_of_file(descriptor, beside ? FilePart::kBeside : part_);
  if (reason.empty() && beside) reason = distrust_of_journal(descriptor);
  if (reason.empty()) return descriptor;
  ::close(descriptor);
  return refuse(path, reason);
}

int Guard::unlink(const char* path) {
  struct stat facts = {};
  if (!is_temporary(path) && !is_companion(path, layer_))
    return refuse(path, "is not of this cache, its journal asks to delete it");
  if (::lstat(path, &facts) == 0 && !S_ISREG(facts.st_mode)) return refuse(path, "is not a regular file");
  return ::unlink(path);
}

std::string distrust_of_companions(const std::string& layer) {
  for (const char* suffix : kBesideSuffixes) {
    const std::string path = layer + suffix;
    if (std::string reason = distrust_of_file(path, FilePart::kBeside); !reason.empty())
      return (llvm::Twine("'") + path + "' " + reason).str();
  }
  const std::string lock = layer + ".lock";
  struct stat facts = {};
  if (::lstat(lock.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
    return "'" + lock + "' is not a regular file";
  return {};
}

void replace_system_calls() {
  static std::once_flag done;
  std::call_once(done, [] {
    if (sqlite3_initialize() != SQLITE_OK) return;
    sqlite3_vfs* const vfs = sqlite3_vfs_find(nullptr);
    if (vfs == nullptr || vfs->iVersion < 3) return;
    vfs->xSetSystemCall(vfs, "fcntl", reinterpret_cast<sqlite3_syscall_ptr>(fcntl_with_description_locks));
    vfs->xSetSystemCall(vfs, "open", reinterpret_cast<sqlite3_syscall_ptr>(guarded_open));
    vfs->xSetSystemCall(vfs, "unlink", reinterpret_cast<sqlite3_syscall_ptr>(guarded_unlink));
  });
}

}  // namespace trigen::cache
