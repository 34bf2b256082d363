// NVRTC, NVIDIA's run-time compiler: every copy found on this machine, several versions side by side, chosen
// by target.
#pragma once

#include <string>
#include <vector>

#include "generator/error.h"
#include "generator/target.h"

namespace trigen {

// A library file that may be an NVRTC, not opened yet.
struct NvrtcFile {
  std::string path;    // absolute, links resolved (one entry per real file)
  std::string origin;  // why it was looked at: "TRIGEN_NVRTC", "loaded in this process", "beside libtrigen",
                       // "python wheel", ...
  int major = 0, minor = 0;   // from the file names; minor -1 when they do not say
  std::string distrust = {};  // why it is not opened (somebody else's place), "" when it may be
};

struct NvrtcSearch {
  // Empty: the real environment. Tests point these at directories of their own.
  bool use_environment =
      true;  // TRIGEN_NVRTC, VIRTUAL_ENV, CONDA_PREFIX, CUDA_HOME, CUDA_PATH, LD_LIBRARY_PATH, HOME
  bool use_process = true;            // libraries loaded already
  std::vector<std::string> beside;    // directories that may hold nvrtc/ and site-packages above them
  std::vector<std::string> sites;     // site-packages directories
  std::vector<std::string> toolkits;  // toolkit roots
  bool use_system = true;             // /usr/local/cuda*, system site-packages, the loader path
};
// Everything, beside this library and this program too.
NvrtcSearch default_nvrtc_search();
// In search order; without duplicates. With TRIGEN_NVRTC set (files, or directories that hold one, separated
// by ':'): those alone.
std::vector<NvrtcFile> find_nvrtc(const NvrtcSearch& search = default_nvrtc_search());
// The site-packages folders that it looks through, in that order; a folder may come twice.
std::vector<std::string> python_sites(const NvrtcSearch& search = default_nvrtc_search());

class Nvrtc {
 public:
  // Opens one library, once per file and process; never unloaded. The builtins library is opened first by its
  // absolute path, because NVRTC opens it by name. Thread safe.
  static llvm::Expected<const Nvrtc*> load(const NvrtcFile& file);
  // The newest one on this machine that can make `target`, among find_nvrtc(). Files are opened newest first
  // and only until one fits. `newest_cuda` (12090; 0 = any): one that is no newer than the driver is taken
  // first, since a driver may refuse what a newer release made. Error: no compiler, with a list of what was
  // found, what each can make, and what to install.
  static llvm::Expected<const Nvrtc*> choose(const Target& target, int newest_cuda = 0);
  // Did this process open any NVRTC through this class?
  static bool any_loaded();

  const NvrtcFile& file() const { return file_; }
  const std::string& version() const { return version_; }   // "12.9.86"
  std::string name() const { return "nvrtc " + version_; }  // BinaryKey::compiler
  int major() const { return major_; }
  int minor() const { return minor_; }
  const std::vector<int>& archs() const { return archs_; }  // 70, 75, ...
  bool makes(const Target& target) const;

  // The C entries. Programs are independent: one per thread needs no lock.
  struct Api {
    int (*nvrtcVersion)(int*, int*) = nullptr;
    int (*nvrtcGetNumSupportedArchs)(int*) = nullptr;
    int (*nvrtcGetSupportedArchs)(int*) = nullptr;
    const char* (*nvrtcGetErrorString)(int) = nullptr;
    int (*nvrtcCreateProgram)(void**, const char*, const char*, int, const char* const*,
                              const char* const*) = nullptr;
    int (*nvrtcDestroyProgram)(void**) = nullptr;
    int (*nvrtcCompileProgram)(void*, int, const char* const*) = nullptr;
    int (*nvrtcGetPTXSize)(void*, size_t*) = nullptr;
    int (*nvrtcGetPTX)(void*, char*) = nullptr;
    int (*nvrtcGetCUBINSize)(void*, size_t*) = nullptr;
    int (*nvrtcGetCUBIN)(void*, char*) = nullptr;
    int (*nvrtcGetProgramLogSize)(void*, size_t*) = nullptr;
    int (*nvrtcGetProgramLog)(void*, char*) = nullptr;
    int (*nvrtcSetFlowCallback)(void*, int (*)(void*, void*), void*) = nullptr;  // 12.8+, may be null
  };
  const Api& api() const { return api_; }

 private:
  friend struct NvrtcTable;
  NvrtcFile file_;
  std::string version_;
  int major_ = 0, minor_ = 0;
  std::vector<int> archs_;
  Api api_;
};

// Every NVRTC of find_nvrtc(), opened; for doctor and for messages.
struct NvrtcFinding {
  NvrtcFile file;
  std::string version;  // empty when it did not load
  std::vector<int> archs;
  std::string problem;  // why it did not load
  bool makes(const Target& target) const;
};
// The order in which a compiler is chosen, larger first: the newest; those that are newer than the driver
// (`newest_cuda`, 0: any) after all others, the oldest of them first.
int preference(int major, int minor, int newest_cuda);
std::vector<NvrtcFinding> list_nvrtc(const NvrtcSearch& search = default_nvrtc_search());
// "12.9.86 (/path): sm_50 ... sm_120" lines.
std::string describe(const std::vector<NvrtcFinding>& findings);

}  // namespace trigen
