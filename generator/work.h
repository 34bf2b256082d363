// Work of a candidate's kernels, counted and without any clock: launches, runs of thread blocks with their
// steps and tiles, and the bytes that these move. A family makes it (Family::work) with the code that its
// kernel walks by; the cost model (generator/cost/) reads it together with a device's rates
// (generator/rates.h).
#pragma once

#include <cstdint>
#include <vector>

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "templates/config.h"

namespace trigen {

// The unit that multiplies.
enum class Unit : int { kFp32, kTensor16, kTensorTf32 };

// One operand's tile on its way from global to shared memory by a block's own threads.
struct TileLoad {
  double elements = 0;       // of the tile
  int vector = 1;            // elements of one access
  double element_bytes = 0;  // in global memory
  bool staged = false;       // through registers, not by cp.async
  bool converted = false;    // to another type on the way
  int pieces = 1;            // aligned vectors that one is cut out of
  bool decoded = false;      // these by a row's tap, which each access finds anew
  bool spread = false;       // taps of a vector stored apart, element by element
};

// One turn of a block's main loop. A loop may have several kinds of them.
struct Step {
  double products = 0;  // multiply-adds of the block, without what the kernel leaves out across the diagonal
  double feed_bytes = 0;     // from the L2 into the SM
  double f32_bytes = 0;      // of these, weights that become 16-bit ones in the kernel
  double split_bytes = 0;    // of these, pieces of 128 bytes that lie across two lines of the L2
  double loads = 1;          // stages that are filled for it, or loads of its threads
  double operand_reads = 0;  // of the tensor core's time, what it takes to read its operands
  bool shifts = false;       // threads shift an operand in shared memory, for taps
  double transposes =
      0;  // times that other warps load or transpose a block of the input, one after the other
  double shared_bytes = 0;  // read and written in shared memory, where the block's threads do both
  double issue_share = 1;   // of the issue slots, those that multiply (Unit::kFp32)
  TileLoad a = {}, b = {};
};

// The end of an output tile.
struct TileEnd {
  double elements = 0;  // of a whole tile
  double bytes = 0;     // of global memory for each of them
  int vector = 1;       // elements of one access
  Activation act = Activation::kNone;
  int exchanged = 0;      // tensors of the output's shape that pass through shared memory beside it
  double waits = 0;       // of a tile's panels, those without a buffer of their own
  bool sent = false;      // another block of the cluster sends sums of it
  bool mirrored = false;  // its transpose is written, too
};

// `count` blocks in a row (clusters, where blocks work in clusters) that do the same.
struct Run {
  llvm::SmallVector<double, 2> steps = {};  // of each kind
  double tiles = 0;                         // of the output
  int64_t count = 1;
};

// A launch before or after the product.
struct Pass {
  llvm::StringLiteral rates;  // its section of the table
  double bytes = 0;           // read and written, through the L2 or memory as the section says
  double memory_bytes = 0;    // of global memory in any case
  int launches = 1;
  int parts = 0;  // that a thread adds one after the other
};

// Bytes that are read again, and from memory where the L2 has not kept them.
struct Reread {
  double set = 0;    // bytes that the L2 would have to keep
  double bytes = 0;  // that are read again in all
};

// Steps in which a block's first warps have nothing to multiply: what lies beyond their own rows' triangle.
struct Skipping {
  int warps = 0;
  double steps = 0;  // of all blocks together
};

// How the loop's loads and products meet.
//   kStreamed     loads run ahead on their own (TMA; a thread's many loads): a step takes the longest of its
//                 parts
//   kInterleaved  the warps that multiply also load, and several blocks share an SM
enum class Loop : int { kStreamed, kInterleaved };

struct Work {
  Loop loop = Loop::kStreamed;
  llvm::StringLiteral rates = "";  // the loop's section of the table
  Unit unit = Unit::kTensor16;
  std::vector<Step> steps = {};  // the kinds
  TileEnd tile = {};
  int stages = 2;            // the loads of stages - 1 steps are in flight
  bool asynchronous = true;  // kInterleaved: by cp.async where vectors allow it
  int warpgroups = 2;        // kStreamed: that multiply
  bool mma_sync = false;     // kStreamed: by an instruction that DeviceRates::tensor_cap holds

  // A block, and how many fit on an SM.
  int threads = 0;
  int64_t registers = 0;     // of a thread, estimated; 0: the block has its SM for itself
  int64_t shared_bytes = 0;  // dynamic
  int blocks = 0;            // of an SM, that the compiler is told to leave registers for
  int cluster = 1;           // blocks that run at the same time on as many SMs

  // In the order of their start; the whole list is started `repeats` times. Persistent grids have one run a
  // block; where they have many, some blocks stand for all.
  std::vector<Run> runs = {};
  int64_t repeats = 1;
  Run all = {};     // sums over all blocks; `count` of them have work
  double grid = 0;  // blocks or clusters, with those that have none
  double busy = 1;  // of the SMs, those that work, where parts of a sum leave some idle

  double memory_bytes = 0;  // of the product: all operands once, and what it writes
  // Part of these that the first blocks read alone while the others wait for their turn: later blocks find it in the
  // L2. `first` has the sums of those blocks' steps and tiles; none: memory is read as evenly as blocks run.
  double first_bytes = 0;
  Run first = {.steps = {}, .tiles = 0, .count = 0};
  std::vector<Reread> rereads = {};
  // What blocks of one column read beside each other, as far apart as they drift: bytes; under way to an SM; which share of the L2 all
  // SMs' rings fill when some of it is read again, and how many times the L2 passes through it before as much is as ever will be.
  double common_bytes = 0, ring_bytes = 0, common_from = 0, common_after = 1;
  double l2_bytes = 0;       // between SMs and L2, of the product
  double sector_writes = 0;  // of the output, by stores whose lanes write few bytes of each sector
  double chained = 0;        // loads that one thread does one after the other beside the steps
  double instructions = 0;   // of threads, that all blocks together issue beside `steps` (conversions, sums)
  std::vector<Pass> passes = {};
  std::vector<Skipping> skipping = {};  // that the clock knows the use of (lab/clock/clock.h)
};

}  // namespace trigen
