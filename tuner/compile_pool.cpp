#include "tuner/compile_pool.h"

#include <algorithm>

#include "runtime/compile.h"

namespace trigen {

CompilePool::CompilePool(int threads) {
  const int wanted = threads > 0 ? threads : usable_cpus();
  for (int i = 0; i < wanted; ++i) threads_.emplace_back([this] { run(); });
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
}

}  // namespace trigen
