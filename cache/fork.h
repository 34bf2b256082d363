// What fork() must not tear: operations in flight and the file descriptors that carry locks.
//
// SQLite forbids to carry a connection across fork(), and an open-file-description lock lives as long as any
// process has the description. So fork() waits (bounded) until no Operation is in flight, the connections that
// are kept between operations are closed then, and the child closes every lock descriptor that it inherited. A
// child made in the middle of an operation that did not end in time has no cache: Operation::allowed() is false
// there for ever.
#pragma once

#include <functional>
#include <string>

namespace trigen::cache {

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

// Opens a regular file with O_CLOEXEC and registers the descriptor, atomically with respect to fork(). -1 and
// errno on failure; ENXIO for what is no regular file, which is never waited for.
int open_lock_descriptor(const std::string& path, int flags, int mode);
// Closes and forgets it; nothing in a process that did not open it (the child's copy is closed already).
void close_lock_descriptor(int descriptor, int owner_pid);

// Leases of this process alone, for where no lock file can be made. Forgotten in a fork's child.
bool enter_process_lease(const std::string& name);
void leave_process_lease(const std::string& name, int owner_pid);

}  // namespace trigen::cache
