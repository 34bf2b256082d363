// Is a stored binary what its source makes? For `trigen cache verify --rebuild`.
#pragma once

#include <string>

#include "cache/store.h"

namespace trigen {

enum class Rebuilt { kSame, kDiffers, kCannot, kNoCompiler };
// Compiles the stored source again, with the compiler version and options that its key names, and compares
// cubin, PTX and the entries' names byte for byte. `why`: what differs, or why it cannot be made here: another version of the
// templates; kNoCompiler: all that is lacking is that compiler.
Rebuilt rebuild(const Binary& binary, std::string& why);

}  // namespace trigen
