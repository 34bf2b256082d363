// Host memory that a check on the emulated device takes.
#pragma once

#include <cstdint>

#include "generator/problem.h"

namespace trigen {

// Bytes for a problem whose kernels have up to `workspace` bytes of workspace, at the most. `gap`, `full`: as
// in TensorList and ReferenceOptions.
double emulated_bytes(const Problem& problem, int64_t workspace, int gap, bool full);

// Bytes that programs can have here without swapping.
double available_memory();

}  // namespace trigen
