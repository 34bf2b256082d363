// Lines about what the library does, to whoever wants them: levels, one sink for the process, counters.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "llvm/ADT/StringRef.h"
#include "runtime/include/trigen/trigen.h"

namespace trigen {

// The values of trigen_log_level: do not renumber.
enum class LogLevel : int { kOff = 0, kWarning = 1, kNotice = 2, kInfo = 3, kDebug = 4 };

// Is a line of this level wanted? Cheap: asked before the line is made.
bool log_wants(LogLevel level);
void log_line(LogLevel level, const std::string& line);
// The same, for the first line of its cause in this process alone.
void log_once(LogLevel level, llvm::StringRef cause, const std::string& line);
// Null: standard error. When it returns, no thread is in the sink that was there before.
void set_log(LogLevel level, trigen_log_fn sink, void* user);
// TRIGEN_LOG: a level's name, or a switch; kNotice when it is unset.
LogLevel log_level_from_environment();

std::string milliseconds(std::chrono::nanoseconds time);  // "1.93"

// Counters of this process since its start.
struct Counters {
  std::atomic<uint64_t> exact{0}, near{0}, predicted{0}, misses{0}, compiles{0};
  std::atomic<uint64_t> plan_ns{0}, compile_ns{0};
};
Counters& counters();

}  // namespace trigen
