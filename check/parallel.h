// Splits independent work over the machine's cores. For the CPU reference and the filling of inputs; the
// order in which parts run never enters a result.
#pragma once

#include <cstdint>
#include <functional>

namespace trigen {

// Calls body(begin, end) on disjoint ranges that cover [0, count), at most `grain` wide, from up to threads()
// threads, and returns when all are done.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);
// TRIGEN_THREADS, or the number of cores.
int threads();

}  // namespace trigen
