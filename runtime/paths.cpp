#include "runtime/paths.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cache/host.h"
#include "cache/trust.h"
#include "llvm/ADT/SmallVector.h"

namespace trigen {

bool path_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string real_path(const std::string& path) {
  char* found = ::realpath(path.c_str(), nullptr);
  if (found == nullptr) return "";
  std::string result = found;
  std::free(found);
  return result;
}

std::string parent_path(llvm::StringRef path) {
  const size_t slash = path.rfind('/');
  if (slash == llvm::StringRef::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash).str();
}

std::string file_name(llvm::StringRef path) { return path.substr(path.rfind('/') + 1).str(); }

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  if (DIR* directory = ::opendir(path.c_str())) {
    while (const dirent* entry = ::readdir(directory)) {
      const llvm::StringRef name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name.str());
    }
    ::closedir(directory);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const std::string& library_directory() {
  const std::string& folder = cache::code_folder();
  return folder.empty() ? program_directory() : folder;
}

const std::string& program_directory() {
  static const std::string* const directory = [] {
    const std::string path = real_path("/proc/self/exe");
    return new std::string(path.empty() ? "." : parent_path(path));
  }();
  return *directory;
}

std::vector<std::string> split_path_list(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 8> parts;
  text.split(parts, ':', -1, false);
  std::vector<std::string> result;
  for (llvm::StringRef part : parts) result.push_back(part.str());
  return result;
}

std::string distrust_of_search(const std::string& path) {
  return cache::distrust_of_library(path, {library_directory(), program_directory()});
}

}  // namespace trigen
