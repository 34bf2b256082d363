// The progress of a tune on stderr: on a terminal a line that is rewritten in place while a problem is worked
// on; everywhere one line for each finished problem.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "tuner/tune.h"

namespace trigen::cli {

class ProgressDisplay {
 public:
  // `terminal`: show the bar. Without it a problem that takes long says so once a minute.
  ProgressDisplay(std::FILE* out, bool terminal, int columns, size_t problems);
  ~ProgressDisplay() { clear(); }
  void begin(size_t problem_index);
  void show(const TuneProgress& progress);
  // Removes the bar, so that other text can be printed.
  void clear();
  // "[3/131] forward,...  22.2 us measured  mma_sm80:...  (12 s, 1 h 05 min left)". `result` is what was found:
  // a time and a choice, or why there is none. On a terminal one line: the choice gives way, then the problem.
  void finish(const std::string& problem, const std::string& result, const std::string& choice);
  // The bar's text without control characters, at most `columns` wide.
  // `eta_all_s` is for the whole list, shown when there are several problems.
  static std::string bar(const TuneProgress& progress, size_t index, size_t problems, double eta_all_s,
                         int columns);

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  bool terminal_;
  int columns_;
  size_t problems_, index_ = 0;
  bool drawn_ = false;
  std::string last_phase_;
  Clock::time_point start_ = Clock::now(), begun_ = Clock::now();
  Clock::time_point last_{};
};

// stderr, a bar when it is a terminal and --quiet does not forbid it.
ProgressDisplay make_progress(size_t problems);

}  // namespace trigen::cli
