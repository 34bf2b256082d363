// A device copy as a peer: the bytes that a problem must move, at the rate of the memory.
#pragma once

#include "tuner/measure.h"

namespace trigen {

// Half of the bytes are read and half written, so that as many cross the memory as the problem must move
// (decode: as the tokens of x have that its rows read). The copy lies in the larger of x and W of each set,
// whose second half it overwrites: check results before. Error: unsupported, when no tensor is large enough.
llvm::Expected<LaunchOn> copy_launch(Workbench& bench);

}  // namespace trigen
