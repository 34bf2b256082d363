#include "tuner/compile_pool.h"

#include <algorithm>

#include "cache/host.h"
#include "tuner/worker/messages.h"

namespace trigen {

CompilePool::CompilePool(int threads, std::optional<std::string> program) : program_(std::move(program)) {
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

void CompilePool::submit(const void* owner, std::function<void()> job, Need need) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back({owner, std::move(job), need});
  }
  changed_.notify_all();
}

void CompilePool::build_ahead(const void* owner, const Candidate& candidate, Store& store,
                              BuildAllOptions options, Need need) {
  options.compiler = compiler();
  submit(
      owner,
      [candidate, &store, options = std::move(options)] {
        auto built = build(candidate, store, options);
        if (!built) llvm::consumeError(built.takeError());
      },
      need);
}

void CompilePool::forget(const void* owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(jobs_, [&](const Job& job) { return job.owner == owner; });
}

void CompilePool::withdraw(const void* owner) {
  forget(owner);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return running_.count(owner) == 0; });
}

void CompilePool::withdraw_all() {
  std::unique_lock<std::mutex> lock(mutex_);
  jobs_.clear();
  changed_.wait(lock, [&] { return running_.empty(); });
}

std::deque<CompilePool::Job>::iterator CompilePool::next() {
  const auto running = [&](const Job& job) {
    const auto found = running_.find(job.owner);
    return std::pair(job.need, found == running_.end() ? 0 : found->second);
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

Compiler CompilePool::compiler() {
  if (!program_) return {};
  return [this](const Candidate& candidate, const Nvrtc& nvrtc, const std::atomic<bool>* cancel, Code code) {
    return compile(candidate, nvrtc, cancel, code);
  };
}

std::unique_ptr<worker::Process> CompilePool::start_process() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (here_ < kMostHere) {
      ++here_;
      return nullptr;
    }
    if (!idle_.empty()) {
      auto process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
  }
  worker::ProcessOptions options;
  options.program = *program_;
  auto process = std::make_unique<worker::Process>(std::move(options));
  if (auto error = process->start()) {
    llvm::consumeError(std::move(error));
    const std::lock_guard<std::mutex> lock(mutex_);
    ++here_;
    return nullptr;
  }
  return process;
}

llvm::Expected<Binary> CompilePool::compile(const Candidate& candidate, const Nvrtc& nvrtc,
                                            const std::atomic<bool>* cancel, Code code) {
  auto process = start_process();
  if (process == nullptr) {
    auto binary = trigen::compile(candidate, nvrtc, cancel, code);
    const std::lock_guard<std::mutex> lock(mutex_);
    --here_;
    return binary;
  }
  auto answer = process->call({{"op", "compile"},
                               {"problem", to_string(candidate.problem)},
                               {"target", candidate.target->name.str()},
                               {"candidate", describe(candidate)},
                               {"nvrtc", nvrtc.file().path},
                               {"ptx_only", code == Code::kPtx}},
                              cancel);
  if (!answer) {
    const std::string why = take_error(answer.takeError()).message;
    return make_error(ErrorKind::kBuild, cancel != nullptr && cancel->load()
                                             ? "compile of " + describe(candidate) + " was cancelled"
                                             : "compile failed: " + describe(candidate) + ": " + why +
                                                   "; with -j 2 this process compiles all");
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(process));
  }
  if (auto error = worker::error_from(*answer)) return error;
  Binary binary = worker::binary_from(answer->at("binary"));
  binary.source = render(candidate).text;
  return binary;
}

void CompilePool::lend_thread() {
  if (!threads_.empty()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  if (!jobs_.empty()) run_next(lock);
}

}  // namespace trigen
