#include "cache/lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <utility>

namespace trigen::cache {
namespace {

constexpr std::chrono::seconds kForkWait{2};
constexpr std::chrono::milliseconds kCallWait{100};
// Calls open in this thread: a fork or a call inside one must not wait for it.
thread_local int calls_of_this_thread = 0;
// The number of times that the handlers below are registered before the one that runs: the outermost of a fork acts.
thread_local int handlers_of_this_fork = 0;

struct Gate {
  std::mutex mutex;
  std::condition_variable idle;
  int active = 0;     // operations
  bool torn = false;  // this process was forked in the middle of an operation
  int calls = 0;
  bool calls_torn = false;
  bool forking = false;
  std::condition_variable forked;
  std::map<const void*, std::function<void()>> closers;
  std::set<int> descriptors;
  std::set<std::string> process_leases;
};

Gate& gate();

void before_fork() {
  if (handlers_of_this_fork++ > 0) return;
  Gate& g = gate();
  std::unique_lock<std::mutex> lock(g.mutex);
  g.forking = true;
  g.idle.wait_for(lock, kCallWait, [&g] { return g.calls == calls_of_this_thread && g.active == 0; });
  g.idle.wait_for(lock, kForkWait, [&g] { return g.active == 0; });
  if (g.active == 0)
    for (const auto& [owner, close] : g.closers) close();
  lock.release();  // held until after the fork
}

void after_fork_in_parent() {
  if (--handlers_of_this_fork > 0) return;
  Gate& g = gate();
  g.forking = false;
  g.mutex.unlock();
  g.forked.notify_all();
}

void after_fork_in_child() {
  if (--handlers_of_this_fork > 0) return;
  Gate& g = gate();
  // Other threads are gone, and with them whatever they did to the mutex and the condition: make both anew.
  new (&g.mutex) std::mutex;
  new (&g.idle) std::condition_variable;
  new (&g.forked) std::condition_variable;
  if (g.active != 0) g.torn = true;
  if (g.calls != calls_of_this_thread) g.calls_torn = true;
  g.active = 0;
  g.calls = calls_of_this_thread;
  g.forking = false;
  // The parent's locks stay the parent's: close() of an inherited descriptor leaves its description locked.
  for (int descriptor : g.descriptors) ::close(descriptor);
  g.descriptors.clear();
  g.process_leases.clear();
}

Gate& gate() {
  // Never destroyed: stores may live in static objects of the application.
  static Gate* const instance = [] {
    auto* made = new Gate;
    be_first_before_fork();
    return made;
  }();
  return *instance;
}

// Made when the library is loaded: a child of a fork() beside the first call of another thread would wait for
// ever on the guard of the static object that the call was about to make.
[[maybe_unused]] const Gate& made_at_load = gate();

}  // namespace

Operation::Operation() {
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  allowed_ = !g.torn;
  ++g.active;
}

Operation::~Operation() {
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  if (g.active > 0 && --g.active == 0) g.idle.notify_all();
}

Call::Call() {
  Gate& g = gate();
  std::unique_lock<std::mutex> lock(g.mutex);
  if (calls_of_this_thread == 0) g.forked.wait(lock, [&g] { return !g.forking; });
  allowed_ = !g.calls_torn;
  ++g.calls;
  ++calls_of_this_thread;
}

Call::~Call() {
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  --g.calls;
  --calls_of_this_thread;
  if (g.forking) g.idle.notify_all();
}

void be_first_before_fork() { ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

void close_before_fork(const void* owner, std::function<void()> close) {
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.closers[owner] = std::move(close);
}

void forget_before_fork(const void* owner) {
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.closers.erase(owner);
}

namespace {

// Opens a regular file with O_CLOEXEC and registers the descriptor, atomically with respect to fork(). -1 and
// errno on failure; ENXIO for what is no regular file, which is never waited for.
int open_lock_descriptor(const std::string& path, int flags, int mode) {
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  // O_NONBLOCK: opening a FIFO would wait for its other end.
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode);
  if (descriptor < 0) return -1;
  struct stat facts = {};
  if (::fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    ::close(descriptor);
    errno = ENXIO;
    return -1;
  }
  g.descriptors.insert(descriptor);
  return descriptor;
}

// Closes and forgets it; nothing in a process that did not open it (the child's copy is closed already).
void close_lock_descriptor(int descriptor, int owner_pid) {
  if (descriptor < 0 || owner_pid != ::getpid()) return;
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.descriptors.erase(descriptor);
  ::close(descriptor);
}

int set_lock(int descriptor, short type, int64_t byte) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  int result;
  do {
    result = ::fcntl(descriptor, F_OFD_SETLK, &range);
  } while (result != 0 && errno == EINTR);
  return result;
}

// Between tries: short at first, then up to 4 ms, at random so that equal waiters do not walk in step.
void pause_before_try(int attempt, Clock::time_point deadline) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const int longest_us = std::min(4000, 100 << std::min(attempt, 6));
  std::uniform_int_distribution<int> pause_us(longest_us / 2, longest_us);
  const auto left = deadline - Clock::now();
  std::this_thread::sleep_for(std::min<Clock::duration>(std::chrono::microseconds(pause_us(random)), left));
}

}  // namespace

RangeLock& RangeLock::operator=(RangeLock&& other) noexcept {
  if (this != &other) {
    release();
    descriptor_ = std::exchange(other.descriptor_, -1);
    owner_pid_ = other.owner_pid_;
    byte_ = other.byte_;
  }
  return *this;
}

LockResult RangeLock::acquire(const std::string& lock_path, int64_t byte, LockKind kind, bool create,
                              Clock::time_point deadline, int& error_number) {
  release();
  error_number = 0;
  int descriptor = -1;
  if (create) {
    descriptor = open_lock_descriptor(lock_path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (descriptor < 0) error_number = errno;
  }
  if (descriptor < 0 && (kind == LockKind::kShared || !create)) {
    const int flags = (kind == LockKind::kShared ? O_RDONLY : O_RDWR) | O_NOFOLLOW;
    descriptor = open_lock_descriptor(lock_path, flags, 0);
    if (descriptor < 0 && !create && errno != ENOENT && errno != ENOTDIR) error_number = errno;
  }
  if (descriptor < 0) return LockResult::kAbsent;

  const short type = kind == LockKind::kShared ? F_RDLCK : F_WRLCK;
  for (int attempt = 0;; ++attempt) {
    if (set_lock(descriptor, type, byte) == 0) break;
    const int failure = errno;
    const bool busy = failure == EAGAIN || failure == EACCES;
    if (!busy || Clock::now() >= deadline) {
      close_lock_descriptor(descriptor, ::getpid());
      error_number = failure;
      return busy ? LockResult::kBusy : LockResult::kFailed;
    }
    pause_before_try(attempt, deadline);
  }
  descriptor_ = descriptor;
  owner_pid_ = ::getpid();
  byte_ = byte;
  return LockResult::kLocked;
}

void RangeLock::release() {
  if (descriptor_ < 0) return;
  // Unlock by name first: a fork's child may still hold a copy of the description.
  if (owner_pid_ == ::getpid()) set_lock(descriptor_, F_UNLCK, byte_);
  close_lock_descriptor(descriptor_, owner_pid_);
  descriptor_ = -1;
}

Clock::time_point LockTimeout::deadline(bool put) const {
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch() - Clock::duration(last_) > kForget) return now + busy_;
  const Clock::duration left = busy_ - Clock::duration(spent_);
  return now + std::max(left, put ? busy_ / 10 : Clock::duration::zero());
}

void LockTimeout::met_lock(Clock::time_point since) {
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch() - Clock::duration(last_) > kForget) spent_ = 0;
  spent_ += (now - since).count();
  last_ = now.time_since_epoch().count();
}

namespace {

class FileLease final : public Lease {
 public:
  FileLease(RangeLock lock, std::string mark) : mark_(std::move(mark)), lock_(std::move(lock)) {}
  ~FileLease() override {
    if (!mark_.empty() && owner_pid_ == ::getpid()) ::unlink(mark_.c_str());
  }

 private:
  const std::string mark_;  // path, "" of a lease without one
  RangeLock lock_;          // until the mark is gone
  const int owner_pid_ = ::getpid();
};

// A lease within this process, for where no lock file can be made. Forgotten in a fork's child.
class ProcessLease final : public Lease {
 public:
  explicit ProcessLease(std::string name) : name_(std::move(name)) {}
  ~ProcessLease() override {
    if (owner_pid_ != ::getpid()) return;
    const std::lock_guard<std::mutex> lock(gate().mutex);
    gate().process_leases.erase(name_);
  }

 private:
  const std::string name_;
  const int owner_pid_ = ::getpid();
};

LockResult lock_name(const std::string& layer, const std::string& digest, RangeLock& lock) {
  // 60 bits of the digest: two keys that share a byte would only wait for each other.
  constexpr int64_t kLeaseBase = int64_t{1} << 40;
  const auto bits = static_cast<int64_t>(std::strtoull(digest.substr(0, 15).c_str(), nullptr, 16));
  int error = 0;
  return lock.acquire(layer + ".lock", kLeaseBase + bits, LockKind::kExclusive, /*create=*/true,
                      Clock::time_point(), error);
}

}  // namespace

std::unique_ptr<Lease> try_mark(const std::string& layer, const std::string& digest, bool& unended) {
  unended = false;
  RangeLock lock;
  if (lock_name(layer, digest, lock) != LockResult::kLocked) return nullptr;
  std::string path = layer + ".begun-" + digest.substr(0, 32);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  unended = descriptor < 0 && errno == EEXIST;
  if (descriptor >= 0) ::close(descriptor);
  if (descriptor < 0 && !unended) return nullptr;
  return std::make_unique<FileLease>(std::move(lock), std::move(path));
}

std::unique_ptr<Lease> try_lease(const std::string& layer, bool on_file, const std::string& digest) {
  RangeLock lock;
  const LockResult locked = on_file ? lock_name(layer, digest, lock) : LockResult::kAbsent;
  if (locked == LockResult::kLocked) return std::make_unique<FileLease>(std::move(lock), "");
  if (locked == LockResult::kBusy) return nullptr;
  const std::string name = layer + "\n" + digest;
  {
    const std::lock_guard<std::mutex> guard(gate().mutex);
    if (!gate().process_leases.insert(name).second) return nullptr;
  }
  return std::make_unique<ProcessLease>(name);
}

}  // namespace trigen::cache
