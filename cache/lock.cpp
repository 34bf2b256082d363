#include "cache/lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <thread>

#include "cache/fork.h"

namespace trigen::cache {
namespace {

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

int64_t lease_byte(const std::string& key_digest) {
  // 60 bits of the digest: two keys that share a byte would only wait for each other.
  return kLeaseBase + static_cast<int64_t>(std::strtoull(key_digest.substr(0, 15).c_str(), nullptr, 16));
}

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

}  // namespace trigen::cache
