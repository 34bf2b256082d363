// Locks of our own, beside SQLite's: byte ranges of `<layer>.lock` under open-file-description locks
// (F_OFD_SETLK).
//
// POSIX record locks, which SQLite uses, belong to the process: any close() of the file anywhere in it, by
// another copy of SQLite for instance, drops them. These belong to one open() and are dropped by its close
// alone, or by the kernel when the process dies; two threads of one process exclude each other as two
// processes do.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace trigen::cache {

using Clock = std::chrono::steady_clock;

enum class LockKind { kShared, kExclusive };
enum class LockResult { kLocked, kBusy, kAbsent, kFailed };  // kAbsent: no lock file, and none may be made

// Bytes of the lock file: 0 guards the layer, 1 a spool's publishing, from kLeaseBase on one byte stands for one
// key.
constexpr int64_t kLayerByte = 0;
constexpr int64_t kPublishByte = 1;
constexpr int64_t kLeaseBase = int64_t{1} << 40;
int64_t lease_byte(const std::string& key_digest);

class RangeLock {
 public:
  RangeLock() = default;
  ~RangeLock() { release(); }
  RangeLock(RangeLock&& other) noexcept { *this = std::move(other); }
  RangeLock& operator=(RangeLock&& other) noexcept;
  RangeLock(const RangeLock&) = delete;
  RangeLock& operator=(const RangeLock&) = delete;

  // Waits until `deadline` at most (a past one: one try). `create`: make the file if it is not there; without
  // it, or where that is not permitted, an existing one is opened for reading, which serves shared locks
  // only. `error_number` is set with kFailed, and with kAbsent to the reason why none could be made (0 when
  // not asked to).
  LockResult acquire(const std::string& lock_path, int64_t byte, LockKind kind, bool create,
                     Clock::time_point deadline, int& error_number);
  void release();
  bool held() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
  int owner_pid_ = -1;
  int64_t byte_ = 0;
};

}  // namespace trigen::cache
