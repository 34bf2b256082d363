// trigen cache verify: every row against its digest, files against their signatures.
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
  auto keys = std::make_shared<std::string>();
  auto files = std::make_shared<std::vector<std::string>>();
  where->add_cache(*check);
  check->add_option("--keys", *keys, "check signatures: public keys or their files, separated by ':'")
      ->type_name("KEYS");
  check->add_option("files", *files, "with --keys: the signed files");
  commands.push_back({check, [=] {
                        if (!keys->empty() || !files->empty()) return verify_signatures(*keys, *files);
                        return verify_all(*where);
                      }});
}

}  // namespace trigen::cli
