#include "tuner/build_queue.h"

#include <chrono>
#include <utility>

namespace trigen {

BuildQueue::BuildQueue(const std::vector<Candidate>& candidates, const std::vector<size_t>& indices,
                       Store& store, BuildAllOptions options, CompilePool& pool)
    : options_(options), pool_(pool) {
  options_.cancel = &stop_;
  options_.compiler = pool.compiler();
  for (const size_t i : indices)
    pool_.submit(this, [this, i, &candidates, &store] {
      auto built = build(candidates[i], store, options_);
      const std::lock_guard<std::mutex> lock(mutex_);
      built_.emplace(i, std::move(built));
      ready_.notify_one();
    });
}

BuildQueue::~BuildQueue() {
  stop_ = true;
  pool_.withdraw(this);
  for (auto& [index, built] : built_) {
    if (!built) llvm::consumeError(built.takeError());
  }
}

std::optional<llvm::Expected<BuiltBinary>> BuildQueue::take(size_t index) {
  pool_.lend_thread();
  std::unique_lock<std::mutex> lock(mutex_);
  ready_.wait_for(lock, std::chrono::milliseconds(50), [&] { return built_.count(index) > 0; });
  const auto found = built_.find(index);
  if (found == built_.end()) return std::nullopt;
  std::optional<llvm::Expected<BuiltBinary>> out(std::move(found->second));
  built_.erase(found);
  return out;
}

}  // namespace trigen
