#include "cli/command.h"

#include <cmath>
#include <csignal>
#include <cstdio>

#include "cli/terminal.h"
#include "generator/names.h"

namespace trigen::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");
extern "C" void on_interrupt(int) { interrupted.store(true); }

// "trigen: error: ..." with the word that says how bad it is in its colour.
void say(llvm::StringRef text) {
  std::string severity;
  for (const auto& [word, style] : {std::pair("error:", Style::kBad), std::pair("warning:", Style::kWarning)})
    if (text.consume_front(word)) severity = styled(stderr, style, word);
  if (quiet() && severity.empty()) return;
  std::fflush(stdout);
  std::fprintf(stderr, "trigen: %s%s\n", severity.c_str(), printable(text, /*lines=*/true).c_str());
}

}  // namespace

int report(llvm::Error error) {
  const ErrorText text = take_error(std::move(error));
  say("error: " + text.message);
  return text.kind == ErrorKind::kBadRequest   ? kBadRequest
         : text.kind == ErrorKind::kNoCompiler ? kNoCompiler
                                               : kFailure;
}

void remark(const std::string& text) { say(text); }

const std::atomic<bool>& catch_interrupts(bool terminations) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one has its usual effect
  sigaction(SIGINT, &action, nullptr);
  if (terminations) sigaction(SIGTERM, &action, nullptr);
  return interrupted;
}

CLI::Validator whole_number(uint64_t least, uint64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        uint64_t value = 0;
        const bool bad = text.empty() || text.find_first_not_of("0123456789") != std::string::npos ||
                         llvm::StringRef(text).getAsInteger(10, value) || value < least || value > most;
        return bad ? trigen::quoted(text) + " is none of the whole numbers from " + std::to_string(least) +
                         " to " + std::to_string(most)
                   : "";
      },
      "");
}

CLI::Validator decimal_number(int least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        double value = 0;
        const bool bad = text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string::npos ||
                         llvm::StringRef(text).getAsDouble(value) || !std::isfinite(value) || value < least;
        return bad ? trigen::quoted(text) + " is no decimal number of " + std::to_string(least) + " or more"
                   : "";
      },
      "");
}

CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) -> std::string { return text.empty() ? "it is empty" : ""; },
                        "");
}

llvm::Expected<double> parse_duration(const std::string& name, const std::string& text) {
  llvm::StringRef rest = text;
  double unit = 1;
  if (rest.consume_back("ms"))
    unit = 1e-3;
  else if (rest.consume_back("m"))
    unit = 60;
  else if (rest.consume_back("h"))
    unit = 3600;
  else
    rest.consume_back("s");
  double value = 0;
  if (rest.getAsDouble(value) || !(value > 0) || value * unit > 1e7) {
    return make_error(ErrorKind::kBadRequest,
                      name + " '" + text + "'; allowed are times such as 1500ms, 60s, 2m or 1h; give one");
  }
  return value * unit;
}

}  // namespace trigen::cli
