// trigen-lab's subcommands, each in its own file.
#pragma once

#include "cli/command.h"

namespace trigen::cli {

void add_model(CLI::App& app, Commands& commands);
void add_record(CLI::App& app, Commands& commands);
void add_render(CLI::App& app, Commands& commands);
void add_replay(CLI::App& app, Commands& commands);
void add_sweep(CLI::App& app, Commands& commands);
void add_tables(CLI::App& app, Commands& commands);
void add_timeline(CLI::App& app, Commands& commands);

}  // namespace trigen::cli
