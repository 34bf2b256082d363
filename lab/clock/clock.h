// A candidate's main loop on the clock.
#pragma once

#include <optional>

#include "generator/cost/cost.h"
#include "lab/clock/schedule.h"

namespace trigen {

struct ClockedLoop {
  MainLoop loop;
  LoopTiming timing;
  int warps = 0, blocks = 0;  // of a block; on an SM
  // Cycles of a turn, the mean with turns in which warps beyond their triangle skip products.
  double step_cycles = 0;
};

// Bytes a cycle that the L2 gives each of so many SMs that ask at once: its rate, shared evenly.
double l2_bytes_of(const SmRates& rates, double sms);

// `functions`: of the candidate's cubin. `resources`: the compiler's, which say how many blocks share an SM.
// Errors: unsupported (no such loop, or a target without rates).
llvm::Expected<ClockedLoop> clock_candidate(const Candidate& candidate,
                                            const std::vector<MachineFunction>& functions,
                                            const DeviceModel& device,
                                            const std::optional<Resources>& resources);

}  // namespace trigen
