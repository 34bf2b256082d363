// Slow-path warnings: choices that are slow for a reason that no tuning cures.
#pragma once

#include <string>

#include "generator/candidate.h"

namespace trigen {

// Why the candidate is far slower on `target` than the GPU could be, in words, with what to use instead; "" where it
// is not. `target` is the device's own, where the candidate may be an older one's. The text names no sizes, so that
// one cause has one text: it is said once in a process.
std::string slow_path_warning(const Candidate& candidate, const Target& target);

}  // namespace trigen
