// The kernels that a verification runs for a problem.
#pragma once

#include <vector>

#include "cache/store.h"
#include "generator/candidate.h"
#include "runtime/device.h"

namespace trigen {

struct Selection {
  bool all_families = false;       // the model's first choice of every family that serves the target
  bool generic = false;            // the shape-generic kernels, too (of the first choice's family, or of all)
  const Family* family = nullptr;  // this family alone
  std::optional<Config> config;    // this config alone
  bool config_generic = false;     // config: as a generic kernel
};

// The recorded choice (where a device is given and nothing else is selected and the cache has one), else by
// the model. Errors when nothing is legal.
llvm::Expected<std::vector<Candidate>> select(const Problem& problem, const Target& target,
                                              const Device* device, Store& store, const Selection& selection);

}  // namespace trigen
