#include "tests/fault/faulty_mount.h"

#if __has_include(<fuse3/fuse.h>)

#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

namespace trigen::testing {

struct FaultyMount::Shared {
  std::atomic<int> locks{0};
};

namespace {

// Of the server's process alone.
std::string backing;
int late = 0;
std::atomic<int>* locks = nullptr;
std::set<std::string> mine;  // paths that this node made

std::string real(const char* path) { return backing + path; }
int result(int code) { return code == -1 ? -errno : code; }

// Another node's file that is too new to be seen here. Folders are seen at once.
bool is_hidden(const char* path) {
  struct stat facts = {};
  if (mine.count(path) != 0 || ::lstat(real(path).c_str(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return false;
  struct timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto ms =
      (now.tv_sec - facts.st_ctim.tv_sec) * 1000 + (now.tv_nsec - facts.st_ctim.tv_nsec) / 1000000;
  return ms < late;
}

// Another file took its name, or it was removed, through whichever mount.
bool is_stale(uint64_t handle) {
  struct stat facts = {};
  return ::fstat(static_cast<int>(handle), &facts) != 0 || facts.st_nlink == 0;
}

int op_getattr(const char* path, struct stat* facts, fuse_file_info* info) {
  if (info != nullptr)
    return is_stale(info->fh) ? -ESTALE : result(::fstat(static_cast<int>(info->fh), facts));
  if (is_hidden(path)) return -ENOENT;
  return result(::lstat(real(path).c_str(), facts));
}
int op_open(const char* path, fuse_file_info* info) {
  if (is_hidden(path)) return -ENOENT;
  const int descriptor = ::open(real(path).c_str(), info->flags & ~O_NOFOLLOW);
  if (descriptor < 0) return -errno;
  info->fh = static_cast<uint64_t>(descriptor);
  info->direct_io = 1;
  return 0;
}
int op_create(const char* path, mode_t mode, fuse_file_info* info) {
  const int descriptor = ::open(real(path).c_str(), info->flags, mode);
  if (descriptor < 0) return -errno;
  info->fh = static_cast<uint64_t>(descriptor);
  info->direct_io = 1;
  mine.insert(path);
  return 0;
}
int op_read(const char*, char* buffer, size_t size, off_t at, fuse_file_info* info) {
  if (is_stale(info->fh)) return -ESTALE;
  return result(static_cast<int>(::pread(static_cast<int>(info->fh), buffer, size, at)));
}
int op_write(const char*, const char* buffer, size_t size, off_t at, fuse_file_info* info) {
  if (is_stale(info->fh)) return -ESTALE;
  return result(static_cast<int>(::pwrite(static_cast<int>(info->fh), buffer, size, at)));
}
int op_fsync(const char*, int, fuse_file_info* info) { return result(::fsync(static_cast<int>(info->fh))); }
int op_release(const char*, fuse_file_info* info) { return result(::close(static_cast<int>(info->fh))); }
int op_rename(const char* from, const char* to, unsigned) {
  if (::rename(real(from).c_str(), real(to).c_str()) != 0) return -errno;
  mine.erase(from);
  mine.insert(to);
  return 0;
}
int op_unlink(const char* path) { return result(::unlink(real(path).c_str())); }
int op_mkdir(const char* path, mode_t mode) { return result(::mkdir(real(path).c_str(), mode)); }
int op_chmod(const char* path, mode_t mode, fuse_file_info*) {
  return result(::chmod(real(path).c_str(), mode));
}
int op_truncate(const char* path, off_t size, fuse_file_info*) {
  return result(::truncate(real(path).c_str(), size));
}
int op_access(const char* path, int mode) { return result(::access(real(path).c_str(), mode)); }
int op_readdir(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
               fuse_readdir_flags) {
  DIR* const folder = ::opendir(real(path).c_str());
  if (folder == nullptr) return -errno;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = std::string(path) == "/" ? "/" : std::string(path) + "/";
    if (!is_hidden((name + entry->d_name).c_str()))
      fill(buffer, entry->d_name, nullptr, 0, static_cast<fuse_fill_dir_flags>(0));
  }
  ::closedir(folder);
  return 0;
}
int op_lock(const char*, fuse_file_info*, int, struct flock* range) {
  if (range->l_type == F_UNLCK) return 0;  // libfuse's own, at every close
  ++*locks;
  return -ENOLCK;
}
int op_flock(const char*, fuse_file_info*, int) {
  ++*locks;
  return -ENOLCK;
}
void* op_init(fuse_conn_info*, fuse_config* config) {
  // Every look-up asks the server, as with actimeo=0; open handles keep their file.
  config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
  config->hard_remove = 1;
  return nullptr;
}

int serve(const std::string& point) {
  fuse_operations operations = {};
  operations.getattr = op_getattr;
  operations.open = op_open;
  operations.create = op_create;
  operations.read = op_read;
  operations.write = op_write;
  operations.fsync = op_fsync;
  operations.release = op_release;
  operations.rename = op_rename;
  operations.unlink = op_unlink;
  operations.mkdir = op_mkdir;
  operations.chmod = op_chmod;
  operations.truncate = op_truncate;
  operations.access = op_access;
  operations.readdir = op_readdir;
  operations.lock = op_lock;
  operations.flock = op_flock;
  operations.init = op_init;
  std::string text = point;
  char program[] = "faulty_mount", foreground[] = "-f", single[] = "-s";
  char* arguments[] = {program, foreground, single, text.data()};
  return fuse_main(4, arguments, &operations, nullptr);
}

bool is_mounted(const std::string& point) {
  struct stat here = {}, above = {};
  return ::stat(point.c_str(), &here) == 0 && ::stat((point + "/..").c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

}  // namespace

std::unique_ptr<FaultyMount> FaultyMount::mount(const std::string& of, const std::string& point, int late_ms,
                                                std::string& why) {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) {
    why = std::string("/dev/fuse: ") + std::strerror(errno);
    return nullptr;
  }
  void* const page =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    why = "no shared memory";
    return nullptr;
  }
  std::unique_ptr<FaultyMount> mounted(new FaultyMount);
  mounted->shared_ = new (page) Shared;
  mounted->pid_ = ::fork();
  if (mounted->pid_ == 0) {
    backing = of;
    late = late_ms;
    locks = &mounted->shared_->locks;
    ::_exit(serve(point) == 0 ? 0 : 1);
  }
  for (int i = 0; i < 500; ++i) {
    if (is_mounted(point)) return mounted;
    if (::waitpid(mounted->pid_, nullptr, WNOHANG) == mounted->pid_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  why = "FUSE cannot be mounted here (no privilege, or no fusermount3)";
  if (::kill(mounted->pid_, 0) != 0) mounted->pid_ = -1;
  return nullptr;
}

FaultyMount::~FaultyMount() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);  // libfuse unmounts
    ::waitpid(pid_, nullptr, 0);
  }
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

int FaultyMount::lock_calls() const { return shared_->locks; }

}  // namespace trigen::testing

#else

namespace trigen::testing {

struct FaultyMount::Shared {};
std::unique_ptr<FaultyMount> FaultyMount::mount(const std::string&, const std::string&, int,
                                                std::string& why) {
  why = "built without libfuse3";
  return nullptr;
}
FaultyMount::~FaultyMount() = default;
int FaultyMount::lock_calls() const { return 0; }

}  // namespace trigen::testing

#endif
