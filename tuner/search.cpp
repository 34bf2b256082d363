#include "tuner/search.h"

#include <algorithm>

#include "tuner/statistics.h"
#include "tuner/text.h"

namespace trigen {

Search::Search(size_t candidates, const SearchOptions& options)
    : options_(options), seconds_(candidates, -1) {}

void Search::timed(size_t candidate, double median_s) {
  seconds_[candidate] = median_s;
  ++done_;
  ++timed_;
  const bool gain = timed_ == 1 || median_s < best_s_ * (1 - kNoiseFloor);
  since_gain_ = gain ? 0 : since_gain_ + 1;
  if (timed_ == 1 || median_s < best_s_) {
    best_ = candidate;
    best_s_ = median_s;
  }
}

void Search::failed(size_t) { ++done_; }

bool Search::wants_more(double elapsed_s) const {
  if (done_ >= seconds_.size()) return false;
  if (options_.budget_s > 0 && elapsed_s >= options_.budget_s * (1 - options_.finals_share)) return false;
  return timed_ < options_.min_timed || since_gain_ < options_.patience;
}

std::string Search::reason(double elapsed_s) const {
  if (done_ >= seconds_.size()) return format("all %zu candidates tried", seconds_.size());
  if (options_.budget_s > 0 && elapsed_s >= options_.budget_s * (1 - options_.finals_share)) {
    return format("budget of %.0f s spent after %zu of %zu candidates", options_.budget_s, done_,
                  seconds_.size());
  }
  if (timed_ >= options_.min_timed && since_gain_ >= options_.patience) {
    return format("no gain in the last %zu of %zu candidates timed", since_gain_, timed_);
  }
  return format("stopped after %zu of %zu candidates", done_, seconds_.size());
}

std::vector<size_t> Search::finalists() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < seconds_.size(); ++i) {
    if (seconds_[i] >= 0 && seconds_[i] <= best_s_ * (1 + options_.finals_reach)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return seconds_[a] < seconds_[b]; });
  if (order.size() > options_.finalists) order.resize(options_.finalists);
  std::sort(order.begin(), order.end());
  return order;
}

bool Search::contends(double median_s) const {
  if (timed_ == 0) return true;
  if (median_s > best_s_ * (1 + options_.finals_reach)) return false;
  size_t better = 0;
  for (const double s : seconds_) better += s >= 0 && s < median_s ? 1 : 0;
  return better < options_.finalists;
}

}  // namespace trigen
