// The trigen program.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "cli/command.h"
#include "generator/names.h"

namespace {

int run(int argc, char** argv) {
  using namespace trigen::cli;
  CLI::App app{"trigen: generates, tunes and runs triangular convolutions on NVIDIA GPUs"};
  app.name("trigen");
  app.require_subcommand(1);
  app.set_version_flag("--version", "trigen " TRIGEN_VERSION_TEXT);
  app.footer(
      "Problems are text: forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0. `trigen COMMAND --help` has "
      "the "
      "rest.\n"
      "Environment: TRIGEN_CACHE (cache file), TRIGEN_NVRTC (compiler), TRIGEN_DRIVER (driver library), "
      "TRIGEN_NO_JIT=1.");
  Commands commands;
  add_tune(app, commands);
  add_verify(app, commands);
  add_bench(app, commands);
  add_profile(app, commands);
  add_model(app, commands);
  add_emit(app, commands);
  add_cache(app, commands);
  add_doctor(app, commands);
  add_version(app, commands);
  if (argc > 1 && argv[1][0] != '-') {
    std::string known;
    bool found = false;
    for (const CLI::App* sub : app.get_subcommands({})) {
      found = found || sub->get_name() == argv[1];
      known += (known.empty() ? "" : ", ") + sub->get_name();
    }
    if (!found) {
      std::fprintf(stderr, "trigen: error: unknown command %s; allowed are %s\n",
                   trigen::quoted(argv[1]).c_str(), known.c_str());
      return kBadRequest;
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "trigen: error: %s; `trigen --help` lists what is allowed\n",
                 trigen::printable(error.what(), /*lines=*/true).c_str());
    return kBadRequest;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = run(argc, argv);
    // A full disk or a closed pipe: what was asked for is not there, whatever the command thinks.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "trigen: error: standard output could not be written (%s); its text is cut\n",
                 std::strerror(errno));
    return code == trigen::cli::kDone ? trigen::cli::kFailure : code;
  } catch (const std::exception& error) {  // out of memory, or a defect
    std::fprintf(stderr, "trigen: error: %s\n", error.what());
  } catch (...) {
    std::fputs("trigen: error: unknown exception\n", stderr);
  }
  return trigen::cli::kFailure;
}
