#include "tuner/bench.h"

#include <chrono>

#include "check/verify.h"

namespace trigen {

LocalBench::LocalBench(const Device* device, Watch watch) : device_(device), watch_(std::move(watch)) {}
LocalBench::~LocalBench() = default;

template <class Work>
auto LocalBench::waiting(double expected_s, const Work& work) {
  if (watch_) watch_(expected_s);
  auto result = work();
  if (watch_) watch_(-1);
  return result;
}

llvm::Error LocalBench::begin(const Problem& problem, const WorkbenchOptions& options) {
  if (bench_ != nullptr && problem == problem_ && options.seed == options_.seed &&
      options.rotate == options_.rotate)
    return llvm::Error::success();
  held_.clear();
  reference_.reset();
  bench_.reset();
  problem_ = problem;
  options_ = options;
  auto bench = Workbench::create(*device_, problem_, options);
  if (!bench) return bench.takeError();
  bench_ = std::move(*bench);
  reference_ = std::make_unique<Reference>(problem_, bench_->list(), bench_->inputs());
  return llvm::Error::success();
}

// As verify() does, but each run is waited for at once: what comes after it is the host's time.
llvm::Error LocalBench::check(const Plan& plan, double expected_s, Trial& out) {
  auto args = bench_->timed_args(0, plan.workspace_bytes());
  if (!args) return args.takeError();
  const auto run = [&]() -> llvm::Error {
    return waiting(expected_s, [&]() -> llvm::Error {
      if (auto error = plan.run(*args, bench_->stream())) return error;
      return bench_->synchronize();
    });
  };
  auto checked = verify_launch(*bench_, *reference_, run, true);
  if (!checked) return checked.takeError();
  out.error = checked->error;
  out.tolerance = checked->tolerance;
  if (!checked->ok) {
    out.end = Trial::End::kWrong;
    out.note = checked->failure;
  }
  return llvm::Error::success();
}

llvm::Error LocalBench::time(size_t, Held& held, Trial& out) {
  auto launch = launcher(*bench_, std::shared_ptr<const Executable>(held.plan, &held.plan->executable()));
  if (!launch) return launch.takeError();
  // two small graphs and a few replays of at least a millisecond each
  const MeasureOptions measure;
  const int replays = 2 + measure.warmups + measure.samples;
  const double replay_s =
      std::max(measure.sample_seconds, std::max(measure.min_launches, bench_->sets()) * held.expected_s);
  auto timing = waiting(replays * replay_s, [&] { return time_alone(*bench_, *launch, measure); });
  if (!timing) return timing.takeError();
  held.graph = std::move(timing->graph);
  out.samples = std::move(timing->samples);
  return llvm::Error::success();
}

llvm::Expected<Trial> LocalBench::trial(size_t id, const Candidate& candidate, const Binary& binary,
                                        const TrialOptions& options) {
  Trial out;
  const auto failed = [&](llvm::Error error) {
    out.end = Trial::End::kFailed;
    out.note = take_error(std::move(error)).message;
    held_.erase(id);
    // A refusal leaves the context usable; a broken kernel (an illegal address) does not.
    if (auto dead = waiting(0, [&] { return bench_->synchronize(); })) {
      llvm::consumeError(std::move(dead));
      out.poisoned = true;
    }
    return out;
  };
  Held& held = held_[id];
  held.expected_s = options.expected_s;
  if (held.plan == nullptr) {
    auto plan = Plan::of(candidate, binary, *device_);
    if (!plan) return failed(plan.takeError());
    held.plan = std::move(*plan);
  }
  if (options.time)
    if (auto error = time(id, held, out)) return failed(std::move(error));
  if (!options.check || (options.time && summarize(out.samples).median > options.check_below_s)) return out;
  if (auto error = check(*held.plan, options.expected_s, out)) return failed(std::move(error));
  if (out.end == Trial::End::kWrong) held_.erase(id);
  return out;
}

llvm::Expected<double> LocalBench::replay(size_t id) {
  const Held& held = held_.at(id);
  return waiting(std::max(1e-3, held.graph->launches() * held.expected_s),
                 [&] { return held.graph->replay(); });
}

llvm::Expected<int64_t> LocalBench::spin(size_t id, double seconds) {
  const Held& held = held_.at(id);
  return waiting(seconds, [&]() -> llvm::Expected<int64_t> {
    const auto began = std::chrono::steady_clock::now();
    int64_t runs = 0;
    do {
      auto one = held.graph->replay();
      if (!one) return one.takeError();
      runs += held.graph->launches();
    } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() < seconds);
    return runs;
  });
}

}  // namespace trigen
