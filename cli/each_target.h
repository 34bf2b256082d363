// Commands whose --arch takes several targets: one run a target, each in a process of its own, because a process holds
// one emulated device.
#pragma once

#include <functional>

#include "cli/target_options.h"

namespace trigen::cli {

// run() for each target that `where.arch` lists, with that one in its stead; in this process where it lists one or none.
// `json`: what the runs print is one array of all they print. The exit code: of an interruption, else the first failure
// that is no missing compiler, else that, else kDone.
llvm::Expected<int> for_each_target(TargetOptions& where, bool json,
                                    const std::function<llvm::Expected<int>()>& run);

}  // namespace trigen::cli
