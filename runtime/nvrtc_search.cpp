// Places that may hold NVRTC: wheels, toolkits, the loader path, beside this library. File names only; nothing is
// opened.
#include <link.h>

#include <fstream>
#include <set>

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include "runtime/nvrtc.h"
#include "runtime/paths.h"

namespace trigen {
namespace {

bool is_nvrtc_name(llvm::StringRef name) {
  // libnvrtc.so.12, libnvrtc.so.11.2, libnvrtc-672ee683.so.11.2 (bundled with PyTorch); not the builtins, the
  // .alt copy and the static archives.
  return name.startswith("libnvrtc") && name.contains(".so") && !name.contains("builtins") &&
         !name.contains(".alt.") && !name.endswith(".a");
}

// The numbers after ".so.": {12, 9} of "libnvrtc.so.12.9.86"; -1 where there is none.
std::pair<int, int> version_after_so(llvm::StringRef name) {
  const size_t at = name.find(".so.");
  if (at == llvm::StringRef::npos) return {-1, -1};
  llvm::SmallVector<llvm::StringRef, 4> parts;
  name.substr(at + 4).split(parts, '.');
  int numbers[2] = {-1, -1};
  for (size_t i = 0; i < parts.size() && i < 2; ++i)
    if (parts[i].getAsInteger(10, numbers[i])) numbers[i] = -1;
  return {numbers[0], numbers[1]};
}

std::string join(const std::string& directory, llvm::StringRef name) {
  return (llvm::Twine(directory) + "/" + name).str();
}

class Finder {
 public:
  void add_file(const std::string& path, const std::string& origin) {
    if (!named_ && (path.empty() || path[0] != '/')) return;  // of whatever folder somebody stands in
    const std::string real = real_path(path);
    if (real.empty() || is_directory(real) || !seen_.insert(real).second) return;
    NvrtcFile file;
    file.path = real;
    file.origin = origin;
    if (!named_) file.distrust = distrust_of_search(real);
    std::tie(file.major, file.minor) = version_after_so(file_name(real));
    // The builtins beside it carry the toolkit's version: libnvrtc.so.12 + libnvrtc-builtins.so.12.9.
    std::pair<int, int> builtins{-1, -1};
    for (const std::string& name : list_directory(parent_path(real)))
      if (llvm::StringRef(name).startswith("libnvrtc-builtins") && !llvm::StringRef(name).contains(".alt."))
        builtins = std::max(builtins, version_after_so(name));
    if (builtins.first == file.major && builtins.second > file.minor) file.minor = builtins.second;
    if (file.major < 0) std::tie(file.major, file.minor) = builtins;
    files_.push_back(file);
  }
  void add_directory(const std::string& directory, const std::string& origin) {
    if (llvm::StringRef(directory).endswith("/stubs")) return;
    for (const std::string& name : list_directory(directory))
      if (is_nvrtc_name(name)) add_file(join(directory, name), origin);
  }
  // A site-packages directory: NVIDIA's wheels, and what PyTorch brings itself.
  void add_site(const std::string& site, const std::string& origin) {
    sites_.push_back(site);
    add_directory(site + "/nvidia/cuda_nvrtc/lib", origin);
    for (const std::string& name : list_directory(site + "/nvidia"))
      if (llvm::StringRef(name).startswith("cu1"))
        add_directory(join(join(site + "/nvidia", name), "lib"), origin);
    add_directory(site + "/torch/lib", origin);
  }
  // Every python of a prefix: /usr, a virtual environment, a conda environment.
  void add_prefix(const std::string& prefix, const std::string& origin) {
    if (prefix.empty()) return;
    for (const char* lib : {"/lib", "/lib64", "/local/lib"})
      for (const std::string& name : list_directory(prefix + lib))
        if (llvm::StringRef(name).startswith("python3"))
          for (const char* kind : {"site-packages", "dist-packages"})
            add_site(join(join(prefix + lib, name), kind), origin);
  }
  void add_toolkit(const std::string& root, const std::string& origin) {
    for (const char* lib : {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"})
      add_directory(root + lib, origin);
  }
  // A folder that the user names or that lies beside trigen may be the library's own, a toolkit, or hold an
  // unpacked wheel.
  void add_folder(const std::string& folder, const std::string& origin) {
    add_directory(folder, origin);
    add_toolkit(folder, origin);
    add_site(folder, origin);
  }
  // Files added from here on were named by the user or are loaded already, chosen by no other user.
  void take_as_named(bool named) { named_ = named; }
  std::vector<NvrtcFile> take() { return std::move(files_); }
  const std::vector<std::string>& sites() const { return sites_; }

 private:
  std::vector<std::string> sites_;
  std::vector<NvrtcFile> files_;
  std::set<std::string> seen_;
  bool named_ = false;
};

// Directories of the loader's configuration, as far as plain lines name them.
std::vector<std::string> loader_directories() {
  std::vector<std::string> directories;
  for (const std::string& name : list_directory("/etc/ld.so.conf.d")) {
    std::ifstream file("/etc/ld.so.conf.d/" + name);
    for (std::string line; std::getline(file, line);) {
      const std::string directory = llvm::StringRef(line).split('#').first.trim().str();
      if (!directory.empty() && directory[0] == '/') directories.push_back(directory);
    }
  }
  for (const char* directory :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"})
    directories.push_back(directory);
  return directories;
}

int visit_object(struct dl_phdr_info* info, size_t, void* data) {
  if (info->dlpi_name != nullptr && is_nvrtc_name(file_name(info->dlpi_name)))
    static_cast<Finder*>(data)->add_file(info->dlpi_name, "loaded in this process");
  return 0;
}

}  // namespace

NvrtcSearch default_nvrtc_search() {
  NvrtcSearch search;
  search.beside = {library_directory(), program_directory()};
  return search;
}

namespace {

// Everywhere but where TRIGEN_NVRTC names.
void look_everywhere(const NvrtcSearch& search, Finder& finder) {
  const auto variable = [&](const char* name) {
    return search.use_environment ? environment(name) : std::string();
  };
  finder.take_as_named(true);
  if (search.use_process) ::dl_iterate_phdr(visit_object, &finder);
  finder.take_as_named(false);
  for (const std::string& directory : search.beside) {
    finder.add_folder(directory + "/nvrtc", "beside trigen");
    finder.add_folder(directory + "/../nvrtc", "beside trigen");
    finder.add_folder(directory + "/../lib/trigen/nvrtc", "beside trigen");
    // A wheel's library lies inside the site-packages that may hold NVIDIA's wheels too.
    for (std::string up = real_path(directory); up.size() > 1; up = parent_path(up)) {
      const std::string name = file_name(up);
      if (name == "site-packages" || name == "dist-packages") finder.add_site(up, "python wheel");
    }
    finder.add_prefix(parent_path(real_path(directory)), "python wheel");
  }
  for (const std::string& site : search.sites) finder.add_site(site, "python wheel");
  finder.add_prefix(variable("VIRTUAL_ENV"), "python wheel (VIRTUAL_ENV)");
  if (const std::string conda = variable("CONDA_PREFIX"); !conda.empty()) {
    finder.add_prefix(conda, "python wheel (CONDA_PREFIX)");
    finder.add_toolkit(conda, "conda package (CONDA_PREFIX)");
  }
  for (const std::string& directory : split_path_list(variable("PYTHONPATH")))
    finder.add_site(directory, "python wheel (PYTHONPATH)");
  if (const std::string base = variable("PYTHONUSERBASE"); !base.empty())
    finder.add_prefix(base, "python wheel (user)");
  else if (const std::string home = variable("HOME"); !home.empty())
    finder.add_prefix(home + "/.local", "python wheel (user)");
  if (search.use_environment) {
    for (const std::string& directory : split_path_list(environment("PATH")))
      if (path_exists(directory + "/python3"))
        finder.add_prefix(parent_path(directory), "python wheel (PATH)");
  }
  if (search.use_system) {
    finder.add_prefix("/usr", "python wheel (system)");
    finder.add_prefix("/usr/local", "python wheel (system)");
    finder.add_site("/usr/lib/python3/dist-packages", "python wheel (system)");
  }
  for (const std::string& root : search.toolkits) finder.add_toolkit(root, "toolkit");
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = variable(name); !root.empty())
      finder.add_toolkit(root, std::string("toolkit (") + name + ")");
  if (search.use_system) {
    for (const char* folder : {"/usr/local", "/opt"})
      for (const std::string& name : list_directory(folder))
        if (llvm::StringRef(name).startswith("cuda"))
          finder.add_toolkit(std::string(folder) + "/" + name, "toolkit");
  }
  for (const std::string& directory : split_path_list(variable("LD_LIBRARY_PATH"))) {
    finder.add_directory(directory, "LD_LIBRARY_PATH");
    finder.add_folder(directory + "/trigen/nvrtc", "LD_LIBRARY_PATH");  // a program with libtrigen.a
  }
  if (search.use_system)
    for (const std::string& directory : loader_directories()) finder.add_directory(directory, "loader path");
}

}  // namespace

std::vector<NvrtcFile> find_nvrtc(const NvrtcSearch& search) {
  Finder finder;
  const std::string named = search.use_environment ? environment("TRIGEN_NVRTC") : std::string();
  if (named.empty()) {
    look_everywhere(search, finder);
    return finder.take();
  }
  finder.take_as_named(true);
  for (const std::string& path : split_path_list(named))
    if (is_directory(path))
      finder.add_folder(path, "TRIGEN_NVRTC");
    else
      finder.add_file(path, "TRIGEN_NVRTC");
  return finder.take();
}

std::vector<std::string> python_sites(const NvrtcSearch& search) {
  Finder finder;
  look_everywhere(search, finder);
  return finder.sites();
}

}  // namespace trigen
