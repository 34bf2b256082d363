// A program of subcommands: parsing, refusals, help. `trigen` is one, `trigen-lab` another.
#pragma once

#include "cli/command.h"

namespace trigen::cli {

struct Program {
  const char *name, *text, *footer, *version;
  void (*add_commands)(CLI::App& app, Commands& commands);
};

// main(): the exit code.
int run_program(const Program& program, int argc, char** argv);

}  // namespace trigen::cli
