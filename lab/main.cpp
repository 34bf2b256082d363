// The trigen-lab program: what developers of trigen run.
#include "cli/program.h"
#include "lab/commands.h"

namespace {

void add_commands(CLI::App& app, trigen::cli::Commands& commands) {
  using namespace trigen::cli;
  add_tables(app, commands);
  add_sweep(app, commands);
  add_render(app, commands);
  add_record(app, commands);
  add_replay(app, commands);
  add_model(app, commands);
  add_timeline(app, commands);
  add_verify(app, commands, /*lab=*/true);
}

}  // namespace

int main(int argc, char** argv) {
  return trigen::cli::run_program(
      {"trigen-lab", "trigen-lab: tables and sweeps beside peers, recordings, the cost model, the clock",
       "For work on trigen itself; `trigen` is the program for users. docs/performance.md, "
       "docs/cost-model.md and "
       "docs/clock.md say what these commands are for.",
       TRIGEN_VERSION_TEXT, add_commands},
      argc, argv);
}
