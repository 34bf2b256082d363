#include "tuner/compile_pool.h"

#include <algorithm>

#include "cache/host.h"
#include "runtime/compile.h"

namespace trigen {

CompilePool::CompilePool(int threads) {
  const int wanted = threads > 0 ? threads : usable_cpus();
  threads_.reserve(static_cast<size_t>(wanted));
  while (threads_.size() < static_cast<size_t>(wanted)) {
    std::thread made = start_thread([this] { run(); });
    if (!made.joinable()) break;
    threads_.push_back(std::move(made));
  }
}

CompilePool::~CompilePool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CompilePool::submit(const void* owner, std::function<void()> job, bool ahead) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back({owner, std::move(job), ahead});
  }
  changed_.notify_all();
}

void CompilePool::withdraw(const void* owner) {
  std::unique_lock<std::mutex> lock(mutex_);
  jobs_.erase(std::remove_if(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job.owner == owner; }),
              jobs_.end());
  changed_.wait(lock, [&] { return running_.count(owner) == 0; });
}

std::deque<CompilePool::Job>::iterator CompilePool::next() {
  const auto running = [&](const Job& job) {
    const auto found = running_.find(job.owner);
    return std::pair(job.ahead, found == running_.end() ? 0 : found->second);
  };
  return std::min_element(jobs_.begin(), jobs_.end(),
                          [&](const Job& a, const Job& b) { return running(a) < running(b); });
}

void CompilePool::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || !jobs_.empty(); });
    if (over_) return;
    run_next(lock);
  }
}

void CompilePool::run_next(std::unique_lock<std::mutex>& lock) {
  const auto at = next();
  const Job job = std::move(*at);
  jobs_.erase(at);
  ++running_[job.owner];
  lock.unlock();
  job.work();
  lock.lock();
  if (--running_[job.owner] == 0) running_.erase(job.owner);
  changed_.notify_all();
}

void CompilePool::lend_thread() {
  if (!threads_.empty()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  if (!jobs_.empty()) run_next(lock);
}

}  // namespace trigen
