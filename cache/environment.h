// The environment, for everything that trigen reads from it.
#pragma once

#include <cstdlib>
#include <string>

#include "llvm/ADT/StringRef.h"

namespace trigen {

// "" when unset, and in programs that have privileges their caller lacks (set-uid, file capabilities): there
// the caller's environment must not choose files to read or libraries to load.
inline std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Set to "0", "false", "no" or "off" (any case).
inline bool environment_off(const char* name) {
  const std::string value = llvm::StringRef(environment(name)).trim().lower();
  return value == "0" || value == "false" || value == "no" || value == "off";
}

// Set, and to nothing of those: who writes TRIGEN_NO_JIT=2 means it.
inline bool environment_flag(const char* name) {
  return !llvm::StringRef(environment(name)).trim().empty() && !environment_off(name);
}

}  // namespace trigen
