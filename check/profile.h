// Counters of a plan's kernels on the emulated device.
#pragma once

#include <nlohmann/json.hpp>

#include "check/workbench.h"
#include "runtime/plan.h"

namespace trigen {

// One kernel launch of a plan.
struct KernelProfile {
  Launch launch;
  // The emulated device's counters of this launch (emulator/counters.h): {"instructions":{class: warp
  // instructions, ..., "total"}, "global_load_sectors": ..., ...}, keys in the device's order.
  nlohmann::ordered_json counters;
};

// Runs the plan once on the workbench's checked set and reads the counters, in launch order. Waits for the
// bench's stream; resets the device's counters, so that one profile at a time may run in a process. The
// counts are exact and the same on every run; time is not modelled. Errors: bad request (the device is not
// emulated), device (a fault that the run found, a library without counters).
llvm::Expected<std::vector<KernelProfile>> profile(const Plan& plan, Workbench& bench);

}  // namespace trigen
