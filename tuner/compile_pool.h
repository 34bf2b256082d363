// Threads that compile for every tune of a process: whoever has the fewest compiles under way is next, and what
// is asked for ahead of its time waits for what is needed now.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace trigen {

class CompilePool {
 public:
  // 0 threads: the CPUs this process may use.
  explicit CompilePool(int threads = 0);
  // Every owner has withdrawn.
  ~CompilePool();
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  void submit(const void* owner, std::function<void()> job, bool ahead = false);
  // Drops the owner's jobs that have not begun and waits for those that have.
  void withdraw(const void* owner);
  // For whoever waits for a job: where the host made no thread, the next job runs on the caller's.
  void lend_thread();

 private:
  struct Job {
    const void* owner;
    std::function<void()> work;
    bool ahead;
  };
  void run();
  void run_next(std::unique_lock<std::mutex>& lock);
  std::deque<Job>::iterator next();  // under the mutex, with jobs there

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<const void*, int> running_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trigen
