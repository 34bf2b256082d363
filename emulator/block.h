// A thread block, and the cluster of blocks that runs together on one host thread (a cluster of one where
// none is asked for).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/global_race.h"
#include "emulator/launches_before.h"
#include "emulator/memory.h"
#include "emulator/options.h"
#include "emulator/race.h"
#include "emulator/warp.h"

namespace trigen::emulator {

// Generic addresses of the spaces that are not global memory: the window in the top byte, an offset below.
inline constexpr uint64_t kWindowShift = 56;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << kWindowShift;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << kWindowShift;
inline constexpr uint64_t kParamWindow = uint64_t{3} << kWindowShift;
// Addresses in shared::cluster: block rank + 1 above bit 24, 0 for the executing block itself.
inline constexpr int kRankShift = 24;
inline constexpr uint32_t kSharedOffsetMask = (1u << kRankShift) - 1;

struct LaunchContext;
struct Cluster;

struct Barrier {
  uint64_t generation = 0;
  uint32_t expected = 0;  // threads; 0 while nobody has come
  uint32_t arrived = 0;
  uint32_t reduction = 0;  // popc, or the and/or so far
  uint32_t result = 0;
  int line = 0;  // where the first one came, without a thread count
  Clock clock;   // joined clocks of those who came
  Clock last_clock;
};

// Clocks that arrivals at an mbarrier pass on to waiters of its phase, and the thread that initialised it.
struct MbarrierClocks {
  uint32_t init_agent = 0;
  bool init_fenced = false;  // by fence.mbarrier_init or fence.proxy.async of that agent
  struct Phase {
    // Joined clocks of the object's own block and the asynchronous copy unit, and of other blocks' warps: of these
    // the first half from arrivals at scope .cluster alone.
    Clock own, others;
    bool relaxed = false;  // some arrival said nothing
  };
  Phase current, completed;  // the phase that runs, the one before
  struct Wait {
    uint32_t agent, lanes, tick;
  };
  std::vector<Wait> waits;  // that have seen the end of the phase before
};

// An access to a block's shared memory by another block's thread, or by the asynchronous copy unit.
struct RemoteAccess {
  uint32_t tick = 0;
  Warp* warp = nullptr;
  const Inst* inst = nullptr;
  uint32_t lane = 0;
};

struct Block {
  Cluster* cluster = nullptr;
  LaunchContext* launch = nullptr;
  uint32_t id[3] = {0, 0, 0};
  uint32_t rank = 0;            // in its cluster
  std::vector<uint8_t> shared;  // [0, shared_bytes): address program.shared_base + i
  std::vector<uint8_t> shared_written;
  std::vector<uint8_t> local;  // [warp][lane][local_bytes]
  std::vector<uint8_t> registers;
  std::deque<Warp> warps;
  Barrier barriers[16];
  RaceShadow race;
  std::unordered_map<uint32_t, MbarrierClocks> mbarrier_clocks;  // by shared offset
  std::unordered_map<uint32_t, RemoteAccess> remote;             // the last of every agent

  uint8_t* shared_at(uint32_t address);
  uint32_t alive_threads() const;
};

// A copy of the asynchronous unit (bulk copies, or the arrival that follows cp.async): carried out when
// nothing else can go on, or at once, or at a random moment.
struct AsyncTask {
  uint64_t order = 0;
  std::function<void()> run;
};

enum class ClusterState : uint8_t { kEnded, kGoesOn, kWaits };

struct Cluster {
  LaunchContext* launch = nullptr;
  uint64_t number = 0;  // in the grid
  uint32_t id[3] = {0, 0, 0};
  std::deque<Block> blocks;
  Clocks clocks;
  std::deque<AsyncTask> tasks;
  Barrier barrier;                        // barrier.cluster
  std::vector<uint64_t> cluster_arrived;  // per agent: generation it arrived in + 1
  uint64_t instructions = 0;
  uint64_t random_state = 1;
  Counters counters;
  PagedRaces global_races;  // among this cluster's threads
  bool check_global = false;

  /// Runs until the cluster ends, until `quantum` warp instructions are done, or until nothing can go on without
  /// another cluster. Throws LaunchAbort.
  ClusterState run(uint64_t quantum);
  bool finished() const;
  void run_one_task();
  uint64_t random();

 private:
  uint32_t idle_passes_ = 0;
  uint32_t idle_turns_ = 0;     // without progress anywhere
  uint64_t seen_progress_ = 0;  // of the launch
  void report_deadlock();
  void finish_bulk_stores();
  void check_exits();
};

// State that a launch's blocks share. Read-only while it runs, apart from the log and the signs of life.
struct LaunchContext {
  const Program* program = nullptr;
  const Options* options = nullptr;
  std::vector<DeviceMemory*> memories;  // all devices': peer access is allowed
  int device = 0;
  ReportLog* log = nullptr;
  std::vector<uint8_t> parameters;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t threads[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  bool explicit_cluster = false;
  uint32_t dynamic_shared = 0;
  uint32_t shared_bytes = 0;  // static and dynamic
  uint32_t multiprocessors = 1;
  uint64_t grid_id = 0;
  GlobalRaces* global_races = nullptr;     // not checked where it is nullptr
  const LaunchesBefore* before = nullptr;  // the launches that this one may overlap; nullptr: none
  // griddepcontrol: waited: some thread waited for those to end; let_go: some let the next launch start without
  // knowing of such a wait.
  std::atomic<bool> waited{false}, let_go{false};
  // Clusters that wait for others give up when nobody does anything any more.
  std::atomic<uint64_t> progress{0};  // turns in which some cluster did something
  std::atomic<int> busy{0};           // host threads whose cluster does something now
};

enum class WarpState : uint8_t { kFinished, kProgress, kBlocked, kSpinning };
/// Runs a warp until it ends, blocks, spins, or has executed `quantum` instructions (counted down).
WarpState run_warp(Warp& warp, uint64_t& quantum);
/// Sets up a block's warps, registers and memory.
void start_block(Block& block);

}  // namespace trigen::emulator
