// Compile-time sizes of a persistent kernel, for ring, roles and staging. A family derives its own Geometry
// and adds
//   kBytesA, kStageBytes         of a stage: A's part and both operands'
//   kSharedBytes, kBarrierBytes  of the block: all shared memory, and its end for barriers
// and the rules that its configs obey.
#pragma once

#include "config.h"

namespace trigen::persistent {

// Warpgroups that multiply, and registers by setmaxnreg, in units of 8: of the loading warpgroup and of each
// multiplying one. `register_threads`: the number of threads that the SM's registers are divided by.
struct Warpgroups {
  int consumers, load_registers, sum_registers, register_threads;
  TRIGEN_HOST_DEVICE constexpr int loaders() const { return 1; }  // warpgroups that load
};
struct TwoLoaders : Warpgroups {
  TRIGEN_HOST_DEVICE constexpr int loaders() const { return 2; }
};

template <Config c, auto kGroups>
struct Geometry {
  static constexpr int kConsumers = kGroups.consumers;
  static constexpr int kLoadRegisters = kGroups.load_registers, kSumRegisters = kGroups.sum_registers;
  static constexpr int kStages = c.stages;
  static constexpr int kCluster = c.cluster;
  static constexpr int kParts = 1;                        // boxes of the output that hold 64 columns together
  static constexpr bool kSquares = false;                 // clusters of 2 x 2 blocks (grad_weight.cuh)
  static constexpr bool kReusesPanels = true;             // staged output (output_panels.cuh)
  static constexpr int kReleasingWarps = 4 * kConsumers;  // of a block, for every stage

  static_assert(kStages >= 2, "a ring has at least two stages");
  static_assert(c.blocks == 1, "registers are handed out for one block on an SM");
  static_assert(kGroups.loaders() * kLoadRegisters + kConsumers * kSumRegisters <=
                    (kConsumers + kGroups.loaders()) * (65536 / kGroups.register_threads / 8 * 8),
                "setmaxnreg hands out no more registers than the block started with");
};

}  // namespace trigen::persistent
