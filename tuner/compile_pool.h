// Threads that compile for every tune of a process: what is needed first comes first, and of that whoever has the fewest
// compiles under way is next.
//
// NVRTC's front end takes one lock in a process: on 16 cores (an H100's host, NVRTC 13.0.88, 2026-11-26) a kernel of
// wgmma_sm90 compiled 1.9 times a second on one thread, 6.6 on 4, 9.7 on 16, and 26 in 16 processes. So threads beyond
// the second compile in a process each, where the pool may start some.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/compile.h"
#include "tuner/worker/process.h"

namespace trigen {

class CompilePool {
 public:
  // 0 threads: the CPUs this process may use. `program`: a trigen for the processes, "" this one; nullopt: none are
  // started, as a library must not.
  explicit CompilePool(int threads = 0, std::optional<std::string> program = std::nullopt);
  // Every owner has withdrawn.
  ~CompilePool();
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  // When a job's kernel is needed: now, or perhaps by the next step of this problem's search, or by the next problem.
  enum class Need { kNow, kNextStep, kNextProblem };
  void submit(const void* owner, std::function<void()> job, Need need = Need::kNow);
  // A job that leaves a kernel in the store, where whoever needs it finds it. An error is said when it is built for that. The store
  // and what `options` point to outlive the job.
  void build_ahead(const void* owner, const Candidate& candidate, Store& store, BuildAllOptions options,
                   Need need);
  // Drops the owner's jobs that have not begun.
  void forget(const void* owner);
  // The same, and waits for those that have.
  void withdraw(const void* owner);
  void withdraw_all();  // of all owners
  // What a job builds with (BuildOptions::compiler). A process that does not start leaves the compile to this one.
  Compiler compiler();
  // For whoever waits for a job: where the host made no thread, the next job runs on the caller's.
  void lend_thread();

 private:
  static constexpr int kMostHere = 2;  // compiles of this process at once
  llvm::Expected<Binary> compile(const Candidate& candidate, const Nvrtc& nvrtc,
                                 const std::atomic<bool>* cancel, Code code);
  std::unique_ptr<worker::Process> start_process();  // null: this process compiles

  struct Job {
    const void* owner;
    std::function<void()> work;
    Need need;
  };
  void run();
  void run_next(std::unique_lock<std::mutex>& lock);
  std::deque<Job>::iterator next();  // under the mutex, with jobs there

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<const void*, int> running_;
  bool over_ = false;
  const std::optional<std::string> program_;
  int here_ = 0;
  std::vector<std::unique_ptr<worker::Process>> idle_;
  std::vector<std::thread> threads_;
};

}  // namespace trigen
