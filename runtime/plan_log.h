// The log line and the counters of one plan.
#pragma once

#include <chrono>

#include "runtime/log.h"
#include "runtime/plan.h"

namespace trigen {

// Lives while the plan is made.
class PlanLog {
 public:
  PlanLog(std::string problem, const Device& device)
      : problem_(std::move(problem)), device_(device), began_(std::chrono::steady_clock::now()) {}
  // Counts it and writes its line; says, once in a process, that a plan is untuned or near, and each reason for which
  // one is slow (generator/slow_path.h, or "").
  void made(const Resolution& resolution, const std::string& slow) const;
  llvm::Error failed(llvm::Error error) const;

 private:
  const std::string problem_;
  const Device& device_;
  const std::chrono::steady_clock::time_point began_;
};

}  // namespace trigen
