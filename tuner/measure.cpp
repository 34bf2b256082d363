#include "tuner/measure.h"

#include <algorithm>
#include <cmath>

namespace trigen {

llvm::Expected<std::unique_ptr<TimedGraph>> TimedGraph::capture(Workbench& bench, int launches,
                                                                const LaunchOn& launch) {
  const Driver& driver = bench.device().driver();
  const DriverApi& api = driver.api();
  if (driver.emulated()) {
    return make_error(
        ErrorKind::kUnsupported,
        "the emulated device has no time to measure; allowed are real devices; use verify there");
  }
  std::unique_ptr<TimedGraph> timed(new TimedGraph);
  timed->bench_ = &bench;
  timed->launches_ = launches;
  const ContextScope scope(api, bench.context());
  const cuda::CUstream stream = bench.stream();
  if (auto error = driver.check(api.cuStreamBeginCapture(stream, cuda::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                                "cuStreamBeginCapture"))
    return error;
  llvm::Error failed = llvm::Error::success();
  for (int i = 0; i < launches && !failed; ++i) failed = launch(i % bench.sets(), stream);
  cuda::CUgraph graph = nullptr;
  const auto ended = api.cuStreamEndCapture(stream, &graph);
  if (failed) {
    if (graph != nullptr) api.cuGraphDestroy(graph);
    return failed;
  }
  if (auto error = driver.check(ended, "cuStreamEndCapture")) return error;
  const auto made = api.cuGraphInstantiateWithFlags(&timed->graph_, graph, 0);
  api.cuGraphDestroy(graph);
  if (auto error = driver.check(made, "cuGraphInstantiate")) return error;
  for (cuda::CUevent* event : {&timed->start_, &timed->stop_}) {
    if (auto error = driver.check(api.cuEventCreate(event, cuda::CU_EVENT_DEFAULT), "cuEventCreate"))
      return error;
  }
  if (auto error = driver.check(api.cuGraphUpload(timed->graph_, stream), "cuGraphUpload")) return error;
  return timed;
}

TimedGraph::~TimedGraph() {
  if (bench_ == nullptr) return;
  const DriverApi& api = bench_->device().api();
  const ContextScope scope(api, bench_->context());
  if (graph_ != nullptr) api.cuGraphExecDestroy(graph_);
  if (start_ != nullptr) api.cuEventDestroy(start_);
  if (stop_ != nullptr) api.cuEventDestroy(stop_);
}

llvm::Expected<double> TimedGraph::replay() {
  const Driver& driver = bench_->device().driver();
  const DriverApi& api = driver.api();
  const ContextScope scope(api, bench_->context());
  const cuda::CUstream stream = bench_->stream();
  if (auto error = driver.check(api.cuEventRecord(start_, stream), "cuEventRecord")) return error;
  if (auto error = driver.check(api.cuGraphLaunch(graph_, stream), "cuGraphLaunch")) return error;
  if (auto error = driver.check(api.cuEventRecord(stop_, stream), "cuEventRecord")) return error;
  if (auto error = driver.check(api.cuEventSynchronize(stop_), "cuEventSynchronize")) return error;
  float milliseconds = 0;
  if (auto error = driver.check(api.cuEventElapsedTime(&milliseconds, start_, stop_), "cuEventElapsedTime"))
    return error;
  return static_cast<double>(milliseconds) * 1e-3 / launches_;
}

int launches_for(const Workbench& bench, double seconds_per_launch, const MeasureOptions& options) {
  const double wanted =
      seconds_per_launch > 0 ? std::ceil(options.sample_seconds / seconds_per_launch) : options.min_launches;
  const int launches = std::max(bench.sets(), static_cast<int>(std::min(wanted, 1e6)));
  return std::clamp(launches, options.min_launches, std::max(options.max_launches, bench.sets()));
}

llvm::Expected<Timing> time_alone(Workbench& bench, const LaunchOn& launch, const MeasureOptions& options) {
  Timing timing;
  // two runs through a small graph: the first pays for what is lazy, the second tells the length
  double estimate = 0;
  {
    auto probe = TimedGraph::capture(bench, 2, launch);
    if (!probe) return probe.takeError();
    for (int i = 0; i < 2; ++i) {
      auto seconds = (*probe)->replay();
      if (!seconds) return seconds.takeError();
      estimate = *seconds;
    }
  }
  auto graph = TimedGraph::capture(bench, launches_for(bench, estimate, options), launch);
  if (!graph) return graph.takeError();
  timing.graph = std::move(*graph);
  for (int i = 0; i < options.warmups + options.samples; ++i) {
    auto seconds = timing.graph->replay();
    if (!seconds) return seconds.takeError();
    if (i >= options.warmups) timing.samples.push_back(*seconds);
  }
  return timing;
}

llvm::Expected<Finals> time_in_turn(const std::vector<TimedGraph*>& graphs, int rounds,
                                    const std::function<bool()>& stop) {
  return time_in_turn(
      graphs.size(), [&](size_t arm) { return graphs[arm]->replay(); }, rounds, stop);
}

llvm::Expected<Finals> time_in_turn(size_t arms, const ReplayArm& replay, int rounds,
                                    const std::function<bool()>& stop) {
  Finals finals;
  finals.samples.resize(arms);
  for (size_t arm = 0; arm < arms; ++arm) {
    auto warm = replay(arm);
    if (!warm) return warm.takeError();
  }
  for (int round = 0; round < rounds; ++round) {
    if (round > 0 && stop && stop()) break;
    for (size_t i = 0; i < arms; ++i) {
      const size_t arm = (i + static_cast<size_t>(round)) % arms;
      auto seconds = replay(arm);
      if (!seconds) return seconds.takeError();
      finals.samples[arm].push_back(*seconds);
    }
  }
  for (const auto& samples : finals.samples) {
    finals.drifted = finals.drifted || drifts(samples);
    finals.outliers += static_cast<int>(outliers(samples).size());
  }
  return finals;
}

namespace {

using BoundSets = std::shared_ptr<std::vector<Params>>;

// The parameters of every set; `args_of(set)` are its arguments.
template <class ArgsOf>
llvm::Expected<BoundSets> bind_sets(const Workbench& bench, const Executable& executable,
                                    const ArgsOf& args_of) {
  auto params = std::make_shared<std::vector<Params>>(static_cast<size_t>(bench.sets()));
  for (int set = 0; set < bench.sets(); ++set) {
    llvm::Expected<trigen_args> args = args_of(set);
    if (!args) return args.takeError();
    if (auto error = bind_arguments(executable.candidate().problem, executable.workspace_bytes(), *args,
                                    (*params)[static_cast<size_t>(set)]))
      return error;
  }
  return params;
}

LaunchOn launch_on(const Workbench& bench, std::shared_ptr<const Executable> executable, BoundSets params,
                   bool w_unchanged) {
  return [executable = std::move(executable), params = std::move(params), &driver = bench.device().driver(),
          w_unchanged](int set, cuda::CUstream stream) {
    return driver.check(executable->launch((*params)[static_cast<size_t>(set)], stream, w_unchanged),
                        "cuLaunchKernel");
  };
}

}  // namespace

llvm::Expected<LaunchOn> launcher(Workbench& bench, const std::shared_ptr<const Executable>& executable) {
  auto params = bind_sets(bench, *executable,
                          [&](int set) { return bench.timed_args(set, executable->workspace_bytes()); });
  if (!params) return params.takeError();
  return launch_on(bench, executable, *params, false);
}

llvm::Expected<LaunchOn> unchanged_launcher(Workbench& bench,
                                            const std::shared_ptr<const Executable>& executable) {
  auto params = bind_sets(bench, *executable, [&](int set) {
    return bench.args_of_own_workspace(set, executable->workspace_bytes());
  });
  if (!params) return params.takeError();
  const LaunchOn prepare = launch_on(bench, executable, *params, false);
  const ContextScope scope(bench.device().api(), bench.context());
  for (int set = 0; set < bench.sets(); ++set)
    if (auto error = prepare(set, bench.stream())) return error;
  if (auto error = bench.synchronize()) return error;
  return launch_on(bench, executable, *params, true);
}

}  // namespace trigen
