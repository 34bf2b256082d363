// The trigen program.
#include "cli/program.h"

namespace {

void add_commands(CLI::App& app, trigen::cli::Commands& commands) {
  using namespace trigen::cli;
  add_tune(app, commands);
  add_verify(app, commands);
  add_bench(app, commands);
  add_profile(app, commands);
  add_emit(app, commands);
  add_cache(app, commands);
  add_report(app, commands);
  add_doctor(app, commands);
  add_help(app, commands);
  add_completion(app, commands);
  add_version(app, commands);
}

}  // namespace

int main(int argc, char** argv) {
  return trigen::cli::run_program(
      {"trigen", "trigen: generates, tunes and runs triangular convolutions on NVIDIA GPUs",
       "A problem is a text: forward,dtype=bf16,B=32,T=512,D=1024. `trigen help problem` explains it, "
       "`trigen "
       "help exit-codes` the program's exit codes, `trigen COMMAND --help` a command.\n"
       "Environment: TRIGEN_CACHE (cache files), TRIGEN_NVRTC (compiler), TRIGEN_DRIVER (driver library), "
       "TRIGEN_NO_JIT=1, NO_COLOR, COLUMNS.",
       TRIGEN_VERSION_TEXT, add_commands},
      argc, argv);
}
