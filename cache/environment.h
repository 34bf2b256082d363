// The environment, for everything that trigen reads from it, and the clock that dates are judged by.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>

#include "llvm/ADT/StringRef.h"

namespace trigen {

// "" when unset, and in programs that have privileges their caller lacks (set-uid, file capabilities): there
// the caller's environment must not choose files to read or libraries to load.
inline std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The same, where a variable that is set to nothing means something.
inline std::optional<std::string> environment_if_set(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Dates (seconds since 1970) after this one, a day ahead of the clock, are nobody's: one that is believed wins over
// every honest date until it comes.
inline int64_t latest_date() { return std::time(nullptr) + int64_t{86400}; }

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
