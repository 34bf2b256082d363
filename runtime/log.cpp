#include "runtime/log.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "cache/host.h"
#include "cache/lock.h"
#include "generator/names.h"
#include "llvm/ADT/StringSwitch.h"

namespace trigen {
namespace {

struct LogState {
  std::atomic<int> level{static_cast<int>(log_level_from_environment())};
  std::shared_mutex mutex;  // shared while a sink runs, so that a change waits for it
  trigen_log_fn sink = nullptr;
  void* user = nullptr;
  std::mutex once;
  std::set<std::string> said;
};

LogState& log_state() {
  static LogState* const state = new LogState;  // threads may outlive static destructors
  return *state;
}

}  // namespace

LogLevel log_level_from_environment() {
  const std::string text = llvm::StringRef(environment("TRIGEN_LOG")).trim().lower();
  if (text.empty()) return LogLevel::kNotice;
  return llvm::StringSwitch<LogLevel>(text)
      .Case("warning", LogLevel::kWarning)
      .Case("notice", LogLevel::kNotice)
      .Case("debug", LogLevel::kDebug)
      .Default(environment_flag("TRIGEN_LOG") ? LogLevel::kInfo : LogLevel::kOff);
}

bool log_wants(LogLevel level) {
  return static_cast<int>(level) <= log_state().level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, const std::string& line) {
  if (!log_wants(level)) return;
  const cache::Call call;  // fork() waits for the lock to be given back
  if (!call.allowed()) return;
  LogState& to = log_state();
  const std::shared_lock<std::shared_mutex> lock(to.mutex);
  const std::string text = printable(line);
  if (to.sink != nullptr)
    to.sink(static_cast<trigen_log_level>(level), text.c_str(), to.user);
  else
    std::fprintf(stderr, "trigen: %s%s\n", level == LogLevel::kWarning ? "warning: " : "", text.c_str());
}

void log_once(LogLevel level, llvm::StringRef cause, const std::string& line) {
  if (!log_wants(level)) return;
  {
    const cache::Call call;
    if (!call.allowed()) return;
    const std::lock_guard<std::mutex> lock(log_state().once);
    if (!log_state().said.insert(cause.str()).second) return;
  }
  log_line(level, line);
}

void set_log(LogLevel level, trigen_log_fn sink, void* user) {
  const cache::Call call;
  if (!call.allowed()) return;
  LogState& to = log_state();
  const std::unique_lock<std::shared_mutex> lock(to.mutex);
  to.level = static_cast<int>(level);
  to.sink = sink;
  to.user = user;
}

std::string milliseconds(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(time.count()) * 1e-6);
  return text;
}

Counters& counters() {
  static Counters* const counters = new Counters;
  return *counters;
}

}  // namespace trigen
