// Builds candidates into the store on threads of its own, in their order, for whoever asks the store later.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/compile.h"

namespace trigen {

class BuildAhead {
 public:
  // The store outlives it. What cannot be built, all of it without a thread, is left to the caller's own build.
  BuildAhead(std::vector<Candidate> candidates, Store& store, BuildAllOptions options);
  // Stops: a compile under way is broken off where the compiler can.
  ~BuildAhead();
  BuildAhead(const BuildAhead&) = delete;
  BuildAhead& operator=(const BuildAhead&) = delete;

 private:
  const std::vector<Candidate> candidates_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace trigen
