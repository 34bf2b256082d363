// trigen cache verify: every row against its digest, every binary against its source, files against their
// signatures.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>

#include "cache/host.h"
#include "cli/cache.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "runtime/compile.h"
#include "runtime/rebuild.h"

namespace trigen::cli {
namespace {

// Remakes every binary, on all CPUs. One that cannot be remade here is not proved: status 3, unless all that is
// lacking is a compiler whose name is in `allowed`.
int rebuild_all(const TargetOptions& where, const std::vector<std::string>& allowed) {
  size_t counts[4] = {}, waved = 0;
  std::set<std::string> lacking;
  for (const LayerInfo& layer : where.open_store(true)->layers()) {
    if (!layer.exists) continue;
    TargetOptions alone = where;
    alone.caches = {layer.path};
    auto store = alone.open_store(true);
    const std::vector<BinaryInfo> list = store->list_binaries();
    std::atomic<size_t> next{0};
    std::mutex mutex;
    const auto work = [&] {
      for (size_t i; (i = next++) < list.size();) {
        std::string why = "it cannot be read";
        const auto binary = store->find_binary(list[i].key);
        const Rebuilt result = binary ? rebuild(*binary, why) : Rebuilt::kDiffers;
        const std::lock_guard<std::mutex> lock(mutex);
        ++counts[static_cast<int>(result)];
        if (result == Rebuilt::kSame) continue;
        if (result == Rebuilt::kNoCompiler) {
          const std::string& compiler = list[i].key.compiler;
          if (std::find(allowed.begin(), allowed.end(), compiler) != allowed.end())
            ++waved;
          else
            lacking.insert(compiler);
        }
        std::printf("%s: binary %s (%s, %s) %s: %s\n", printable(layer.path).c_str(),
                    list[i].key.digest().substr(0, 12).c_str(), printable(list[i].problem).c_str(),
                    printable(list[i].candidate).c_str(),
                    result == Rebuilt::kDiffers ? "differs" : "cannot be remade here",
                    printable(why).c_str());
      }
    };
    on_threads(static_cast<size_t>(usable_cpus()), work);
  }
  const size_t cannot =
      counts[static_cast<int>(Rebuilt::kCannot)] + counts[static_cast<int>(Rebuilt::kNoCompiler)];
  std::printf("remade: %zu the same, byte for byte; %zu differ; %zu cannot be remade here%s\n", counts[0],
              counts[1], cannot,
              waved > 0 ? (", " + std::to_string(waved) + " of them allowed").c_str() : "");
  if (cannot > waved) {
    std::string step;
    for (const std::string& compiler : lacking)
      step += (step.empty() ? "; install the compilers, or allow what they made unseen:" : "") +
              std::string(" --allow-compiler '") + compiler + "'";
    if (counts[static_cast<int>(Rebuilt::kCannot)] > 0)
      step += "; tune again here what another version of trigen made, or leave it out";
    remark("error: " + counted(cannot - waved, "binary", "binaries") + " could not be proved" +
           printable(step));
  }
  return counts[1] > 0 ? kFailure : cannot > waved ? kNoCompiler : kDone;
}

int verify_all(const TargetOptions& where, bool remake, const std::vector<std::string>& allowed) {
  auto store = where.open_store(true);
  const std::vector<LayerInfo> layers = store->layers();
  if (std::none_of(layers.begin(), layers.end(), [](const LayerInfo& layer) { return layer.exists; }))
    return report(make_error(ErrorKind::kCache,
                             "nothing to verify: no cache file is there; `trigen cache path "
                             "--all` lists where was looked"));
  auto damage = store->verify();
  for (const LayerInfo& layer : layers)
    if (!layer.exists && !where.caches.empty()) damage.push_back(layer.path + " is not there");
  for (const std::string& line : damage) std::printf("%s\n", printable(line).c_str());
  for (const LayerInfo& layer : layers)
    if (damage.empty() && layer.exists)
      std::printf("%s: %s and %s, every row has its digest\n", printable(layer.path).c_str(),
                  counted(layer.records, "record").c_str(),
                  counted(layer.binaries, "binary", "binaries").c_str());
  const int remade = remake ? rebuild_all(where, allowed) : kDone;
  return damage.empty() ? remade : kFailure;
}

}  // namespace

void add_cache_verify(CLI::App& cache, Commands& commands) {
  auto where = std::make_shared<TargetOptions>();
  auto remake = std::make_shared<bool>(false);
  CLI::App* check = cache.add_subcommand("verify", "read every row and check its digest");
  auto keys = std::make_shared<std::string>();
  auto files = std::make_shared<std::vector<std::string>>();
  where->add_cache(*check);
  check->add_flag("--rebuild", *remake, "compile every stored source again and compare the bytes");
  auto allowed = std::make_shared<std::vector<std::string>>();
  check
      ->add_option("--allow-compiler", *allowed,
                   "with --rebuild: do not fail over binaries of this compiler, as in 'nvrtc 13.0.48', where "
                   "it is not "
                   "here; once for each")
      ->type_name("NAME")
      ->allow_extra_args(false);
  check->add_option("--keys", *keys, "check signatures: public keys or their files, separated by ':'")
      ->type_name("KEYS");
  check->add_option(
      "files", *files,
      "bundles or cache files instead of the usual ones; with --keys: signed files of any kind");
  commands.push_back({check, [=] {
                        if (check->count("--keys") > 0)
                          return verify_signatures(*keys, *files, where->store_options(/*read_only=*/true));
                        where->caches.insert(where->caches.end(), files->begin(), files->end());
                        return verify_all(*where, *remake, *allowed);
                      }});
}

}  // namespace trigen::cli
