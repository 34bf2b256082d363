#include "cache/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>

#include "cache/environment.h"
#include "cache/filesystem.h"
#include "cache/trust.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/SHA256.h"

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

// Of this spool among those of all nodes and containers, whose host names and machine ids may be equal: random,
// kept beside it. "" when it cannot be.
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
  const std::string named = environment(kSpoolVariable);
  if (!named.empty() && named[0] != '/') return std::nullopt;
  if (network_filesystem(existing_folder(folder_of(layer))).empty()) return std::nullopt;
  const auto hash = llvm::SHA256::hash(llvm::arrayRefFromStringRef(layer));
  const std::string name = llvm::toHex(llvm::ArrayRef<uint8_t>(hash), /*LowerCase=*/true).substr(0, 16);
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

}  // namespace trigen::cache
