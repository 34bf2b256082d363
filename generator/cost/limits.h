// How limits add up, how many blocks an SM holds, and which limit is the largest. Internal to
// generator/cost/.
#pragma once

#include <initializer_list>

#include "generator/cost/cost.h"

namespace trigen {

// The largest, and more near a crossing: there two limits slow each other down.
double soft_max(std::initializer_list<double> limits);

// Blocks of one SM at a time, one at least. `registers` are a thread's, `shared_bytes` a block's, without
// what the system takes.
int resident_blocks(const Target& target, int64_t registers, int threads, int64_t shared_bytes);

// Sets `limiter` to the longest of a prediction's terms; `arithmetic` is the compute term's name ("tensor",
// "fma").
void name_limiter(Prediction& prediction, const char* arithmetic);

}  // namespace trigen
