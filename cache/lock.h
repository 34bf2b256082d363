// Locks of our own, beside SQLite's: byte ranges of `<layer>.lock` under open-file-description locks (F_OFD_SETLK),
// the leases that are such bytes, how long a store waits for them, and what fork() must not tear.
//
// POSIX record locks, which SQLite uses, belong to the process: any close() of the file anywhere in it, by
// another copy of SQLite for instance, drops them. These belong to one open() and are dropped by its close
// alone, or by the kernel when the process dies; two threads of one process exclude each other as two
// processes do.
//
// SQLite forbids to carry a connection across fork(), and an open-file-description lock lives as long as any
// process has the description. So fork() waits (bounded) until no Operation is in flight, the connections that
// are kept between operations are closed then, and the child closes every lock descriptor that it inherited. A
// child made in the middle of an operation that did not end in time has no cache: Operation::allowed() is false
// there for ever.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace trigen::cache {

using Clock = std::chrono::steady_clock;

// Held around everything that touches SQLite or a mutex of the store's. May nest; not held while waiting for
// a lock file.
class Operation {
 public:
  Operation();
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  bool allowed() const { return allowed_; }

 private:
  bool allowed_;
};

// Held around a call of the C interface that takes locks of the runtime, the generator or the driver: fork()
// lets no new one begin and waits a moment for those under way (kCallWait; they may compile for seconds). A
// child made in the middle of one would wait for ever on what that call's thread had locked: allowed() is
// false there for ever, and the interface says so.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool allowed() const { return allowed_; }

 private:
  bool allowed_;
};

// Whoever registers handlers of its own runs them before those of this file, which must come first: a call
// that the handler's lock keeps from ending would be waited for in vain. To be called after a library that may
// have such handlers, a driver, was loaded.
void be_first_before_fork();

// `close` runs before each fork() that meets no operation in flight, in the thread that forks; it begins none.
void close_before_fork(const void* owner, std::function<void()> close);
void forget_before_fork(const void* owner);

enum class LockKind { kShared, kExclusive };
enum class LockResult { kLocked, kBusy, kAbsent, kFailed };  // kAbsent: no lock file, and none may be made

// Bytes of the lock file: 0 guards the layer, 1 a spool's publishing; leases have those from 2^40 on.
constexpr int64_t kLayerByte = 0;
constexpr int64_t kPublishByte = 1;

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

// The lock timeout of a store: how long its operations wait for others, all together, for a plan makes some ten of
// them on each layer. Once busy_ms are spent on locks that outlasted them, everybody tries without waiting (a put for
// a tenth of it), until the lock is free or kForget has passed since it was last met.
class LockTimeout {
 public:
  static constexpr std::chrono::seconds kForget{10};
  explicit LockTimeout(int busy_ms) : busy_(std::chrono::milliseconds(std::max(busy_ms, 1))) {}
  Clock::time_point deadline(bool put) const;
  void met_lock(Clock::time_point since);
  void met_none() { spent_ = 0; }
  int64_t busy_ms() const { return std::chrono::duration_cast<std::chrono::milliseconds>(busy_).count(); }

 private:
  const Clock::duration busy_;
  std::atomic<Clock::rep> spent_{0}, last_{0};  // ticks
};

// The right to compile one key, or to do anything else that has a name, until it is dropped.
class Lease {
 public:
  virtual ~Lease() = default;
};
// One try, without waiting. Null: somebody has it. `digest` is a SHA-256 in hex; `on_file`: a byte of the layer's lock
// file, or where none can be made a name in this process, as without it.
std::unique_ptr<Lease> try_lease(const std::string& layer, bool on_file, const std::string& digest);
// The same on the lock file alone, with an empty file beside the layer, "<layer>.begun-" and 32 digits of the digest.
// The file is not synced: it outlives its process, not the machine's power. `unended`: such a file was left here.
std::unique_ptr<Lease> try_mark(const std::string& layer, const std::string& digest, bool& unended);

}  // namespace trigen::cache
