// Timing on the device: graphs of many launches over rotating inputs, replayed and timed with events.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "check/workbench.h"
#include "tuner/statistics.h"

namespace trigen {

// Something that can be timed: enqueues one run on set `set` of the workbench. Called under stream capture.
using LaunchOn = std::function<llvm::Error(int set, cuda::CUstream stream)>;

// A captured graph of launches. One replay is one sample.
class TimedGraph {
 public:
  // Captures `launches` runs, run i on set i mod sets.
  static llvm::Expected<std::unique_ptr<TimedGraph>> capture(Workbench& bench, int launches,
                                                             const LaunchOn& launch);
  ~TimedGraph();
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;
  // Replays once and waits: seconds per launch between two events around the replay.
  llvm::Expected<double> replay();
  int launches() const { return launches_; }

 private:
  TimedGraph() = default;
  Workbench* bench_ = nullptr;
  cuda::CUgraphExec graph_ = nullptr;
  cuda::CUevent start_ = nullptr, stop_ = nullptr;
  int launches_ = 0;
};

struct MeasureOptions {
  double sample_seconds = 1.0e-3;  // one replay lasts at least about this long
  int min_launches = 4;
  int max_launches = 400;  // more only where there are more sets
  int warmups = 2;
  int samples = 5;
};

// How many launches a graph needs: as many as there are sets (each used once: the inputs of a run have left
// the L2 when its set's turn comes again), and enough for a sample's length.
int launches_for(const Workbench& bench, double seconds_per_launch, const MeasureOptions& options = {});

// Times one arm alone: a single run first (to choose the number of launches), warm-up replays, then samples,
// in seconds.
struct Timing {
  std::vector<double> samples;
  std::unique_ptr<TimedGraph> graph;  // for the finals
};
llvm::Expected<Timing> time_alone(Workbench& bench, const LaunchOn& launch,
                                  const MeasureOptions& options = {});

// Times arms in turn: `rounds` rounds, each replays every graph once, starting one further each round.
// samples[arm][round]. Stops between rounds when `stop` says so, after at least one. Rounds whose machine
// slowed down show as drift.
struct Finals {
  std::vector<std::vector<double>> samples;
  bool drifted = false;  // some arm got slower over the rounds (statistics.h: drifts)
  int outliers = 0;      // samples far from their arm's quartiles
};
llvm::Expected<Finals> time_in_turn(const std::vector<TimedGraph*>& graphs, int rounds,
                                    const std::function<bool()>& stop = {});
// The same for whatever replays an arm once and gives its seconds.
using ReplayArm = std::function<llvm::Expected<double>(size_t arm)>;
llvm::Expected<Finals> time_in_turn(size_t arms, const ReplayArm& replay, int rounds,
                                    const std::function<bool()>& stop = {});

// A launch of an executable with its arguments bound once per set: what a graph captures.
llvm::Expected<LaunchOn> launcher(Workbench& bench, const std::shared_ptr<const Executable>& executable);
inline constexpr const char* kUnchangedArm = "w unchanged";
// The same with w_unchanged, of an executable that prepares w: each set has a workspace of its own, and was run before.
llvm::Expected<LaunchOn> unchanged_launcher(Workbench& bench,
                                            const std::shared_ptr<const Executable>& executable);

}  // namespace trigen
