// trigen cache: looks into cache files and makes them.
#include "cli/cache.h"

#include <ctime>

#include "cache/host.h"
#include "generator/names.h"
#include "generator/target.h"

namespace trigen::cli {

std::string when(int64_t seconds) {
  if (seconds == 0) return "-";
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc);
  return text;
}

std::map<std::string, std::string> made_by() { return {{"made_by", "trigen " TRIGEN_VERSION_TEXT}}; }

llvm::Expected<int64_t> making_date() {
  const std::string text = environment("SOURCE_DATE_EPOCH");
  if (text.empty()) return std::time(nullptr);
  int64_t named = 0;
  if (llvm::StringRef(text).getAsInteger(10, named) || named < 0 || named > latest_date())
    return make_error(ErrorKind::kBadRequest,
                      "SOURCE_DATE_EPOCH is " + trigen::quoted(text) +
                          "; allowed: seconds since 1970, a day ahead of this machine's "
                          "clock at most; correct or unset it");
  return named;
}

const char* name_of(Provenance provenance) {
  return provenance == Provenance::kMeasured ? "measured" : "predicted";
}

int health(const std::vector<LayerInfo>& layers) {
  int code = kDone;
  for (const LayerInfo& layer : layers) {
    if (layer.problem.empty()) continue;
    remark("error: " + layer.problem);
    code = kFailure;
  }
  return code;
}

llvm::Expected<std::vector<std::string>> parse_archs(const std::vector<std::string>& texts) {
  std::vector<std::string> archs;
  for (const std::string& text : texts) {
    llvm::SmallVector<llvm::StringRef, 8> names;
    llvm::StringRef(text).split(names, ',', -1, /*KeepEmpty=*/false);
    for (llvm::StringRef name : names) {
      auto target = find_target(name);
      if (!target) return target.takeError();
      if (std::find(archs.begin(), archs.end(), name) == archs.end()) archs.push_back(name.str());
    }
  }
  return archs;
}

void add_cache(CLI::App& app, Commands& commands) {
  CLI::App* cache = app.add_subcommand("cache", "look into cache files; make, merge and check bundles")
                        ->group(kMachineGroup);
  cache->require_subcommand(1);
  add_cache_list(*cache, commands);
  add_cache_show(*cache, commands);
  add_cache_path(*cache, commands);
  add_cache_coverage(*cache, commands);
  add_cache_status(*cache, commands);
  add_cache_diff(*cache, commands);
  add_cache_export(*cache, commands);
  add_cache_import(*cache, commands);
  add_cache_merge(*cache, commands);
  add_cache_verify(*cache, commands);
  add_cache_trust(*cache, commands);
  add_cache_upkeep(*cache, commands);
}

}  // namespace trigen::cli
