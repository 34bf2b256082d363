#include "cli/command.h"

#include <cmath>
#include <csignal>
#include <cstdio>

#include "cache/host.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<int> code_of_interrupt{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "set in a signal handler");
extern "C" void on_interrupt(int signal) {
  int none = 0;
  code_of_interrupt.compare_exchange_strong(none, 128 + signal);
  interrupted.store(true);
}

// "trigen: error: ..." with the word that says how bad it is in its colour; on a terminal broken at words. Every
// line but the first is indented: none can be taken for another remark.
void say(llvm::StringRef text, bool lines_stay) {
  constexpr llvm::StringLiteral kWho = "trigen: ";
  std::string severity, shown;
  for (const auto& [word, style] : {std::pair("error:", Style::kBad), std::pair("warning:", Style::kWarning)})
    if (text.startswith(word)) severity = word, shown = styled(stderr, style, word);
  if (quiet() && severity.empty()) return;
  const auto width = static_cast<size_t>(is_terminal(stderr) ? columns(stderr) : 0);
  const std::string all = kWho.str() + printable(text, lines_stay);
  llvm::SmallVector<llvm::StringRef, 8> lines;
  llvm::StringRef(all).split(lines, '\n');
  std::string out;
  for (const llvm::StringRef line : lines) {
    const llvm::StringRef words = line.ltrim(' ');
    const std::string indent(
        std::max<size_t>(line.size() - words.size(), out.empty() || words.empty() ? 0 : 2), ' ');
    const std::string whole = indent + words.str();
    out +=
        width == 0 || width_of(whole) <= width ? whole : llvm::join(behind(indent, words.str(), width), "\n");
    out += "\n";
  }
  out.replace(kWho.size(), severity.size(), shown);
  std::fflush(stdout);
  std::fputs(out.c_str(), stderr);
}

}  // namespace

int report(llvm::Error error) {
  if (!error) return kDone;
  const ErrorText text = take_error(std::move(error));
  say("error: " + text.message, /*lines_stay=*/true);
  return text.kind == ErrorKind::kBadRequest   ? kBadRequest
         : text.kind == ErrorKind::kNoCompiler ? kNoCompiler
                                               : kFailure;
}

llvm::Error write_text(const std::string& path, llvm::StringRef text) {
  const int error = cache::write_output(path, text.str());
  return error == 0 ? llvm::Error::success() : cannot_write(path, error);
}

llvm::Error cannot_write(const std::string& path, int error) {
  return make_error(ErrorKind::kBadRequest, "cannot write " + printable(path) + ": " +
                                                cache::errno_text(error) +
                                                "; name a writable place with room");
}

void remark(const std::string& text, bool lines) { say(text, lines); }

namespace {
std::string typed;
}  // namespace

void remember_command_line(const char* program, int argc, char** argv) {
  typed = program;
  for (int i = 1; i < argc; ++i) {
    std::string word;
    for (const char c : llvm::StringRef(argv[i])) word += c == '\'' ? "'\\''" : std::string(1, c);
    const bool plain = !word.empty() && llvm::all_of(word, [](char c) {
      return llvm::isAlnum(c) || llvm::StringRef("_./:,=+@%-").contains(c);
    });
    typed += plain ? " " + word : " '" + word + "'";
  }
}
const std::string& command_line() { return typed; }

const std::atomic<bool>& catch_interrupts(bool terminations) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one has its usual effect
  sigaction(SIGINT, &action, nullptr);
  if (terminations) sigaction(SIGTERM, &action, nullptr);
  return interrupted;
}

int interrupted_code() { return code_of_interrupt.load(); }

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

CLI::Validator decimal_number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double value = 0;
        const bool bad = text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string::npos ||
                         llvm::StringRef(text).getAsDouble(value) || !std::isfinite(value) || value < 0;
        return bad ? trigen::quoted(text) + " is no decimal number of 0 or more" : "";
      },
      "");
}

CLI::Validator one_word_of(const std::vector<std::string>& words) {
  return CLI::Validator(
      [words](std::string& text) -> std::string {
        const llvm::SmallVector<llvm::StringRef, 8> names(words.begin(), words.end());
        return llvm::is_contained(names, text)
                   ? ""
                   : trigen::quoted(text) + " is unknown; allowed are " + trigen::one_of(names) +
                         trigen::did_you_mean(text, names);
      },
      "{" + llvm::join(words, ",") + "}");  // as CLI::IsMember says it: cli/help.cpp reads the words there
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
