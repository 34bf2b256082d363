#include "runtime/nvrtc.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "runtime/paths.h"

namespace trigen {
namespace {

constexpr int kOldestMajor = 11;  // 11.2 brought nvrtcGetCUBIN and nvrtcGetSupportedArchs

std::atomic<bool> any_opened{false};

std::string arch_list(const std::vector<int>& archs) {
  if (archs.empty()) return "nothing";
  std::string text;
  for (int arch : archs) text += (text.empty() ? "sm_" : " sm_") + std::to_string(arch);
  return text;
}

// The builtins beside the library, by absolute path: NVRTC opens "libnvrtc-builtins.so.12.9" by name only,
// which fails where that is not on the loader path; a library with that name that is open already satisfies
// it.
void open_builtins(const std::string& directory, int major, int minor) {
  const std::string suffix = ".so." + std::to_string(major) + "." + std::to_string(minor);
  for (const std::string& name : list_directory(directory)) {
    const llvm::StringRef text = name;
    if (text.startswith("libnvrtc-builtins") && !text.contains(".alt.") && text.contains(suffix))
      if (::dlopen((llvm::Twine(directory) + "/" + name).str().c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr)
        return;
  }
}

// "release 12.9, V12.9.86" stands in the PTX of every program; nvrtcVersion gives 12.9 only.
llvm::Expected<std::string> full_version(const Nvrtc::Api& api, int arch) {
  void* program = nullptr;
  const char* source = "extern \"C\" __global__ void version() {}";
  const std::string option = "--gpu-architecture=compute_" + std::to_string(arch);
  const char* options[] = {option.c_str()};
  int result = api.nvrtcCreateProgram(&program, source, "version.cu", 0, nullptr, nullptr);
  if (result == 0) result = api.nvrtcCompileProgram(program, 1, options);
  std::string ptx;
  size_t size = 0;
  if (result == 0) result = api.nvrtcGetPTXSize(program, &size);
  if (result == 0) {
    ptx.resize(size);
    result = api.nvrtcGetPTX(program, ptx.data());
  }
  if (program != nullptr) api.nvrtcDestroyProgram(&program);
  if (result != 0) return make_error(ErrorKind::kBuild, api.nvrtcGetErrorString(result));
  llvm::StringRef text = ptx;
  const size_t at = text.find(", V");
  if (at == llvm::StringRef::npos) return std::string();
  return text.substr(at + 3).take_while([](char c) { return c == '.' || (c >= '0' && c <= '9'); }).str();
}

}  // namespace

struct NvrtcTable {
  struct Entry {
    std::unique_ptr<Nvrtc> nvrtc;
    std::string problem;
  };
  std::mutex mutex;
  std::map<std::string, Entry> entries;        // by real path
  std::map<std::string, const Nvrtc*> chosen;  // by target and TRIGEN_NVRTC

  static NvrtcTable& get() {
    static NvrtcTable* const table = new NvrtcTable;
    return *table;
  }

  const Entry& load(const NvrtcFile& file) {
    const std::lock_guard<std::mutex> lock(mutex);
    // The same file may be named, too, and is trusted then.
    auto [found, fresh] = entries.try_emplace(file.path + (file.distrust.empty() ? "" : "\n"));
    if (fresh && !file.distrust.empty()) {
      found->second.problem = "not taken, " + file.distrust + "; name it in TRIGEN_NVRTC to take it";
    } else if (fresh) {
      auto nvrtc = open_apart(file);
      if (nvrtc)
        found->second.nvrtc = std::move(*nvrtc);
      else
        found->second.problem = take_error(nvrtc.takeError()).message;
    }
    return found->second;
  }

 private:
  // NVIDIA's wheels of NVRTC 12 have the RUNPATH "$ORIGIN:", whose empty part is the current folder: there the loader
  // looks for what they need, and for libcuda.so.1, which they open once, at the first compile. So both are done in a
  // thread whose current folder is its own, "/", and not the application's, which may be anybody's. Where the system has
  // no thread or forbids that (some containers), it is opened as by any other program.
  static llvm::Expected<std::unique_ptr<Nvrtc>> open_apart(const NvrtcFile& file) {
    std::optional<llvm::Expected<std::unique_ptr<Nvrtc>>> opened;
    std::exception_ptr thrown;
    const auto work = [&] {
      try {
        if (::unshare(CLONE_FS) != 0 || ::chdir("/") == 0) opened.emplace(open(file));
      } catch (...) {
        thrown = std::current_exception();
      }
    };
    try {
      std::thread(work).join();
    } catch (const std::system_error&) {  // no more threads
    }
    if (thrown) std::rethrow_exception(thrown);
    return opened ? std::move(*opened) : open(file);
  }
  static llvm::Expected<std::unique_ptr<Nvrtc>> open(const NvrtcFile& file) {
    any_opened = true;
    const std::string directory = parent_path(file.path);
    if (file.major > 0 && file.minor >= 0) open_builtins(directory, file.major, file.minor);
    void* handle = ::dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* reason = ::dlerror();
      llvm::StringRef text = reason == nullptr ? "does not load" : reason;
      text.consume_front(file.path + ": ");  // the caller names the file
      return make_error(ErrorKind::kBuild, text);
    }
    auto nvrtc = std::make_unique<Nvrtc>();
    nvrtc->file_ = file;
    Nvrtc::Api& api = nvrtc->api_;
    std::string missing;
    const auto look_up = [&](auto& entry, const char* name, bool required = true) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(::dlsym(handle, name));
      if (entry == nullptr && required) missing += (missing.empty() ? "" : ", ") + std::string(name);
    };
    look_up(api.nvrtcVersion, "nvrtcVersion");
    look_up(api.nvrtcGetNumSupportedArchs, "nvrtcGetNumSupportedArchs");
    look_up(api.nvrtcGetSupportedArchs, "nvrtcGetSupportedArchs");
    look_up(api.nvrtcGetErrorString, "nvrtcGetErrorString");
    look_up(api.nvrtcCreateProgram, "nvrtcCreateProgram");
    look_up(api.nvrtcDestroyProgram, "nvrtcDestroyProgram");
    look_up(api.nvrtcCompileProgram, "nvrtcCompileProgram");
    look_up(api.nvrtcGetPTXSize, "nvrtcGetPTXSize");
    look_up(api.nvrtcGetPTX, "nvrtcGetPTX");
    look_up(api.nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
    look_up(api.nvrtcGetCUBIN, "nvrtcGetCUBIN");
    look_up(api.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
    look_up(api.nvrtcGetProgramLog, "nvrtcGetProgramLog");
    look_up(api.nvrtcSetFlowCallback, "nvrtcSetFlowCallback", false);
    if (!missing.empty())
      return make_error(ErrorKind::kBuild, "lacks " + missing + "; NVRTC " + std::to_string(kOldestMajor) +
                                               ".2 or newer is needed");
    if (int result = api.nvrtcVersion(&nvrtc->major_, &nvrtc->minor_))
      return make_error(ErrorKind::kBuild, std::string("nvrtcVersion: ") + api.nvrtcGetErrorString(result));
    open_builtins(directory, nvrtc->major_, nvrtc->minor_);
    int count = 0;
    int result = api.nvrtcGetNumSupportedArchs(&count);
    if (result == 0 && count > 0) {
      nvrtc->archs_.resize(count);
      result = api.nvrtcGetSupportedArchs(nvrtc->archs_.data());
      std::sort(nvrtc->archs_.begin(), nvrtc->archs_.end());
    }
    if (result != 0 || count == 0)
      return make_error(ErrorKind::kBuild, "names no architecture that it can make");
    nvrtc->version_ = std::to_string(nvrtc->major_) + "." + std::to_string(nvrtc->minor_);
    auto full = full_version(api, nvrtc->archs_.back());
    if (!full)
      return make_error(ErrorKind::kBuild,
                        "version " + nvrtc->version_ + " cannot compile an empty kernel (" +
                            take_error(full.takeError()).message + "): libnvrtc-builtins.so." +
                            nvrtc->version_ + " must lie beside it");
    if (!full->empty()) nvrtc->version_ = *full;
    return nvrtc;
  }
};

bool Nvrtc::any_loaded() { return any_opened; }

llvm::Expected<const Nvrtc*> Nvrtc::load(const NvrtcFile& file) {
  const auto& entry = NvrtcTable::get().load(file);
  if (entry.nvrtc) return entry.nvrtc.get();
  return make_error(ErrorKind::kBuild, file.path + ": " + entry.problem);
}

namespace {
bool makes_target(const std::vector<int>& archs, int major, const Target& target) {
  if (std::find(archs.begin(), archs.end(), target.compute_capability) == archs.end()) return false;
  // Architecture-specific targets came with their own releases: sm_90a in 12.0, sm_100a and sm_120a in 12.8.
  // A release that lists an architecture knows its 'a' form too, except for 11.8 and sm_90a.
  return !target.name.endswith("a") || major >= 12;
}
}  // namespace

bool Nvrtc::makes(const Target& target) const { return makes_target(archs_, major_, target); }

bool NvrtcFinding::makes(const Target& target) const {
  return problem.empty() && makes_target(archs, file.major, target);
}

int preference(int major, int minor, int newest_cuda) {
  const int version = major * 1000 + std::max(0, minor) * 10;
  return newest_cuda > 0 && version > newest_cuda ? -version : version;
}

llvm::Expected<const Nvrtc*> Nvrtc::choose(const Target& target, int newest_cuda) {
  NvrtcTable& table = NvrtcTable::get();
  const std::string named = environment("TRIGEN_NVRTC");
  const std::string key = target.name.str() + "\n" + std::to_string(newest_cuda) + "\n" + named;
  {
    const std::lock_guard<std::mutex> lock(table.mutex);
    const auto found = table.chosen.find(key);
    if (found != table.chosen.end()) return found->second;
  }
  const NvrtcSearch search = default_nvrtc_search();
  std::vector<NvrtcFile> files = find_nvrtc(search);
  std::stable_sort(files.begin(), files.end(), [&](const NvrtcFile& a, const NvrtcFile& b) {
    return preference(a.major, a.minor, newest_cuda) > preference(b.major, b.minor, newest_cuda);
  });
  for (const NvrtcFile& file : files) {
    const auto& entry = table.load(file);
    if (!entry.nvrtc || !entry.nvrtc->makes(target)) continue;
    const std::lock_guard<std::mutex> lock(table.mutex);
    table.chosen[key] = entry.nvrtc.get();
    return entry.nvrtc.get();
  }

  // The last release that knows the target decides what to install.
  const bool volta = target.compute_capability < 75;
  const std::string install =
      "install NVRTC 12.9" + (volta ? " (the last with " + target.name.str() + ")" : std::string()) +
      ": the toolkit's package cuda-nvrtc-12-9, or pip install 'nvidia-cuda-nvrtc-cu12==12.9.*'";
  std::string text = "no compiler here makes " + target.name.str() + ": ";
  if (files.empty())
    text += named.empty() ? "no NVRTC was found (looked beside trigen, in python environments, toolkits and "
                            "the loader path)"
                          : "TRIGEN_NVRTC=" + named + " holds no libnvrtc.so";
  else
    text += "found\n" + describe(list_nvrtc(search));
  text += (files.empty() ? "; " : "next step: ") + install;
  text +=
      named.empty() ? ", or name one in TRIGEN_NVRTC" : ", or change TRIGEN_NVRTC, which excludes all others";
  return make_error(ErrorKind::kNoCompiler, text);
}

std::vector<NvrtcFinding> list_nvrtc(const NvrtcSearch& search) {
  std::vector<NvrtcFinding> findings;
  for (const NvrtcFile& file : find_nvrtc(search)) {
    const auto& entry = NvrtcTable::get().load(file);
    NvrtcFinding finding;
    finding.file = file;
    if (entry.nvrtc) {
      finding.file.major = entry.nvrtc->major();
      finding.file.minor = entry.nvrtc->minor();
      finding.version = entry.nvrtc->version();
      finding.archs = entry.nvrtc->archs();
    } else {
      finding.problem = entry.problem;
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::string describe(const std::vector<NvrtcFinding>& findings) {
  std::string text;
  for (const NvrtcFinding& finding : findings) {
    text += "  " + finding.file.path + " (" + finding.file.origin + "): ";
    text += finding.problem.empty() ? "nvrtc " + finding.version + ", makes " + arch_list(finding.archs)
                                    : finding.problem;
    text += "\n";
  }
  return text;
}

}  // namespace trigen
