#include "cache/lease.h"

#include <unistd.h>

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

}  // namespace

std::unique_ptr<Store::Lease> try_lease(const Layer* layer, const std::string& digest) {
  if (layer != nullptr && layer->stores() && layer->prepare().healthy()) {
    RangeLock lock;
    int error = 0;
    switch (lock.acquire(layer->lock_path(), lease_byte(digest), LockKind::kExclusive, /*create=*/true,
                         Clock::time_point(), error)) {
      case LockResult::kLocked:
        return std::make_unique<FileLease>(std::move(lock));
      case LockResult::kBusy:
        return nullptr;
      case LockResult::kAbsent:
      case LockResult::kFailed:
        break;
    }
  }
  const std::string name = (layer != nullptr ? layer->path() : std::string()) + "\n" + digest;
  if (!enter_process_lease(name)) return nullptr;
  return std::make_unique<ProcessLease>(name);
}

}  // namespace trigen::cache
