#include "tuner/build_queue.h"

#include <chrono>
#include <utility>

namespace trigen {

BuildQueue::BuildQueue(const std::vector<Candidate>& candidates, std::vector<size_t> indices, Store& store,
                       BuildAllOptions options)
    : indices_(std::move(indices)) {
  for (const size_t i : indices_) work_.push_back(candidates[i]);
  options.cancel = &stop_;
  thread_ = std::thread([this, &store, options] {
    build_all(work_, store, options, [this](size_t i, llvm::Expected<BuiltBinary> built) {
      const std::lock_guard<std::mutex> lock(mutex_);
      built_.emplace(indices_[i], std::move(built));
      ready_.notify_one();
      return !stop_.load();
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    finished_ = true;
    ready_.notify_one();
  });
}

BuildQueue::~BuildQueue() {
  stop();
  thread_.join();
  for (auto& [index, built] : built_) {
    if (!built) llvm::consumeError(built.takeError());
  }
}

std::optional<llvm::Expected<BuiltBinary>> BuildQueue::take(size_t index, bool& over) {
  std::unique_lock<std::mutex> lock(mutex_);
  ready_.wait_for(lock, std::chrono::milliseconds(50), [&] { return built_.count(index) > 0 || finished_; });
  const auto found = built_.find(index);
  over = found == built_.end() && finished_;
  if (found == built_.end()) return std::nullopt;
  std::optional<llvm::Expected<BuiltBinary>> out(std::move(found->second));
  built_.erase(found);
  return out;
}

}  // namespace trigen
