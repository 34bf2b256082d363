#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "check/text.h"
#include "cli/command.h"
#include "llvm/ADT/StringRef.h"

namespace trigen::cli {
namespace {

struct OutputOptions {
  std::string color = "auto";
  bool wide = false, quiet = false;
};
OutputOptions& options() {
  static OutputOptions one;
  return one;
}

bool environment_has(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool shows_colors(std::FILE* out) {
  if (options().color == "always") return true;
  if (options().color == "never" || environment_has("NO_COLOR")) return false;
  return is_terminal(out);
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }  // a later byte of UTF-8

// The bytes that `count` columns of the text take.
size_t bytes_of(llvm::StringRef text, size_t count) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if (!continues(text[at]) && count-- == 0) break;
  return at;
}

}  // namespace

void add_output_options(CLI::App& app) {
  const char* group = "Output";
  if (app.get_help_ptr() != nullptr) app.get_help_ptr()->group(group);
  app.add_option("--color", options().color, "auto (on terminals, without NO_COLOR), always or never")
      ->check(one_word_of({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->group(group);
  app.add_flag("--wide", options().wide, "whole tables, however wide the terminal is")->group(group);
  app.add_flag("-q,--quiet", options().quiet, "no progress and no remarks, only errors and warnings")
      ->group(group);
}

bool quiet() { return options().quiet; }

bool is_terminal(std::FILE* out) {
  const char* term = std::getenv("TERM");
  return ::isatty(::fileno(out)) == 1 && (term == nullptr || llvm::StringRef(term) != "dumb");
}

int columns(std::FILE* out) {
  if (options().wide) return 0;
  int asked = 0;
  const char* text = std::getenv("COLUMNS");
  if (text != nullptr && !llvm::StringRef(text).getAsInteger(10, asked) && asked > 0) return asked;
  if (::isatty(::fileno(out)) != 1) return 0;
  winsize size{};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int prose_columns(std::FILE* out) {
  const int there = columns(out);
  return there == 0 ? 80 : std::min(there, 100);
}

std::string styled(std::FILE* out, Style style, const std::string& text) {
  if (!shows_colors(out)) return text;
  const char* code = style == Style::kHeading   ? "1"
                     : style == Style::kGood    ? "32"
                     : style == Style::kWarning ? "33"
                     : style == Style::kBad     ? "31"
                                                : "2";
  return std::string("\033[") + code + "m" + text + "\033[0m";
}

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::vector<std::string> wrap(const std::string& text, size_t width) {
  if (width == 0) return {text};
  std::vector<std::string> lines(1);
  llvm::StringRef rest = text;
  while (!(rest = rest.ltrim(' ')).empty()) {
    llvm::StringRef word = rest.take_until([](char c) { return c == ' '; });
    rest = rest.drop_front(word.size());
    while (!word.empty()) {
      const size_t taken = width_of(lines.back()) + (lines.back().empty() ? 0 : 1);
      const size_t room = taken < width ? width - taken : 0;
      if (width_of(word.str()) <= room) {
        lines.back() += (lines.back().empty() ? "" : " ") + word.str();
        break;
      }
      if (width_of(word.str()) <= width || room < 8) {  // whole on the next line, or split there
        if (!lines.back().empty()) {
          lines.emplace_back();
          continue;
        }
      }
      const size_t fits = bytes_of(word, room);
      const size_t mark = word.take_front(fits).find_last_of(",:/");
      const size_t cut = mark == llvm::StringRef::npos ? fits : mark + 1;
      lines.back() += (lines.back().empty() ? "" : " ") + word.take_front(cut).str();
      word = word.drop_front(cut);
      if (!word.empty()) lines.emplace_back();
    }
  }
  return lines;
}

std::vector<std::string> behind(const std::string& head, const std::string& text, size_t width) {
  constexpr size_t kLeastRoom = 20;
  const size_t indent = width_of(head);
  std::vector<std::string> lines = wrap(text, width == 0 ? 0 : std::max(width, indent + kLeastRoom) - indent);
  for (size_t i = 0; i < lines.size(); ++i) lines[i].insert(0, i == 0 ? head : std::string(indent, ' '));
  return lines;
}

void print_prose(const std::string& text) {
  for (const std::string& line : wrap(text, static_cast<size_t>(columns(stdout))))
    std::printf("%s\n", line.c_str());
}

std::string counted(int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many.empty() ? one + "s" : many);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto whole = static_cast<long long>(std::llround(std::max(seconds, 0.0)));
  if (whole < 120) return format("%lld s", whole);
  const long long minutes = (whole + 30) / 60;
  if (minutes < 120) return format("%lld min", minutes);
  return format("%lld h %02lld min", minutes / 60, minutes % 60);
}

}  // namespace trigen::cli
