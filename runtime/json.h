// JSON that others wrote: a record's evidence, a line of results, a recorded environment.
#pragma once

#include <nlohmann/json.hpp>

#include "llvm/ADT/StringRef.h"

namespace trigen {

// Null where it is none. Nothing of it is taken for granted: what is longer than 1 MiB, or has brackets deeper than 32
// (trigen writes 4), is none, for each bracket costs the JSON library an allocation.
nlohmann::json read_json(llvm::StringRef text);

}  // namespace trigen
