// trigen cache path: the file that is written.
#include <cstdio>

#include "cli/cache.h"

namespace trigen::cli {

void add_cache_path(CLI::App& cache, Commands& commands) {
  CLI::App* path = cache.add_subcommand("path", "the file that is written");
  commands.push_back({path, [] {
                        TargetOptions where;
                        for (const LayerInfo& layer : where.open_store(true)->layers())
                          if (layer.user_layer) {
                            std::printf("%s\n", layer.path.c_str());
                            return kDone;
                          }
                        std::printf("\n");
                        return kDone;
                      }});
}

}  // namespace trigen::cli
