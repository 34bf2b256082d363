#include "cache/patience.h"

namespace trigen::cache {

Clock::time_point Patience::deadline(bool put) const {
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch() - Clock::duration(last_) > kForget) return now + busy_;
  const Clock::duration left = busy_ - Clock::duration(spent_);
  return now + std::max(left, put ? busy_ / 10 : Clock::duration::zero());
}

void Patience::met_lock(Clock::time_point since) {
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch() - Clock::duration(last_) > kForget) spent_ = 0;
  spent_ += (now - since).count();
  last_ = now.time_since_epoch().count();
}

}  // namespace trigen::cache
