// The progress of several GPUs on stderr: on a terminal a line for each, rewritten in place; everywhere a line
// for each finished problem.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tuner/tune.h"

namespace trigen::cli {

class FleetProgress {
 public:
  // `names` of the GPUs; `items`: problems in all, for each kind of GPU.
  FleetProgress(std::FILE* out, bool terminal, int columns, std::vector<std::string> names, size_t items);
  ~FleetProgress() { clear(); }
  void begin(size_t gpu);
  void show(size_t gpu, const TuneProgress& progress);
  void clear();
  void finish(size_t gpu, const std::string& problem, const std::string& result, const std::string& choice);

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  std::FILE* out_;
  bool terminal_;
  int columns_;
  std::vector<std::string> names_, lines_;
  std::vector<Clock::time_point> begun_;
  size_t items_, done_ = 0;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_{};
};

FleetProgress make_fleet_progress(std::vector<std::string> names, size_t items);

}  // namespace trigen::cli
