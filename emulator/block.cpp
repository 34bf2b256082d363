#include "emulator/block.h"

#include <algorithm>
#include <cstdio>

namespace trigen::emulator {

uint8_t* Block::shared_at(uint32_t address) {
  return shared.data() + (address - launch->program->shared_base);
}

uint32_t Block::alive_threads() const {
  uint32_t count = 0;
  for (const Warp& warp : warps) count += static_cast<uint32_t>(__builtin_popcount(warp.alive()));
  return count;
}

namespace {

uint64_t special_value(const Warp& warp, Special what, uint32_t lane) {
  const Block& block = *warp.block;
  const LaunchContext& launch = *block.launch;
  const uint32_t* threads = launch.threads;
  uint32_t linear = warp.index * 32 + lane;
  const uint32_t* cluster = launch.cluster;
  const uint32_t* grid = launch.grid;
  switch (what) {
    case Special::kTidX:
      return linear % threads[0];
    case Special::kTidY:
      return linear / threads[0] % threads[1];
    case Special::kTidZ:
      return linear / (threads[0] * threads[1]);
    case Special::kNtidX:
      return threads[0];
    case Special::kNtidY:
      return threads[1];
    case Special::kNtidZ:
      return threads[2];
    case Special::kCtaidX:
      return block.id[0];
    case Special::kCtaidY:
      return block.id[1];
    case Special::kCtaidZ:
      return block.id[2];
    case Special::kNctaidX:
      return grid[0];
    case Special::kNctaidY:
      return grid[1];
    case Special::kNctaidZ:
      return grid[2];
    case Special::kLaneId:
      return lane;
    case Special::kWarpId:
      return warp.index;
    case Special::kNWarpId:
      return 64;
    case Special::kSmId:
      return (block.id[0] +
              static_cast<uint64_t>(grid[0]) * (block.id[1] + static_cast<uint64_t>(grid[1]) * block.id[2])) %
             launch.multiprocessors;
    case Special::kNSmId:
      return launch.multiprocessors;
    case Special::kGridId:
      return launch.grid_id;
    case Special::kLanemaskEq:
      return 1u << lane;
    case Special::kLanemaskLt:
      return (1u << lane) - 1;
    case Special::kLanemaskLe:
      return (2u << lane) - 1;
    case Special::kLanemaskGt:
      return ~((2u << lane) - 1);
    case Special::kLanemaskGe:
      return ~((1u << lane) - 1);
    case Special::kDynamicShared:
      return launch.dynamic_shared;
    case Special::kTotalShared:
      return launch.shared_bytes;
    case Special::kClusterIdX:
      return block.id[0] / cluster[0];
    case Special::kClusterIdY:
      return block.id[1] / cluster[1];
    case Special::kClusterIdZ:
      return block.id[2] / cluster[2];
    case Special::kNClusterIdX:
      return grid[0] / cluster[0];
    case Special::kNClusterIdY:
      return grid[1] / cluster[1];
    case Special::kNClusterIdZ:
      return grid[2] / cluster[2];
    case Special::kClusterCtaIdX:
      return block.id[0] % cluster[0];
    case Special::kClusterCtaIdY:
      return block.id[1] % cluster[1];
    case Special::kClusterCtaIdZ:
      return block.id[2] % cluster[2];
    case Special::kClusterNCtaIdX:
      return cluster[0];
    case Special::kClusterNCtaIdY:
      return cluster[1];
    case Special::kClusterNCtaIdZ:
      return cluster[2];
    case Special::kClusterCtaRank:
      return block.rank;
    case Special::kClusterNCtaRank:
      return cluster[0] * cluster[1] * cluster[2];
    case Special::kIsExplicitCluster:
      return launch.explicit_cluster ? ~uint64_t{0} : 0;
  }
  return 0;
}

}  // namespace

void start_block(Block& block) {
  const LaunchContext& launch = *block.launch;
  const Program& program = *launch.program;
  const uint32_t thread_count = launch.threads[0] * launch.threads[1] * launch.threads[2];
  const uint32_t warp_count = (thread_count + 31) / 32;
  block.shared.assign(launch.shared_bytes + 16, 0);
  block.shared_written.assign(launch.shared_bytes + 16, 0);
  block.local.assign(static_cast<size_t>(program.local_bytes) * 32 * warp_count, 0);
  // Registers of a warp start at a multiple of 64 bytes.
  const size_t stride = (program.register_bytes + 63) / 64 * 64;
  block.registers.assign(stride * warp_count + 64, 0);
  uint8_t* base = host_pointer((reinterpret_cast<uint64_t>(block.registers.data()) + 63) / 64 * 64);
  block.race.reset(launch.shared_bytes, launch.options->check_races && true);
  for (uint32_t i = 0; i < warp_count; ++i) {
    Warp& warp = block.warps.emplace_back();
    warp.block = &block;
    warp.program = &program;
    warp.counters = &block.cluster->counters;
    warp.registers = base + stride * i;
    warp.index = i;
    warp.register_uses.resize(program.product_registers);
    warp.agent = block.rank * warp_count + i;
    uint32_t lanes = std::min(32u, thread_count - i * 32);
    warp.valid = lanes == 32 ? kFullMask : (1u << lanes) - 1;
    warp.fragments.push_back({0, warp.valid});
    std::copy(program.constants.begin(), program.constants.end(), warp.registers + program.constant_begin);
    for (const SpecialSlot& special : program.specials)
      for (uint32_t lane = 0; lane < 32; ++lane) {
        uint64_t value = special_value(warp, special.what, lane);
        std::memcpy(warp.registers + special.slot + lane * special.width, &value, special.width);
      }
  }
}

uint64_t Cluster::random() {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545f4914f6cdd1dull;
}

bool Cluster::finished() const {
  for (const Block& block : blocks)
    for (const Warp& warp : block.warps)
      if (!warp.fragments.empty()) return false;
  return true;
}

void Cluster::run_one_task() {
  const auto next = std::min_element(
      tasks.begin(), tasks.end(), [](const AsyncTask& a, const AsyncTask& b) { return a.order < b.order; });
  const AsyncTask task = std::move(*next);
  tasks.erase(next);
  task.run();
}

void Cluster::report_deadlock() {
  Warp* blamed = nullptr;
  uint32_t waiting = 0;
  Fault fault = Fault::kDeadlock;
  for (Block& block : blocks)
    for (Warp& warp : block.warps)
      for (uint32_t i = 0; i < warp.fragments.size(); ++i) {
        ++waiting;
        bool collective = warp.fragments[i].wait == Fragment::Wait::kCollective;
        if (blamed == nullptr || (collective && fault == Fault::kDeadlock)) {
          blamed = &warp;
          warp.current = i;
          if (collective) fault = Fault::kMissingLanes;
        }
      }
  if (blamed == nullptr) return;  // it is called while warps are left
  const Inst& inst = blamed->program->code[blamed->fragment().pc];
  blamed->inst = &inst;
  uint32_t mask = blamed->fragment().mask;
  char lanes[16];
  std::snprintf(lanes, sizeof lanes, "0x%08x", mask);
  std::string where;
  for (Block& block : blocks)
    for (Warp& warp : block.warps)
      for (const Fragment& fragment : warp.fragments) {
        const Inst& at = warp.program->code[fragment.pc];
        if (where.size() < 600)
          where += "; block rank " + std::to_string(block.rank) + " warp " + std::to_string(warp.index) +
                   " lanes " + std::to_string(__builtin_popcount(fragment.mask)) + " at line " +
                   std::to_string(at.line) + " '" + warp.program->texts[at.text] + "'";
      }
  blamed->abort(fault, static_cast<uint32_t>(__builtin_ctz(mask)),
                (fault == Fault::kMissingLanes
                     ? std::string("only lanes ") + lanes + " arrived and the others never will"
                     : std::string("nothing can go on")) +
                    "; " + std::to_string(waiting) + " groups of lanes wait" + where);
}

void Cluster::finish_bulk_stores() {
  for (Block& block : blocks)
    for (Warp& warp : block.warps)
      for (BulkStore& store : warp.bulk_stores) {
        warp.report(Fault::kAsyncHazard, store.lane,
                    "a bulk copy may still read shared memory when the block ends; wait for its group first");
        store.run();
      }
}

// A block has ended when its warps have; what none of them knew of at its end may come too late.
void Cluster::check_exits() {
  for (Block& block : blocks)
    for (const auto& [agent, access] : block.remote) {
      const bool known =
          std::any_of(block.warps.begin(), block.warps.end(),
                      [&, agent = agent, lane = access.lane, tick = access.tick](const Warp& warp) {
                        return clocks.known(warp.agent, ~0u)[clocks.ended() + agent].covers(lane, tick);
                      });
      if (known) continue;
      access.warp->inst = access.inst;
      access.warp->report(Fault::kUseAfterFree, access.lane,
                          "shared memory of block rank " + std::to_string(block.rank) +
                              ", which may have exited: nothing tells it of this access before its end");
    }
}

namespace {
// Counts this host thread among the busy ones.
class Busy {
 public:
  explicit Busy(std::atomic<int>& count) : count_(count) { set(true); }
  ~Busy() { set(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  void set(bool busy) {
    if (busy != busy_) count_ += busy ? 1 : -1;
    busy_ = busy;
  }

 private:
  std::atomic<int>& count_;
  bool busy_ = false;
};
}  // namespace

ClusterState Cluster::run(uint64_t quantum) {
  constexpr uint64_t kSlice = 20000;    // warp instructions before the next warp has its turn
  constexpr uint64_t kSpinLength = 64;  // a loop around a failed test is shorter than this
  constexpr uint32_t kIdlePasses = 64;  // before another cluster gets a turn
  constexpr uint32_t kIdleTurns = 20;   // before the launch is given up
  Busy busy(launch->busy);
  while (true) {
    bool progress = false, spinning = false, alive = false;
    for (Block& block : blocks)
      for (Warp& warp : block.warps) {
        if (warp.fragments.empty()) continue;
        uint64_t slice = kSlice;
        WarpState state = run_warp(warp, slice);
        instructions += kSlice - slice;
        if (launch->options->steps != 0 && instructions + counters.further_steps() > launch->options->steps)
          warp.abort(Fault::kStepLimit, 0,
                     "one cluster took more than " + std::to_string(launch->options->steps) +
                         " steps, some seconds, and has not ended; a kernel that does end needs a higher "
                         "TRIGEN_EMULATED_STEPS, 0 for no limit");
        quantum -= std::min(quantum, kSlice - slice);
        if (state == WarpState::kFinished || state == WarpState::kProgress) progress = true;
        if (state == WarpState::kSpinning) {
          spinning = true;
          if (kSlice - slice > kSpinLength) progress = true;  // it did something on its way to the test
        }
        if (!warp.fragments.empty()) alive = true;
        if (!tasks.empty() && launch->options->async == AsyncOrder::kRandom && random() % 4 == 0)
          run_one_task();
      }
    if (!alive) {
      while (!tasks.empty()) run_one_task();
      finish_bulk_stores();
      check_exits();
      return ClusterState::kEnded;
    }
    if (!progress && !tasks.empty()) {
      run_one_task();
      progress = true;
    }
    if (progress) {
      idle_passes_ = 0;
      busy.set(true);
      launch->progress.fetch_add(1, std::memory_order_relaxed);
    } else if (!spinning) {
      report_deadlock();
    } else {
      // Everybody spins: another cluster may have to do something first.
      busy.set(false);
      if (++idle_passes_ % kIdlePasses != 0) continue;
      const uint64_t now = launch->progress.load();
      if (now != seen_progress_ || launch->busy.load() != 0) idle_turns_ = 0;
      seen_progress_ = now;
      if (++idle_turns_ > kIdleTurns) report_deadlock();
      return ClusterState::kWaits;
    }
    if (quantum == 0) return ClusterState::kGoesOn;
  }
}

void Warp::report(Fault fault, uint32_t lane, const std::string& detail) {
  Report report;
  report.fault = fault;
  report.kernel = program->name;
  report.line = inst != nullptr ? inst->line : 0;
  report.instruction = inst != nullptr ? program->texts[inst->text] : "";
  std::copy(block->id, block->id + 3, report.block);
  for (int axis = 0; axis < 3; ++axis)
    report.thread[axis] = static_cast<uint32_t>(special_value(*this, static_cast<Special>(axis), lane));
  report.detail = detail;
  block->launch->log->add(std::move(report));
}

void Warp::abort(Fault fault, uint32_t lane, const std::string& detail) {
  report(fault, lane, detail);
  throw LaunchAbort{fault};
}

}  // namespace trigen::emulator
