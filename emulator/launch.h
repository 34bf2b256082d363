// A kernel launch: all clusters of a grid, on the host's cores.
#pragma once

#include "emulator/block.h"

namespace trigen::emulator {

/// Runs a whole grid. Adds to `counters`; faults are in the log. Returns the fault that ended the launch, or
/// kCount when it ran to its end. Runs on fewer threads where the host makes no more; throws std::bad_alloc.
Fault run_grid(LaunchContext& launch, Counters* counters);

}  // namespace trigen::emulator
