// The environment, for everything that trigen reads from it.
#pragma once

#include <cstdlib>
#include <string>

namespace trigen {

// "" when unset, and in programs that have privileges their caller lacks (set-uid, file capabilities): there
// the caller's environment must not choose files to read or libraries to load.
inline std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace trigen
