// Built candidates on their way from the compiling threads to the measuring one, which takes them in its own
// order. Internal to tune.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/compile.h"
#include "tuner/compile_pool.h"

namespace trigen {

class BuildQueue {
 public:
  // `indices` are positions in `candidates`, which stays alive until the queue is destroyed, as the pool does.
  BuildQueue(const std::vector<Candidate>& candidates, const std::vector<size_t>& indices, Store& store,
             BuildAllOptions options, CompilePool& pool);
  ~BuildQueue();
  BuildQueue(const BuildQueue&) = delete;
  BuildQueue& operator=(const BuildQueue&) = delete;
  // Waits up to 50 ms, or compiles one itself where there is no thread; nullopt when it is not there yet.
  std::optional<llvm::Expected<BuiltBinary>> take(size_t index);

 private:
  BuildAllOptions options_;
  CompilePool& pool_;
  std::map<size_t, llvm::Expected<BuiltBinary>> built_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::atomic<bool> stop_{false};
};

}  // namespace trigen
