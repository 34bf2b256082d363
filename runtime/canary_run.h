// One canary: a plan's kernel run on small batches of its own problem, its outputs compared with a reference.
#pragma once

#include "runtime/canary.h"

namespace trigen {

// run_canary(), uncounted.
CanaryReport run_on_batches(const Plan& plan);

}  // namespace trigen
