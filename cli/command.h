// Helpers that the subcommands share: registration, exit codes, errors on stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <vector>

#include "generator/error.h"

namespace trigen::cli {

inline constexpr int kDone = 0, kFailure = 1, kBadRequest = 2, kNoCompiler = 3, kInterrupted = 130,
                     kTerminated = 143;
struct ExitCode {
  int value;
  const char* meaning;
};
inline constexpr ExitCode kExitCodes[] = {
    {kDone, "done"},
    {kFailure,
     "the request was right but failed: a wrong result, nothing that could be verified, no device, a damaged "
     "cache, output that could not be written"},
    {kBadRequest, "the request itself is wrong: arguments, a problem's text, an unknown target"},
    {kNoCompiler,
     "no compiler here makes the target, or made a binary that was to be proved, and nothing else failed"},
    {kInterrupted, "interrupted by Ctrl-C; what was measured is kept"},
    {kTerminated, "terminated (SIGTERM); what was measured is kept"},
};

// Groups of the list of commands.
inline constexpr const char* kWorkGroup = "Find, check and time kernels";
inline constexpr const char* kLookGroup = "Look inside";
inline constexpr const char* kMachineGroup = "This machine";
inline constexpr const char* kHelpGroup = "Help";

struct Command {
  CLI::App* app;
  std::function<int()> run;
};
using Commands = std::vector<Command>;

// One function per subcommand, each in its own file.
void add_tune(CLI::App& app, Commands& commands);
void add_emit(CLI::App& app, Commands& commands);
void add_verify(CLI::App& app, Commands& commands, bool lab = false);  // `lab`: with the developers' options
void add_profile(CLI::App& app, Commands& commands);
void add_bench(CLI::App& app, Commands& commands);
void add_cache(CLI::App& app, Commands& commands);
void add_report(CLI::App& app, Commands& commands);
void add_doctor(CLI::App& app, Commands& commands);
void add_help(CLI::App& app, Commands& commands);
void add_completion(CLI::App& app, Commands& commands);
void add_version(CLI::App& app, Commands& commands);

// For ->check(): CLI11 takes "-1" for an unsigned number, hexadecimal digits, "nan" and "" for any.
inline constexpr uint64_t kMostCount = 1'000'000;
CLI::Validator whole_number(uint64_t least, uint64_t most);
CLI::Validator decimal_number();  // of 0 or more
CLI::Validator not_empty();
CLI::Validator one_word_of(const std::vector<std::string>& words);

// The line as it was typed, for a shell: "trigen report base.trigen -o 'a page.html'".
void remember_command_line(const char* program, int argc, char** argv);
const std::string& command_line();

// Prints "trigen: error: ..." to stderr; the exit code that the error's kind stands for, kDone without one.
int report(llvm::Error error);
inline int report(llvm::Expected<int> code) { return code ? *code : report(code.takeError()); }
// The text as a file that the user named, whole or not at all (cache/host.h).
llvm::Error write_text(const std::string& path, llvm::StringRef text);
llvm::Error cannot_write(const std::string& path, int error);
// A remark on stderr, where it does not mix with tables and JSON. --quiet leaves out those that do not start
// with "error:" or "warning:". `lines`: its line ends are trigen's own, and stay; what a file says has none.
void remark(const std::string& text, bool lines = false);

// Set by the first Ctrl-C (SIGINT) or SIGTERM after this call; the second one ends the program at once.
// `terminations`: false leaves SIGTERM its usual effect, for work that ends late and leaves nothing to store.
const std::atomic<bool>& catch_interrupts(bool terminations = true);
// kInterrupted or kTerminated: which of the two came first.
int interrupted_code();

// "60", "60s", "1500ms", "2m", "1.5h" -> seconds. `name` is what the error calls it.
llvm::Expected<double> parse_duration(const std::string& name, const std::string& text);

}  // namespace trigen::cli
