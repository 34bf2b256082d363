// trigen cache verify: every row against its digest.
#include <cstdio>

#include "cli/cache.h"
#include "generator/names.h"

namespace trigen::cli {
namespace {

int verify_all(const TargetOptions& where) {
  auto store = where.open_store(true);
  const auto damage = store->verify();
  for (const std::string& line : damage) std::printf("%s\n", printable(line).c_str());
  if (damage.empty()) std::printf("every row of every cache file has its digest\n");
  return damage.empty() ? kDone : kFailure;
}

}  // namespace

void add_cache_verify(CLI::App& cache, Commands& commands) {
  auto where = std::make_shared<TargetOptions>();
  CLI::App* check = cache.add_subcommand("verify", "read every row and check its digest");
  where->add_cache(*check);
  commands.push_back({check, [=] { return verify_all(*where); }});
}

}  // namespace trigen::cli
