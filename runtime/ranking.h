// The model's order of a problem's candidates on a device of its own size.
#pragma once

#include "generator/candidate.h"
#include "runtime/device.h"

namespace trigen {

// list_candidates, in the order for the device's SM count where that is not the target's: an H100 PCIe (114), an H20
// (78) and a MIG slice end their last wave elsewhere than an H200. The target's own order for devices of its size and
// for null. Of sizes alone: clocks and bandwidth shift all candidates together, and the order was checked with the
// target's (docs/cost-model.md).
llvm::Expected<std::vector<Candidate>> list_candidates_on(const Device* device, const Problem& problem,
                                                          const Target& target,
                                                          const Family* family = nullptr);

}  // namespace trigen
