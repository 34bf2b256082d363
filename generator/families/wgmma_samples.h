// Family::samples of kernels whose persistent blocks share tiles as templates/persistent/ says. Internal to
// generator/families/.
#pragma once

#include "generator/family.h"

namespace trigen {

std::vector<Sample> wgmma_samples(const Family& family, const Problem& problem, const Target& target,
                                  const Config& config);

}  // namespace trigen
