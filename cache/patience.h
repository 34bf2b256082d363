// How long a store waits for others.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "cache/lock.h"

namespace trigen::cache {

// How long the operations of one store wait for others, all together: a plan makes some ten of them on each
// layer. Once busy_ms are spent on locks that outlasted them, everybody tries without waiting (a put for a
// tenth of it), until the lock is free or kForget has passed since it was last met.
class Patience {
 public:
  static constexpr std::chrono::seconds kForget{10};
  explicit Patience(int busy_ms) : busy_(std::chrono::milliseconds(std::max(busy_ms, 1))) {}
  Clock::time_point deadline(bool put) const;
  void met_lock(Clock::time_point since);
  void met_none() { spent_ = 0; }
  int64_t busy_ms() const { return std::chrono::duration_cast<std::chrono::milliseconds>(busy_).count(); }

 private:
  const Clock::duration busy_;
  std::atomic<Clock::rep> spent_{0}, last_{0};  // ticks
};

}  // namespace trigen::cache
