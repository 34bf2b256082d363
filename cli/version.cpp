#include <cstdio>

#include "cli/command.h"

namespace trigen::cli {

void add_version(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("version", "print the version");
  commands.push_back({sub, [] {
                        std::printf("trigen %s\n", TRIGEN_VERSION_TEXT);
                        return kDone;
                      }});
}

}  // namespace trigen::cli
