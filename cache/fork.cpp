#include "cache/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <set>

namespace trigen::cache {
namespace {

constexpr std::chrono::seconds kForkWait{2};
constexpr std::chrono::milliseconds kCallWait{100};
// One that forks or calls again inside a call must not wait for it.
thread_local int calls_of_this_thread = 0;
// How often the handlers below are registered before the one that runs: the outermost of a fork acts.
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

void close_lock_descriptor(int descriptor, int owner_pid) {
  if (descriptor < 0 || owner_pid != ::getpid()) return;
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.descriptors.erase(descriptor);
  ::close(descriptor);
}

bool enter_process_lease(const std::string& name) {
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  return g.process_leases.insert(name).second;
}

void leave_process_lease(const std::string& name, int owner_pid) {
  if (owner_pid != ::getpid()) return;
  Gate& g = gate();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.process_leases.erase(name);
}

}  // namespace trigen::cache
