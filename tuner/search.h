// The search's decisions, apart from devices and compilers: what to time next, when to stop, and who goes
// into the finals.
//
// The model's order is a good guess of which tiles are worth a try and a poor one of the last ten percent, or of
// which family is ahead of another. So the search times the first choice of every family and the model's first
// choices, spread over different tiles, and then walks: neighbours of the best config so far (one parameter
// away), then of the second best. A tenth of the candidates is timed at most. Times decide, in a fixed order: two
// searches that see the same times take the same path.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "generator/family.h"

namespace trigen {

struct SearchOptions {
  double budget_s = 60;       // for one problem, finals included, inputs, reference and anchor not; 0 = none
  double finals_share = 0.2;  // part of the budget that is kept for the finals
  double share = 0.1;         // of the candidates that is tried at most ...
  size_t min_tried = 12;      // ... but at least so many
  size_t max_tried = 64;      // and at most so many; 0 = no such limit
  double seeds = 0.5;         // part of them that the model chooses
  size_t family_first = 1;    // of these the first few of every family, of different tiles; 0: as they come
  size_t batch = 6;           // candidates of one step of the walk: built in parallel
  size_t patience = 2;        // steps in a row that did not beat the best by the noise: stop
  bool exhaustive = false;    // every candidate, in the model's order
  size_t finalists = 8;
  // Only candidates this close to the best quick time: quick times are taken alone, and a chip that gets warm
  // has moved them by up to 16 % (H200, 2026-11-20, 0.8 ms kernels), finals are taken in turn. Where the
  // noise is measured (tuner/anchor.h), Search::set_reach says how close.
  double finals_reach = 0.1;
};

// One config as the search knows it.
struct SearchPoint {
  std::string family;
  Config config{};
  double predicted_s = 0;
};

// Candidates of the same family with configs a step away from each other.
bool neighbours(const SearchPoint& a, const SearchPoint& b);

// Candidates are known by their position in the model's order, which is also the fixed order of ties.
class Search {
 public:
  Search(std::vector<SearchPoint> points, const SearchOptions& options);

  // The candidates to build and try next, in this order; empty: stop. Every one of the last batch must have been
  // reported (timed or failed), or the search has been out of time.
  std::vector<size_t> next(double elapsed_s);
  // What comes after a batch whose candidates take as long as the model says, beside the best one so far: what is worth a
  // compile meanwhile.
  std::vector<size_t> after(const std::vector<size_t>& batch) const;
  void timed(size_t candidate, double median_s);
  void failed(size_t candidate);  // not built, or wrong: out

  // Is there time left for another one?
  bool in_time(double elapsed_s) const;
  // Why it stopped: "all 40 candidates tried", "budget of 60 s spent", "no gain in 2 steps".
  std::string reason(double elapsed_s) const;

  size_t tried_count() const { return done_; }
  size_t allowance() const { return allowance_; }  // candidates tried at most
  bool any() const { return timed_ > 0; }
  size_t best() const { return best_; }
  double best_seconds() const { return best_s_; }
  void set_reach(double reach) { options_.finals_reach = reach; }
  // The best few, in the fixed order.
  std::vector<size_t> finalists() const;
  // The longest time that is among the best few so far: what takes longer needs neither a check nor its graph.
  double contending_s() const;

 private:
  std::vector<size_t> seeds() const;
  std::vector<size_t> step() const;
  size_t left() const { return allowance_ > done_ ? allowance_ - done_ : 0; }

  SearchOptions options_;
  std::vector<SearchPoint> points_;
  std::vector<double> seconds_;  // < 0: not timed
  std::vector<bool> tried_;
  size_t allowance_ = 0, done_ = 0, timed_ = 0, best_ = 0, idle_steps_ = 0, steps_ = 0;
  double best_s_ = 0, before_step_s_ = 0;
};

}  // namespace trigen
