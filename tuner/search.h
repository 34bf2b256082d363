// The search's decisions, apart from devices and compilers: what is good enough to stop, and who goes into
// the finals.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trigen {

struct SearchOptions {
  double budget_s = 120;      // for one problem, finals included
  double finals_share = 0.2;  // part of the budget that is kept for the finals
  size_t min_timed = 32;      // no early stop before that many were timed
  size_t patience =
      16;  // stop when that many in a row, in the model's order, did not beat the best by the noise
  size_t finalists = 5;
  double finals_reach =
      0.06;  // only candidates this close to the best quick time (6 %: beyond what noise can turn round)
};

// Candidates are known by their position in the model's order, which is also the fixed order of ties.
class Search {
 public:
  Search(size_t candidates, const SearchOptions& options);

  void timed(size_t candidate, double median_s);
  void failed(size_t candidate);  // not built, wrong, or spilling: out

  // Should the next candidate be timed? `elapsed_s` counts from the start of the problem.
  bool wants_more(double elapsed_s) const;
  // Why it stopped: "all 40 candidates timed", "budget of 60 s spent", "no gain in 16 candidates".
  std::string reason(double elapsed_s) const;

  size_t timed_count() const { return timed_; }
  bool any() const { return timed_ > 0; }
  size_t best() const { return best_; }
  double best_seconds() const { return best_s_; }
  // The best few, in the fixed order.
  std::vector<size_t> finalists() const;
  // Would this time still be among the best few? Graphs of others need not be kept.
  bool contends(double median_s) const;

 private:
  SearchOptions options_;
  std::vector<double> seconds_;  // < 0: not timed
  size_t done_ = 0, timed_ = 0, best_ = 0, since_gain_ = 0;
  double best_s_ = 0;
};

}  // namespace trigen
