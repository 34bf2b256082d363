// The finish time of thread blocks that start in order on a number of slots, each as soon as a slot is free:
// how the hardware hands out a grid. Internal to generator/cost/.
#pragma once

#include <cstdint>

#include "llvm/ADT/ArrayRef.h"

namespace trigen {

// `count` blocks in a row that take `seconds` each while every slot is busy, and at least `alone` where others are idle.
struct BlockRun {
  double seconds = 0;
  int64_t count = 0;
  double alone = seconds;
};

// The whole list is started `repeats` times, one after the other. When far more blocks than slots are there,
// only the last of them are simulated: before that, every slot is busy. As slots run out of blocks, those at work share
// what all of them had, down to their `alone`; of slots that never had a block nothing is known (66 parts of grad_weight read no
// faster than 132, H200, tests/data/samples).
double makespan(llvm::ArrayRef<BlockRun> runs, int64_t repeats, int64_t slots);

// `count` blocks in a row, each of `steps` steps and then `end_seconds` that leave the SM's units to others.
struct SharedRun {
  double steps = 0, end_seconds = 0;
  int64_t count = 0;
};

// Blocks that share SMs: a step takes step_seconds[n - 1] where n blocks of the SM are at their steps. A block that ends
// makes room for the next one in order; at first they are dealt to all SMs in turn, `grid` of them with those without
// work, which end at once. `balanced`: the time of all with every SM as full as it can be.
struct SharedFinish {
  double balanced = 0, seconds = 0;
};
SharedFinish shared_makespan(llvm::ArrayRef<SharedRun> runs, int64_t repeats, double grid, int64_t sms,
                             llvm::ArrayRef<double> step_seconds);

}  // namespace trigen
