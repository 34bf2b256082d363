// What the subcommands share: registration, exit codes, errors on stderr.
//
// Exit codes: 0 done; 1 the request was right but failed (a wrong result, no device, a damaged cache); 2 the
// request itself is wrong (arguments, problem text, unknown target); 3 no compiler here makes the target, and
// nothing else failed; 130 interrupted, what was measured is kept.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <vector>

#include "generator/error.h"

namespace trigen::cli {

inline constexpr int kDone = 0, kFailure = 1, kBadRequest = 2, kNoCompiler = 3, kInterrupted = 130;

struct Command {
  CLI::App* app;
  std::function<int()> run;
};
using Commands = std::vector<Command>;

// One function per subcommand, each in its own file.
void add_tune(CLI::App& app, Commands& commands);
void add_model(CLI::App& app, Commands& commands);
void add_emit(CLI::App& app, Commands& commands);
void add_verify(CLI::App& app, Commands& commands);
void add_profile(CLI::App& app, Commands& commands);
void add_bench(CLI::App& app, Commands& commands);
void add_cache(CLI::App& app, Commands& commands);
void add_doctor(CLI::App& app, Commands& commands);
void add_version(CLI::App& app, Commands& commands);

// Prints "trigen: error: ..." to stderr; the exit code that the error's kind stands for.
int report(llvm::Error error);
// A warning or remark on stderr, where it does not mix with tables and JSON.
void remark(const std::string& text);

// Set by the first Ctrl-C (SIGINT) or SIGTERM after this call; the second one ends the program at once.
// `terminations`: false leaves SIGTERM its usual effect, for work that ends late and leaves nothing to store.
const std::atomic<bool>& catch_interrupts(bool terminations = true);

// "60", "60s", "1500ms", "2m", "1.5h" -> seconds. `name` is what the error calls it.
llvm::Expected<double> parse_duration(const std::string& name, const std::string& text);

}  // namespace trigen::cli
