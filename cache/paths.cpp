// Which files are layers, in which order.
#include <dirent.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cache/environment.h"
#include "cache/filesystem.h"
#include "cache/layer.h"
#include "cache/store.h"

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

std::vector<std::string> system_paths() {
  std::vector<std::string> paths;
  if (DIR* folder = ::opendir(kSystemFolder)) {
    while (const dirent* entry = ::readdir(folder)) {
      const llvm::StringRef name = entry->d_name;
      if (name.endswith(".db") && !name.startswith("."))
        paths.push_back(std::string(kSystemFolder) + "/" + name.str());
    }
    ::closedir(folder);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<LayerPlan> plan_layers(const std::vector<std::string>& named) {
  std::vector<LayerPlan> plan;
  auto add = [&plan](const std::string& path, bool user, bool by_default) {
    const std::string resolved = resolve(path);
    for (const LayerPlan& there : plan)
      if (there.path == resolved) return;
    plan.push_back({resolved, user, by_default});
  };
  if (!named.empty()) {
    for (const std::string& path : named) add(path, plan.empty(), false);
    return plan;
  }
  if (std::string file = environment("TRIGEN_CACHE"); !file.empty()) add(file, true, false);
  if (std::string file = user_path(); !file.empty()) add(file, plan.empty(), true);
  for (const std::string& file : system_paths()) add(file, false, true);
  return plan;
}

}  // namespace cache

std::vector<std::string> default_layers() {
  std::vector<std::string> paths;
  for (const cache::LayerPlan& layer : cache::plan_layers({})) paths.push_back(layer.path);
  return paths;
}

}  // namespace trigen
