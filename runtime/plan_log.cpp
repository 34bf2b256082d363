#include "runtime/plan_log.h"

namespace trigen {
namespace {

// A value of a line: in quotes where it would end at a blank.
std::string logged(const std::string& text) {
  if (!text.empty() && text.find_first_of(" \"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? '\'' : c;
  return quoted + "\"";
}

}  // namespace

void PlanLog::made(const Resolution& resolution, const std::string& slow) const {
  const auto took = std::chrono::steady_clock::now() - began_;
  Counters& count = counters();
  count.plan_ns += std::chrono::nanoseconds(took).count();
  const bool measured = resolution.provenance == Provenance::kMeasured;
  if (resolution.match == Match::kNone ||
      resolution.layer.empty())  // near without a layer: ranked by near records
    ++count.misses;
  else if (!measured)
    ++count.predicted;
  else
    ++(resolution.match == Match::kExact ? count.exact : count.near);

  const std::string spec = device_.info().spec();
  if (log_wants(LogLevel::kInfo)) {
    const char* const answer = resolution.match == Match::kExact  ? "exact"
                               : resolution.match == Match::kNear ? "near"
                                                                  : "miss";
    std::string line = "plan problem=" + problem_ + " device=" + spec + " answer=" + answer +
                       " provenance=" + (measured ? "measured" : "predicted");
    if (!resolution.layer.empty()) line += " layer=" + logged(resolution.layer);
    if (!resolution.difference.empty()) line += " differs=" + logged(resolution.difference);
    line += " target=" + resolution.candidate.target->name.str() +
            " kernel=" + logged(describe(resolution.candidate)) +
            " code=" + (resolution.origin == BinaryOrigin::kCompiled ? "compiled" : "cache") +
            " ms=" + milliseconds(took);
    log_line(LogLevel::kInfo, line);
  }
  const std::string tune = "trigen tune --device " + spec + " \"" + problem_ + "\"";
  if (!measured)
    log_once(LogLevel::kNotice, "untuned",
             "untuned: no measured kernel for " + problem_ + "; the cost model's choice runs on " + spec +
                 "; tune it with: " + tune + " (said once; TRIGEN_LOG=info shows every plan)");
  else if (resolution.match == Match::kNear)
    log_once(LogLevel::kNotice, "near",
             "near: the kernel for " + problem_ + " was measured elsewhere: " + resolution.difference +
                 "; measure here with: " + tune + " (said once; TRIGEN_LOG=info shows every plan)");
  if (!slow.empty()) log_once(LogLevel::kNotice, slow, "slow: " + slow + " (said once)");
}

llvm::Error PlanLog::failed(llvm::Error error) const {
  const auto took = std::chrono::steady_clock::now() - began_;
  counters().plan_ns += std::chrono::nanoseconds(took).count();
  ErrorText text = take_error(std::move(error));
  log_line(LogLevel::kInfo, "plan problem=" + problem_ + " device=" + device_.info().spec() +
                                " failed=" + logged(text.message.substr(0, text.message.find('\n'))) +
                                " ms=" + milliseconds(took));
  return make_error(text.kind, text.message);
}

}  // namespace trigen
