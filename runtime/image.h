// A kernel's parameters, read from its image before a driver is given any of it.
#pragma once

#include <optional>
#include <vector>

#include "llvm/ADT/StringRef.h"

namespace trigen {

// Bytes of each parameter of the kernel `entry`; none where the image does not say: it has no such kernel, or is
// damaged. Every offset in it is checked: a cubin may be anybody's.

/// A cubin: an ELF file whose section .nv.info.<entry> has an EIATTR_KPARAM_INFO for each parameter and
/// EIATTR_CBANK_PARAM_SIZE for all. (NVIDIA documents neither; `cuobjdump -elf` prints them.)
std::optional<std::vector<uint32_t>> cubin_parameters(llvm::StringRef image, llvm::StringRef entry);
/// PTX text: the list of .param behind `.entry <entry>`.
std::optional<std::vector<uint32_t>> ptx_parameters(llvm::StringRef image, llvm::StringRef entry);

}  // namespace trigen
