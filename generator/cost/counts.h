// Counters of a kernel's thread blocks, exact, from the emulated device (tuner/counting.h): a candidate's
// own numbers in place of the cost model's estimates.
#pragma once

#include "generator/family.h"

namespace trigen {

// Counters of one thread block; in a cluster the mean of its blocks.
struct BlockCounts {
  static constexpr double kSectorBytes = 32;
  double instructions = 0;  // warp instructions of every class but moves, which the machine code has few of
  double matrix_operations = 0;  // mma of a warp, wgmma of a warpgroup
  double matrix_flops = 0;       // a multiply-add counts two
  double float_instructions = 0;
  double load_sectors = 0;  // of 32 bytes, of global loads of every kind, bulk copies included
  double store_sectors = 0;
  double bulk_bytes = 0;
  double shared_wavefronts = 0;  // passes over the banks; wgmma's own reads do not count
  double shared_conflicts = 0;   // of these, above the least
  double local_bytes = 0;
  double barrier_waits = 0;
};
// Every field by its place, for sums.
inline constexpr double BlockCounts::*kBlockCounts[] = {
    &BlockCounts::instructions,       &BlockCounts::matrix_operations, &BlockCounts::matrix_flops,
    &BlockCounts::float_instructions, &BlockCounts::load_sectors,      &BlockCounts::store_sectors,
    &BlockCounts::bulk_bytes,         &BlockCounts::shared_wavefronts, &BlockCounts::shared_conflicts,
    &BlockCounts::local_bytes,        &BlockCounts::barrier_waits};

// Every block is so many steps and so many tiles: exact for whole tiles, an upper bound at the edges of T and
// B * D, where loads and stores are masked.
struct Counts {
  BlockCounts step, tile;
  BlockCounts total(double steps, double tiles) const;
};

// From one or two samples and what was counted of each. One sample: everything goes with its steps, which is
// exact for blocks like it.
Counts solve(const std::vector<Sample>& samples, const std::vector<BlockCounts>& counted);

}  // namespace trigen
