#include "cache/trust.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "cache/host.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

namespace trigen::cache {
namespace {

// A user namespace shows the files of every id that it does not map as the overflow id's
// (user_namespaces(7)): root's, where a container maps its user alone (Apptainer).
bool is_hidden(uid_t uid) {
  constexpr uid_t kOverflow = 65534;  // /proc/sys/kernel/overflowuid, always left as it is
  if (uid != kOverflow) return false;
  std::FILE* const map = std::fopen("/proc/self/uid_map", "re");
  if (map == nullptr) return false;
  unsigned long inside = 0, outside = 0, count = 0;
  bool mapped = false;
  while (std::fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3)
    mapped = mapped || (kOverflow >= inside && kOverflow - inside < count);
  std::fclose(map);
  return !mapped;
}

bool is_ours(uid_t uid) { return uid == 0 || uid == ::geteuid(); }

// Root's group counts as root. A user-private group (named as its user and without other members) counts as
// its user: distributions that make such groups let umask 002 write folders of mode 0775.
bool is_own_group(gid_t gid) {
  if (gid == 0) return true;
  std::vector<char> user_text(16 << 10), group_text(64 << 10);
  passwd user = {};
  passwd* found_user = nullptr;
  if (::getpwuid_r(::geteuid(), &user, user_text.data(), user_text.size(), &found_user) != 0 ||
      found_user == nullptr || user.pw_gid != gid)
    return false;
  group entry = {};
  group* found = nullptr;
  if (::getgrgid_r(gid, &entry, group_text.data(), group_text.size(), &found) != 0 || found == nullptr)
    return false;
  if (std::strcmp(entry.gr_name, user.pw_name) != 0) return false;
  for (char** member = entry.gr_mem; *member != nullptr; ++member)
    if (std::strcmp(*member, user.pw_name) != 0) return false;
  return true;
}

std::string mode_text(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode) & 07777u);
  return text;
}

constexpr char kAccessList[] = "system.posix_acl_access";
bool has_access_list(const std::string& path) {
  return ::lgetxattr(path.c_str(), kAccessList, nullptr, 0) > 0;
}
bool has_access_list(int descriptor) { return ::fgetxattr(descriptor, kAccessList, nullptr, 0) > 0; }

// `file`: its path or descriptor, for an access control list, whose mask the group's bits show.
template <typename File>
std::string writers_besides_us(const struct stat& facts, const File& file) {
  if ((facts.st_mode & S_IWOTH) != 0) return "everybody";
  if ((facts.st_mode & S_IWGRP) == 0) return {};
  if (!is_own_group(facts.st_gid)) return "group " + std::to_string(facts.st_gid);
  return has_access_list(file) ? "others by its access control list" : "";
}

template <typename File>
std::string judge_file(const struct stat& facts, const File& file, FilePart part) {
  if (!S_ISREG(facts.st_mode)) return "is not a regular file";
  if (!is_ours(facts.st_uid) && !(part == FilePart::kShipped && is_hidden(facts.st_uid)))
    return "belongs to uid " + std::to_string(facts.st_uid);
  if (const std::string writers = writers_besides_us(facts, file); !writers.empty())
    return writers + " may write to it (mode " + mode_text(facts.st_mode) + ")";
  if (part == FilePart::kBeside && facts.st_nlink > 1) return "has another name, too (a hard link)";
  return {};
}

std::string judge_folder(const std::string& path, bool own, FilePart part) {
  struct stat facts = {};
  if (::lstat(path.c_str(), &facts) != 0) return {};  // no way in: whatever comes next fails, too
  const std::string name = "folder '" + path + "' ";
  if (!is_ours(facts.st_uid) && !((!own || part == FilePart::kShipped) && is_hidden(facts.st_uid)))
    return name + "belongs to uid " + std::to_string(facts.st_uid);
  if (!own && (facts.st_mode & S_ISVTX) != 0) return {};
  if (const std::string writers = writers_besides_us(facts, path); !writers.empty())
    return name + "may be written by " + writers + " (mode " + mode_text(facts.st_mode) + ")";
  return {};
}

bool named_as_trusted(const std::string& folder) {
  const std::string list = environment(kTrustedFolders);
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    char real[PATH_MAX];
    if (list[at] == '/' && ::realpath(list.substr(at, end - at).c_str(), real) != nullptr && folder == real)
      return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string distrust_of_file(int descriptor, FilePart part) {
  struct stat facts = {};
  if (::fstat(descriptor, &facts) != 0) return "cannot be looked at";
  return judge_file(facts, descriptor, part);
}

std::string distrust_of_folder(const std::string& folder, FilePart part) {
  std::string at = existing_folder(folder);
  char real[PATH_MAX];
  if (::realpath(at.c_str(), real) == nullptr) return {};
  if (at != real) return "folder '" + at + "' has become a link";
  for (bool own = at == folder;; own = false) {
    if (named_as_trusted(at)) return {};
    if (std::string reason = judge_folder(at, own, part); !reason.empty()) return reason;
    if (at.size() <= 1) return {};
    at = folder_of(at);
  }
}

std::string distrust_of_library(const std::string& path, llvm::ArrayRef<std::string> code) {
  if (path.empty() || path[0] != '/') return "'" + path + "' is not an absolute path";
  std::set<std::string> above_code;
  std::set<uid_t> owners;
  for (const std::string& folder : code)
    for (std::string at = folder; at.size() > 1 && above_code.insert(at).second; at = folder_of(at)) {
      struct stat facts = {};
      if (::lstat(at.c_str(), &facts) == 0) owners.insert(facts.st_uid);
    }
  const std::string own_folder = folder_of(path);
  for (std::string at = path;; at = folder_of(at)) {
    struct stat facts = {};
    if (above_code.count(at) != 0) return {};
    if (::lstat(at.c_str(), &facts) != 0) return "'" + at + "' cannot be looked at";
    if (!is_ours(facts.st_uid) && !is_hidden(facts.st_uid) && owners.count(facts.st_uid) == 0)
      return "'" + at + "' belongs to uid " + std::to_string(facts.st_uid);
    const bool sticky_above = at.size() < own_folder.size() && (facts.st_mode & S_ISVTX) != 0;
    if ((facts.st_mode & S_IWOTH) != 0 && !S_ISLNK(facts.st_mode) && !sticky_above)
      return "everybody may write to '" + at + "' (mode " + mode_text(facts.st_mode) + ")";
    if (at.size() <= 1) return {};
  }
}

namespace {

// The same by a path that is not followed, "" where nothing is.
std::string distrust_of_file(const std::string& path, FilePart part) {
  struct stat facts = {};
  if (::lstat(path.c_str(), &facts) != 0) return {};
  return judge_file(facts, path, part);
}

// A journal that names a super-journal, which trigen never writes: SQLite would delete that file.
std::string distrust_of_journal(int descriptor) {
  // SQLite file format, section 3: a journal that ends in this is one of several files' transaction.
  constexpr unsigned char kMagic[] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  struct stat facts = {};
  unsigned char end[sizeof kMagic] = {};
  if (::fstat(descriptor, &facts) != 0 || facts.st_size < 16) return {};
  if (::pread(descriptor, end, sizeof end, facts.st_size - static_cast<off_t>(sizeof end)) != sizeof end)
    return "cannot be read to its end";
  return std::memcmp(end, kMagic, sizeof end) == 0
             ? "names a super-journal, which trigen never writes and SQLite would delete"
             : "";
}

// The layer's companions: suffixes of its path.
constexpr const char* kBesideSuffixes[] = {"-journal", "-wal", "-shm"};

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
