// The finish time of thread blocks that start in order on a number of slots, each as soon as a slot is free:
// how the hardware hands out a grid. Internal to generator/cost/.
#pragma once

#include <cstdint>

#include "llvm/ADT/ArrayRef.h"

namespace trigen {

// `count` blocks in a row that take `seconds` each.
struct BlockRun {
  double seconds = 0;
  int64_t count = 0;
};

// The whole list is started `repeats` times, one after the other. When far more blocks than slots are there,
// only the last of them are simulated: before that, every slot is busy.
double makespan(llvm::ArrayRef<BlockRun> runs, int64_t repeats, int64_t slots);

}  // namespace trigen
