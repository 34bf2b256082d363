// The progress of a tune on stderr: a bar that is rewritten in place on a terminal, plain lines otherwise.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "tuner/tune.h"

namespace trigen::cli {

class ProgressDisplay {
 public:
  // `terminal`: rewrite one line. Plain lines come at most every ten seconds for one problem and phase.
  ProgressDisplay(std::FILE* out, bool terminal, int columns, size_t problems);
  ~ProgressDisplay() { clear(); }
  void begin(size_t problem_index);
  void show(const TuneProgress& progress);
  // Removes the bar, so that other text can be printed.
  void clear();
  // The bar's text without control characters, at most `columns` wide.
  // `eta_all_s` is for the whole list, shown when there are several problems.
  static std::string bar(const TuneProgress& progress, size_t index, size_t problems, double eta_all_s,
                         int columns);

 private:
  std::FILE* out_;
  bool terminal_;
  int columns_;
  size_t problems_, index_ = 0;
  bool drawn_ = false;
  std::string last_phase_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};
};

// stderr, a bar when it is a terminal.
ProgressDisplay make_progress(size_t problems);

}  // namespace trigen::cli
