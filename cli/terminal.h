// The terminal, and the form of output that the user asked for: width, colour, verbosity.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace trigen::cli {

// --color, --wide and --quiet, of every subcommand; one set for the whole program.
void add_output_options(CLI::App& app);

// Only errors and warnings are said beside the results.
bool quiet();

// The columns that text for `out` may take: COLUMNS where it is set, else the terminal's; 0, no limit, for
// files and pipes and with --wide.
int columns(std::FILE* out);
// For prose, whose lines are never unlimited: at most 100, and 80 where columns() knows none.
int prose_columns(std::FILE* out);
// A terminal that obeys escape sequences (TERM is not "dumb").
bool is_terminal(std::FILE* out);

enum class Style { kHeading, kGood, kWarning, kBad };
// With the style's escape sequence where `out` shows colours: a terminal, without NO_COLOR (no-color.org),
// or with --color always.
std::string styled(std::FILE* out, Style style, const std::string& text);

// Lines of at most `width` characters (0: one line), broken at spaces, and inside of a word that is longer
// than a line after a comma or a colon. UTF-8 sequences are one column each.
std::vector<std::string> wrap(const std::string& text, size_t width);
// The columns that a text takes: its UTF-8 sequences.
size_t width_of(const std::string& text);

// `text` behind `head` in lines of at most `width` (0: one line), the later ones below the first one's text.
std::vector<std::string> behind(const std::string& head, const std::string& text, size_t width);

// A sentence or more on standard output, broken where the terminal ends.
void print_prose(const std::string& text);

// "1 record", "2 records", "2 binaries".
std::string counted(int64_t count, const std::string& one, const std::string& many = "");

// "38 s", "12 min", "1 h 05 min": how long something took or will take.
std::string format_duration(double seconds);

}  // namespace trigen::cli
