// The correctness gate: one kernel on one device against the reference.
#pragma once

#include "check/reference.h"
#include "check/workbench.h"
#include "runtime/plan.h"

namespace trigen {

// Runs the plan on the workbench's checked set: outputs and workspace poisoned, NaN in the weights' other
// triangle. The run is repeated once (on a GPU), with the same bits; one by arrays of pointers follows where the op takes them, and one or two
// on inputs of small integers, whose outputs are all compared (check/integers.h), the last of them again with w_unchanged where the plan
// prepares w. A failed comparison is no error but a result with
// ok == false; errors are the device's.
llvm::Expected<CheckResult> verify(const Plan& plan, Workbench& bench, const Reference& reference);

// The same for buffers that some other function computed on set 0 (a peer library): `launch` enqueues on the
// bench's stream.
llvm::Expected<CheckResult> verify_launch(Workbench& bench, const Reference& reference,
                                          const std::function<llvm::Error()>& launch, bool repeat);

// The rows whose runs `trigen verify` checks: for decode the longest, the first row alone, and fewer rows
// than the plan allows from the middle; else all rows, once.
std::vector<Rows> rows_to_check(const Problem& problem);

}  // namespace trigen
