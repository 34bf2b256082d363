// The loop of a kernel that multiplies.
#pragma once

#include "lab/clock/machine_code.h"

namespace trigen {

struct MainLoop {
  std::string function;
  uint32_t begin = 0, end = 0;    // addresses
  std::vector<Instruction> body;  // what a warp issues in one turn, the branch back last
  bool tensor = false;            // multiplied by tensor cores
  size_t products = 0;            // HMMA steps, or FFMA
};

// The main loop: of loops without another loop inside, the one with the most products. A turn is the straight way:
// conditional branches forward are not taken (they skip the loads of the last turns), guarded instructions
// are issued. Errors: unsupported, where nothing multiplies in a loop.
llvm::Expected<MainLoop> main_loop(const std::vector<MachineFunction>& functions);

}  // namespace trigen
