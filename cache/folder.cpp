#include "cache/folder.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "cache/host.h"
#include "cache/trust.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

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

// A missing home folder (a container's uid) is no fault where nothing would be stored in it anyway.
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

bool is_bundle(llvm::StringRef path) { return path.endswith(".trigen"); }

std::vector<std::string> layers_in(const std::string& folder, std::error_code& error) {
  std::vector<std::string> paths;
  // NFS lists what another machine renamed meanwhile twice or not at all: the next look has it.
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name[0] != '.' && (is_bundle(name) || llvm::StringRef(name).endswith(".db")))
      paths.push_back(folder + "/" + name);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

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
  std::error_code ignored;  // of a folder that is not there or may not be read: it has no layers
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
      for (const std::string& file : layers_in(spool->shared, ignored))
        plan.push_back({file, false, true, true});
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
    const std::vector<std::string> inside =
        is_folder(path) ? layers_in(path, ignored) : std::vector<std::string>();
    for (const std::string& file : inside) add(file, false, false);
    if (inside.empty()) add(path, !is_folder(path), false);
  }
  if (std::string file = user_path(); !file.empty()) add(file, true, true);
  std::vector<std::string> shipped = prefixes_of(code_folder());
  for (std::string& prefix : shipped) prefix += "/share/trigen";
  shipped.emplace_back(kSystemFolder);
  for (const std::string& folder : shipped)
    for (const std::string& file : layers_in(folder, ignored)) add(file, false, true);
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

namespace trigen::cache {
namespace {

// Whether trigen's folder below this one is there and ours, or can be made: in /tmp somebody else may have
// made it first.
bool serves(const std::string& place, const std::string& folder) {
  struct stat facts = {};
  if (place.empty() || place[0] != '/' || !network_filesystem(existing_folder(place)).empty()) return false;
  if (::lstat(folder.c_str(), &facts) == 0)
    return S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() && (facts.st_mode & 022) == 0;
  return ::access(existing_folder(place).c_str(), W_OK | X_OK) == 0;
}

// The name of this spool among those of all nodes and containers, whose host names and machine ids may be equal:
// random, kept beside it. "" when it cannot be.
std::string identity(const std::string& local) {
  const std::string path = local + ".id";
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor >= 0) {
    std::random_device random;
    const std::string fresh = llvm::utohexstr((uint64_t{random()} << 32) | random(), /*LowerCase=*/true);
    const bool whole = ::write(descriptor, fresh.data(), fresh.size()) == static_cast<ssize_t>(fresh.size());
    ::close(descriptor);
    if (!whole) ::unlink(path.c_str());
  }
  std::ifstream file(path);
  std::string id;
  file >> id;
  return llvm::all_of(id, llvm::isHexDigit) ? id : std::string();
}

std::string host_name() {
  std::array<char, 65> name = {};
  std::string text;
  if (::gethostname(name.data(), name.size() - 1) == 0)
    for (const char* c = name.data(); *c != '\0'; ++c) text += llvm::isAlnum(*c) ? *c : '-';
  return text.empty() ? "node" : text;
}

}  // namespace

std::optional<Spool> spool_for(const std::string& layer) {
  const std::string named = environment("TRIGEN_SPOOL");
  if (!named.empty() && named[0] != '/') return std::nullopt;
  if (network_filesystem(existing_folder(folder_of(layer))).empty()) return std::nullopt;
  const std::string name = sha256_of(layer).substr(0, 16);
  for (const std::string& place :
       {named, environment("TMPDIR"), std::string("/var/tmp"), std::string("/tmp")}) {
    const std::string folder = place + "/trigen-" + std::to_string(::geteuid());
    if (serves(place, folder)) return Spool{(llvm::Twine(folder) + "/" + name + ".db").str(), layer + ".d"};
  }
  return std::nullopt;
}

std::string publish(const Spool& spool, const std::string& image) {
  const std::string problem = "'" + spool.shared + "': ";
  if (std::string reason = distrust_of_folder(spool.shared, FilePart::kLayer); !reason.empty())
    return problem + reason;
  if (const int error = make_folders(spool.shared)) return problem + errno_text(error);
  const std::string id = identity(spool.local);
  if (id.empty()) return "'" + spool.local + ".id' cannot be written or read";
  const std::string path = spool.shared + "/" + host_name() + "-" + id + ".trigen";
  std::ifstream there(path, std::ios::binary);
  if (std::string(std::istreambuf_iterator<char>(there), {}) == image) {
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // its node is alive (cache/upkeep.h)
    return {};
  }
  // A stale handle is of a file or folder that another node replaced: the second try looks it up anew.
  int error = write_whole_file(path, image, 0600);
  if (error == ESTALE) error = write_whole_file(path, image, 0600);
  return error == 0 ? std::string() : "'" + path + "': " + errno_text(error);
}

namespace {

// 65536 slots of two bytes, little endian: days since 1970 until the year 2149. A sparse file.
constexpr unsigned long kOverlay = 0x794c7630;  // statfs(2): to open a file for writing there copies it up
constexpr off_t kBytes = off_t{65536} * 2;

off_t slot_of(const std::string& key) {
  unsigned slot = 0;
  return llvm::StringRef(key).take_front(4).getAsInteger(16, slot) ? 0 : static_cast<off_t>(slot) * 2;
}

// -1 where it is not there or not ours; never waits for a FIFO's other end.
int open_usage(const std::string& layer, int flags) {
  const int descriptor = ::open((layer + ".used").c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (descriptor < 0) return -1;
  if (distrust_of_file(descriptor, FilePart::kBeside).empty()) return descriptor;
  ::close(descriptor);
  return -1;
}

int read_slot(int descriptor, off_t at) {
  unsigned char bytes[2] = {};
  return ::pread(descriptor, bytes, sizeof bytes, at) == sizeof bytes ? bytes[0] | bytes[1] << 8 : 0;
}

int today() { return static_cast<int>(std::time(nullptr) / 86400); }

}  // namespace

void begin_usage(const std::string& layer) {
  if (::access((layer + ".used").c_str(), F_OK) == 0) return;
  const int descriptor = open_usage(layer, O_RDWR | O_CREAT);
  if (descriptor < 0) return;
  if (::ftruncate(descriptor, kBytes) != 0) ::unlink((layer + ".used").c_str());
  ::close(descriptor);
}

void note_use(const std::string& layer, const std::string& key) {
  const int day = today();
  int descriptor = open_usage(layer, O_RDONLY);
  if (descriptor < 0) return;
  struct statfs facts = {};
  const bool noted = day <= 0 || day >= 65536 || read_slot(descriptor, slot_of(key)) == day ||
                     ::fstatfs(descriptor, &facts) != 0 ||
                     facts.f_type == static_cast<decltype(facts.f_type)>(kOverlay);
  ::close(descriptor);
  if (noted || (descriptor = open_usage(layer, O_RDWR)) < 0) return;
  const unsigned char bytes[2] = {static_cast<unsigned char>(day), static_cast<unsigned char>(day >> 8)};
  (void)!::pwrite(descriptor, bytes, sizeof bytes, slot_of(key));
  ::close(descriptor);
}

int last_use(const std::string& layer, const std::string& key) {
  const int descriptor = open_usage(layer, O_RDONLY);
  if (descriptor < 0) return 0;
  const int day = read_slot(descriptor, slot_of(key));
  ::close(descriptor);
  return day;
}

}  // namespace trigen::cache
