// Cubin -> machine code, by NVIDIA's nvdisasm: a development tool that is found at run time, by TRIGEN_NVDISASM
// or in PATH.
#pragma once

#include "lab/clock/machine_code.h"

namespace trigen {

bool have_nvdisasm();

// Errors: unsupported, where no disassembler is here, with where one is to be had; bad request (it refuses the
// cubin, with what it said).
llvm::Expected<std::vector<MachineFunction>> disassemble(llvm::StringRef cubin);

}  // namespace trigen
