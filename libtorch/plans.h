// The plans of this process, by problem and device.
#pragma once

#include <trigen/trigen.h>

namespace trigen::libtorch {

struct Plan {
  trigen_plan* handle;
  size_t workspace;  // bytes that each run needs
};

// The plan of a problem whose fields are all given and whose padding is zero; made at first use, kept for the
// life of the process. Any thread. Throws what libtrigen says.
Plan plan_of(const trigen_problem& problem, int device);
// Throws what libtrigen said of this problem, when status is not TRIGEN_OK.
void check(trigen_status status, const trigen_problem& problem);

}  // namespace trigen::libtorch
