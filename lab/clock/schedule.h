// The clock: schedules a main loop's warps over the units of one SM, cycle by cycle, as the compiler's control
// words and the pipes' rates let them. docs/clock.md says what it models and how far it was checked.
#pragma once

#include <array>
#include <string>

#include "lab/clock/main_loop.h"
#include "lab/clock/sm_rates.h"

namespace trigen {

// The pipe that an instruction keeps busy.
enum class Pipe : int { kTensor, kFma, kImad, kAlu, kHalf, kUniform, kSpecial, kMemory, kBranch, kNone };
Pipe pipe_of(const Instruction& one);
// Cycles that an HMMA (step) keeps its sub-core's tensor cores.
double tensor_cycles(const Instruction& one, const SmRates& rates);
// A warp's access, 32 lanes with an address each: its bytes; 0: no memory instruction. `shared`: through shared
// memory's banks; `global`: from or to the L2.
struct MemoryAccess {
  double bytes = 0;
  bool shared = false, global = false, store = false, copy = false;  // copy: LDGSTS
  double wavefronts() const { return bytes / 128; }
};
MemoryAccess access_of(const Instruction& one);

// Why a scheduler's cycle went without an instruction, by what its warps waited for.
enum class Idle : int {
  kStallCount,
  kTensorResult,
  kTensor,
  kMath,
  kMemoryQueue,
  kShared,
  kGlobal,
  kBarrier,
  kOther
};
inline constexpr int kIdles = 9;
const char* name_of(Idle idle);

struct Busy {
  const char* name = "";
  double cycles = 0;  // of a turn, the mean of the sub-cores
};

// One instruction of the turn that is shown.
struct Issued {
  double cycle = 0;
  int warp = 0;
  size_t at = 0;  // in the loop's body
  Pipe pipe = Pipe::kNone;
  double length = 1;  // cycles of its pipe
};

struct LoopTiming {
  double cycles = 0;  // of a turn of all warps
  std::vector<Busy> busy;
  std::array<double, kIdles> idle = {};  // cycles of a turn and sub-core
  double issued = 0;                     // instructions of a turn and sub-core
  double tensor_share() const;           // of the cycles, those with the tensor pipe busy
  const Busy& bound() const;             // the busiest
  // Instructions issued in [from, from + cycles), and the wavefronts of shared memory in it.
  double from = 0;
  std::vector<Issued> issues;
  std::vector<std::pair<double, double>> wavefronts;  // begin, cycles
};

struct ClockInput {
  const MainLoop& loop;
  const SmRates& rates;
  int warps = 8;         // of a block
  int blocks = 1;        // on the SM
  double l2_bytes = 64;  // bytes a cycle from the L2 into the SM
  int turns = 12;
  // Number of each block's first warps that leave out products and their reads, as where a turn lies beyond
  // their rows' triangle.
  int skipping = 0;
};
LoopTiming clock_loop(const ClockInput& in);

}  // namespace trigen
