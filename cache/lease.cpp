#include "cache/lease.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cache/fork.h"

namespace trigen::cache {
namespace {

class FileLease final : public Store::Lease {
 public:
  explicit FileLease(RangeLock lock) : lock_(std::move(lock)) {}

 private:
  RangeLock lock_;
};

class ProcessLease final : public Store::Lease {
 public:
  explicit ProcessLease(std::string name) : name_(std::move(name)), owner_pid_(::getpid()) {}
  ~ProcessLease() override { leave_process_lease(name_, owner_pid_); }

 private:
  std::string name_;
  int owner_pid_;
};

class Mark final : public Store::Lease {
 public:
  Mark(std::string path, RangeLock lock)
      : path_(std::move(path)), lock_(std::move(lock)), owner_pid_(::getpid()) {}
  ~Mark() override {
    if (owner_pid_ == ::getpid()) ::unlink(path_.c_str());
  }

 private:
  const std::string path_;
  RangeLock lock_;  // until the file is gone
  int owner_pid_;
};

LockResult lock_name(const Layer* layer, const std::string& digest, RangeLock& lock) {
  if (layer == nullptr || !layer->stores() || !layer->prepare().healthy()) return LockResult::kAbsent;
  int error = 0;
  return lock.acquire(layer->lock_path(), lease_byte(digest), LockKind::kExclusive, /*create=*/true,
                      Clock::time_point(), error);
}

}  // namespace

std::unique_ptr<Store::Lease> try_mark(const Layer* layer, const std::string& digest, bool& unended) {
  unended = false;
  RangeLock lock;
  if (lock_name(layer, digest, lock) != LockResult::kLocked) return nullptr;
  std::string path = layer->path() + ".begun-" + digest.substr(0, 32);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  unended = descriptor < 0 && errno == EEXIST;
  if (descriptor >= 0) ::close(descriptor);
  if (descriptor < 0 && !unended) return nullptr;
  return std::make_unique<Mark>(std::move(path), std::move(lock));
}

std::unique_ptr<Store::Lease> try_lease(const Layer* layer, const std::string& digest) {
  RangeLock lock;
  const LockResult locked = lock_name(layer, digest, lock);
  if (locked == LockResult::kLocked) return std::make_unique<FileLease>(std::move(lock));
  if (locked == LockResult::kBusy) return nullptr;
  const std::string name = (layer != nullptr ? layer->path() : std::string()) + "\n" + digest;
  if (!enter_process_lease(name)) return nullptr;
  return std::make_unique<ProcessLease>(name);
}

}  // namespace trigen::cache
