// Built candidates on their way from the compiling threads to the measuring one, which takes them in its own
// order. Internal to tune.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "check/workbench.h"
#include "tuner/tune.h"

namespace trigen {

class BuildQueue {
 public:
  // `indices` are positions in `candidates`, which stays alive until the queue is destroyed.
  BuildQueue(const std::vector<Candidate>& candidates, std::vector<size_t> indices, Store& store,
             BuildAllOptions options);
  ~BuildQueue();
  BuildQueue(const BuildQueue&) = delete;
  BuildQueue& operator=(const BuildQueue&) = delete;
  void stop() { stop_.store(true); }
  // Waits up to 50 ms; nullopt when it is not there yet. `over` when it will never come (a stopped queue).
  std::optional<llvm::Expected<BuiltBinary>> take(size_t index, bool& over);

 private:
  std::vector<size_t> indices_;
  std::vector<Candidate> work_;
  std::map<size_t, llvm::Expected<BuiltBinary>> built_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::atomic<bool> stop_{false};
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace trigen
