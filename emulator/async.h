// Asynchronous operations shared by cp.async, mbarrier and bulk copies.
#pragma once

#include "emulator/access.h"

namespace trigen::emulator {

/// Carries out the copies of `lanes` whose sequence is below `before`.
void finish_copies(Warp& warp, uint32_t lanes, uint64_t before);

/// Puts a task of the asynchronous unit where the option says: done at once, or queued.
void queue_task(Cluster& cluster, std::function<void()> run);

// An mbarrier object's 64 bits, as this device keeps them. The ISA leaves them opaque.
struct Mbarrier {
  uint32_t pending = 0;   // arrivals still missing in this phase
  uint32_t expected = 0;  // arrivals of a phase
  int32_t bytes = 0;      // transaction count still missing
  bool phase = false;
  bool valid = false;

  static Mbarrier load(const uint8_t* at);
  void store(uint8_t* at) const;
};

/// The place of an mbarrier; aborts when it is not initialised.
Place mbarrier_place(Warp& warp, uint64_t address, uint32_t lane, Mbarrier* state);
/// One arrival, or a change of the transaction count, and the end of the phase when nothing is missing.
/// `clock`: what the arriving lane makes known, or null; `scope`: to its own block, or to all blocks of the cluster
/// that wait at .cluster, or, as the asynchronous copy unit does, to every wait. (That accesses have ended: always to every
/// wait.)
enum class Scope { kBlock, kCluster, kEveryWait };
void mbarrier_update(Warp& warp, const Place& place, Mbarrier state, uint32_t arrivals, int64_t bytes,
                     uint32_t lane, const Clock* clock, Scope scope);

/// fence.mbarrier_init, fence.proxy.async: the asynchronous proxy sees the mbarriers that the warp has
/// initialised.
void fence_mbarrier_inits(Warp& warp);
/// Reports an mbarrier that the asynchronous proxy may not see initialised.
void need_fenced_init(Warp& warp, const Place& place, uint32_t lane);

}  // namespace trigen::emulator
