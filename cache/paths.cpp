// Which files are layers, in which order.
#include <dirent.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cache/environment.h"
#include "cache/filesystem.h"
#include "cache/layer.h"
#include "cache/spool.h"
#include "cache/store.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace trigen {
namespace cache {
namespace {

constexpr char kSystemFolder[] = "/usr/share/trigen";

// Absolute, and through symbolic links as far as it exists: SQLite and the lock file must agree on the place.
std::string resolve(const std::string& path) {
  std::string absolute = path;
  if (!path.empty() && path[0] != '/') {
    char here[PATH_MAX];
    if (::getcwd(here, sizeof here) != nullptr) absolute = std::string(here) + "/" + path;
  }
  char real[PATH_MAX];
  if (::realpath(absolute.c_str(), real) != nullptr) return real;
  const std::string there = existing_folder(folder_of(absolute));
  if (::realpath(there.c_str(), real) == nullptr) return absolute;
  const std::string rest = absolute.substr(std::min(absolute.size(), there.size()));
  return std::filesystem::path(std::string(real) + "/" + rest).lexically_normal().string();
}

std::string home() {
  if (std::string named = environment("HOME"); !named.empty() && named[0] == '/') return named;
  // A uid without an entry (containers) has no home, and no user layer then.
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> buffer(16 << 10);
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return {};
  return entry.pw_dir != nullptr && entry.pw_dir[0] == '/' ? entry.pw_dir : std::string();
}

std::string user_path() {
  // The XDG base directory specification: relative values are invalid and to be ignored.
  if (std::string named = environment("XDG_CACHE_HOME"); !named.empty() && named[0] == '/')
    return named + "/trigen/cache.db";
  const std::string folder = home();
  return folder.empty() ? std::string() : folder + "/.cache/trigen/cache.db";
}

// The layers that lie in a folder: bundles and cache files, by name.
std::vector<std::string> layers_in(const std::string& folder) {
  std::vector<std::string> paths;
  if (DIR* open = ::opendir(folder.c_str())) {
    while (const dirent* entry = ::readdir(open)) {
      const llvm::StringRef name = entry->d_name;
      if ((name.endswith(".db") || name.endswith(".trigen")) && !name.startswith("."))
        paths.push_back(folder + "/" + name.str());
    }
    ::closedir(open);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// A home that nobody made (a container's uid) is no fault where nothing would be stored in it anyway.
bool is_unusable(const std::string& path) {
  return ::access(path.c_str(), F_OK) != 0 &&
         ::access(existing_folder(folder_of(path)).c_str(), W_OK | X_OK) != 0;
}

bool is_folder(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// "a:b": empty parts name nothing.
std::vector<std::string> split_list(llvm::StringRef list) {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  list.split(parts, ':', -1, /*KeepEmpty=*/false);
  return {parts.begin(), parts.end()};
}

}  // namespace

std::vector<std::string> prefixes_of(llvm::StringRef folder) {
  std::vector<std::string> prefixes;
  for (std::string at = folder.str(); at.size() > 1; at = folder_of(at)) {
    const llvm::StringRef name = llvm::StringRef(at).drop_front(at.rfind('/') + 1);
    if (name == "lib" || name == "lib32" || name == "lib64" || name == "bin")
      prefixes.push_back(folder_of(at) == "/" ? "" : folder_of(at));
  }
  return prefixes;
}

LayerPlan plan_reading(const std::string& path) {
  LayerPlan plan{resolve(path)};
  plan.own = !is_bundle(plan.path);
  plan.unlocked = !network_filesystem(existing_folder(folder_of(plan.path))).empty();
  return plan;
}

std::vector<LayerPlan> plan_layers(const std::vector<std::string>& named) {
  std::vector<LayerPlan> plan;
  bool user = false;
  const auto add = [&](const std::string& path, bool writable, bool by_default) {
    const std::string resolved = resolve(path);
    for (const LayerPlan& there : plan)
      if (there.path == resolved) return;
    const bool ours = writable && !user && !is_bundle(resolved);
    user = user || ours;
    LayerPlan layer{resolved, ours, by_default, ours || (writable && by_default)};
    if (const std::optional<Spool> spool = ours ? spool_for(resolved) : std::nullopt) {
      LayerPlan local{spool->local, true, true, true};
      local.stands_for = resolved;
      plan.push_back(local);
      for (const std::string& file : layers_in(spool->shared)) plan.push_back({file, false, true, true});
      layer.user = false;
      layer.unlocked = true;
    }
    plan.push_back(layer);
  };
  if (is_no_cache(named)) return plan;
  if (!named.empty()) {
    for (const std::string& path : named) add(path, true, false);
    return plan;
  }
  for (const std::string& path : split_list(environment("TRIGEN_CACHE"))) {
    const std::vector<std::string> inside = is_folder(path) ? layers_in(path) : std::vector<std::string>();
    for (const std::string& file : inside) add(file, false, false);
    if (inside.empty()) add(path, !is_folder(path), false);
  }
  if (std::string file = user_path(); !file.empty()) add(file, true, true);
  std::vector<std::string> shipped = prefixes_of(code_folder());
  for (std::string& prefix : shipped) prefix += "/share/trigen";
  shipped.emplace_back(kSystemFolder);
  for (const std::string& folder : shipped)
    for (const std::string& file : layers_in(folder)) add(file, false, true);
  if (plan.size() > 1 && environment_flag("TRIGEN_NO_JIT"))
    llvm::erase_if(plan, [](const LayerPlan& layer) {
      return layer.user && layer.by_default && is_unusable(layer.path);
    });
  return plan;
}

}  // namespace cache

bool is_no_cache(const std::vector<std::string>& layers) {
  constexpr llvm::StringLiteral kNone = "none";
  return layers.empty() ? environment("TRIGEN_CACHE") == kNone : layers.size() == 1 && layers[0] == kNone;
}

std::vector<std::string> default_layers() {
  std::vector<std::string> paths;
  for (const cache::LayerPlan& layer : cache::plan_layers({})) paths.push_back(layer.path);
  return paths;
}

}  // namespace trigen
