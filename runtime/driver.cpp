#include "runtime/driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "cache/lock.h"
#include "runtime/paths.h"

namespace trigen {

std::string kernel_driver_version(const std::string& base = "");  // machine.cpp

namespace {

using namespace cuda;

// CUDA 11.4, driver branch 470: the oldest that knows every entry of kRequired.
constexpr int kOldestCuda = 11040;

const char* const kDriverFiles[] = {
    "libcuda.so.1",  // the loader path, a library that is loaded already
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",  // Kubernetes device plugin on some hosts
    "/usr/lib/wsl/lib/libcuda.so.1",         // WSL 2
    "/run/opengl-driver/lib/libcuda.so.1",   // NixOS
};

// Entries of the driver that plans, the tuner and doctor cannot do without.
#define TRIGEN_REQUIRED_ENTRIES(X) \
  X(cuInit)                        \
  X(cuDriverGetVersion)            \
  X(cuGetErrorName)                \
  X(cuGetErrorString)              \
  X(cuDeviceGet)                   \
  X(cuDeviceGetCount)              \
  X(cuDeviceGetName)               \
  X(cuDeviceTotalMem)              \
  X(cuDeviceGetAttribute)          \
  X(cuDevicePrimaryCtxRetain)      \
  X(cuCtxGetCurrent)               \
  X(cuCtxPushCurrent)              \
  X(cuCtxPopCurrent)               \
  X(cuCtxGetDevice)                \
  X(cuCtxSynchronize)              \
  X(cuMemAlloc)                    \
  X(cuMemFree)                     \
  X(cuPointerGetAttributes)        \
  X(cuMemcpyHtoD)                  \
  X(cuMemcpyDtoH)                  \
  X(cuStreamGetCtx)                \
  X(cuStreamSynchronize)           \
  X(cuStreamIsCapturing)           \
  X(cuModuleLoadDataEx)            \
  X(cuModuleUnload)                \
  X(cuModuleGetFunction)           \
  X(cuFuncGetAttribute)            \
  X(cuFuncSetAttribute)            \
  X(cuLaunchKernel)

struct Outcome {
  std::unique_ptr<Driver> driver;
  DriverFinding finding;
};

}  // namespace

struct DriverLoader {
  static Outcome load(const std::string& path, const std::string& emulated_target);
};

namespace {

struct DriverTable {
  std::mutex mutex;
  std::map<std::string, Outcome> outcomes;  // by path; "" = the default search
};
DriverTable& table() {
  static DriverTable* const table = new DriverTable;  // never destroyed: drivers outlive static destructors
  return *table;
}

DriverFinding failed(DriverFinding finding, DriverState state, const std::string& text) {
  finding.state = state;
  finding.text = text + "; " + driver_advice(state, read_machine());
  return finding;
}

// libcuda.so.580.159.03 says its version in its own name.
std::string version_of_file(const std::string& path) {
  const std::string name = file_name(real_path(path));
  const llvm::StringRef prefix = "libcuda.so.";
  if (!llvm::StringRef(name).startswith(prefix) || name.size() < prefix.size() + 4) return "";
  return name.substr(prefix.size());
}

std::string path_of(void* handle, const std::string& otherwise) {
  void* symbol = ::dlsym(handle, "cuInit");
  Dl_info info{};
  if (symbol != nullptr && ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr) return info.dli_fname;
  return otherwise;
}

// The emulated device's own entries: options by text (0 = taken), and this thread's last failure in words.
using Configure = int (*)(const char*);
constexpr const char* kConfigure = "trigen_emulator_configure";
constexpr const char* kLastError = "trigen_emulator_last_error";

}  // namespace

std::string find_emulator() {
  for (const std::string& directory :
       {library_directory(), program_directory(), library_directory() + "/../lib",
        program_directory() + "/../lib", program_directory() + "/.."}) {
    const std::string path = directory + "/libtrigen_emulator.so";
    if (path_exists(path) && distrust_of_search(real_path(path)).empty()) return real_path(path);
  }
  return "";
}

namespace {

const Outcome& outcome_for(llvm::StringRef path, llvm::StringRef emulated_target = "") {
  std::string wanted = path.str(), target = emulated_target.str();
  if (wanted.empty() && target.empty()) wanted = environment("TRIGEN_DRIVER");
  if (llvm::StringRef(wanted).startswith("emulated:")) {
    target = wanted.substr(sizeof("emulated:") - 1);
    wanted.clear();
  }
  const std::string key = target.empty() ? wanted : "emulated:" + target;
  const std::lock_guard<std::mutex> lock(table().mutex);
  // One library holds one target: a second one would change the devices of the first.
  for (const auto& [other, outcome] : table().outcomes)
    if (!target.empty() && outcome.driver && other != key && llvm::StringRef(other).startswith("emulated:")) {
      Outcome& refused = table().outcomes[key];
      refused.finding.state = DriverState::kNoDevice;
      refused.finding.text = (llvm::Twine("no emulated:") + target + ": this process has " + other +
                              ", and holds one emulated target only")
                                 .str();
      return refused;
    }
  auto found = table().outcomes.find(key);
  if (found == table().outcomes.end())
    found = table().outcomes.emplace(key, DriverLoader::load(wanted, target)).first;
  return found->second;
}

llvm::Expected<const Driver*> driver_of(const Outcome& outcome) {
  if (outcome.driver) return outcome.driver.get();
  return make_error(ErrorKind::kDevice, outcome.finding.text);
}

}  // namespace

Outcome DriverLoader::load(const std::string& path, const std::string& emulated_target) {
  Outcome outcome;
  DriverFinding& finding = outcome.finding;
  std::vector<std::string> files;
  if (!emulated_target.empty()) {
    const std::string file = find_emulator();
    files.push_back(file.empty() ? "libtrigen_emulator.so" : file);
  } else if (!path.empty()) {
    files.push_back(path);
  } else {
    files.assign(std::begin(kDriverFiles), std::end(kDriverFiles));
  }

  void* handle = nullptr;
  std::string unusable;  // a file that exists and does not load
  for (const std::string& file : files) {
    finding.tried.push_back(file);
    if (path.empty() && file[0] == '/' && path_exists(file)) {
      if (const std::string reason = distrust_of_search(real_path(file)); !reason.empty()) {
        if (unusable.empty())
          unusable = (file + llvm::Twine(" is not taken, ") + reason + "; name it in TRIGEN_DRIVER").str();
        continue;
      }
    }
    // RTLD_GLOBAL would offer its cu* names to everything that is loaded later, the emulated ones too.
    handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    const char* reason = ::dlerror();
    if (unusable.empty() && (path_exists(file) || !path.empty() || !emulated_target.empty()))
      unusable = reason == nullptr ? file : reason;
  }
  if (handle == nullptr) {
    if (!emulated_target.empty()) {
      finding.state = DriverState::kNoLibrary;
      const std::string library = library_directory(), program = program_directory();
      finding.text =
          "no emulated device: libtrigen_emulator.so was looked for in " + library +
          (program == library ? "" : ", " + program) + " and on the loader path (" + unusable +
          "); name its folder, an installation's lib, in LD_LIBRARY_PATH, or install trigen with it";
      return outcome;
    }
    if (!unusable.empty()) {
      const std::string named =
          environment("TRIGEN_DRIVER") == path && !path.empty() ? "TRIGEN_DRIVER=" + path : "driver library";
      outcome.finding = failed(
          finding, path.empty() || path_exists(path) ? DriverState::kUnusable : DriverState::kNoLibrary,
          named + " does not load: " + unusable);
      return outcome;
    }
    const MachineFacts machine = read_machine();
    const bool closed_container = machine.container && !machine.device_nodes;
    outcome.finding =
        closed_container
            ? failed(finding, DriverState::kContainerNoGpu,
                     "no NVIDIA driver in this container: neither libcuda.so.1 nor /dev/nvidia* is here")
            : failed(finding, DriverState::kNoLibrary, "no NVIDIA driver here: libcuda.so.1 was not found");
    return outcome;
  }
  finding.path = path_of(handle, files.size() == 1 ? files[0] : finding.tried.back());

  auto* emulator_error = reinterpret_cast<const char* (*)()>(::dlsym(handle, kLastError));
  if (auto* configure = reinterpret_cast<Configure>(::dlsym(handle, kConfigure))) {
    finding.emulated = true;
    if (!emulated_target.empty() && configure(("target=" + emulated_target).c_str()) != 0) {
      finding.state = DriverState::kNoDevice;
      finding.text = "no emulated:" + emulated_target + ": " +
                     (emulator_error == nullptr ? "refused" : emulator_error());
      return outcome;
    }
  } else if (!emulated_target.empty()) {
    outcome.finding =
        failed(finding, DriverState::kUnusable, finding.path + " is not trigen's emulated device");
    return outcome;
  }

  auto driver = std::make_unique<Driver>();
  DriverApi& api = driver->api_;
#define TRIGEN_CUDA_LOOK_UP(name, symbol, parameters) \
  api.name = reinterpret_cast<fn::name*>(::dlsym(handle, #symbol));
  TRIGEN_CUDA_ENTRIES(TRIGEN_CUDA_LOOK_UP)
#undef TRIGEN_CUDA_LOOK_UP
  api.cuFuncLoad = reinterpret_cast<CUresult (*)(CUfunction)>(::dlsym(handle, "cuFuncLoad"));
  std::string missing;
#define TRIGEN_CHECK_ENTRY(name) \
  if (api.name == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  TRIGEN_REQUIRED_ENTRIES(TRIGEN_CHECK_ENTRY)
#undef TRIGEN_CHECK_ENTRY
  if (!missing.empty()) {
    outcome.finding = failed(finding, DriverState::kUnusable, finding.path + " lacks entries: " + missing);
    return outcome;
  }

  api.cuDriverGetVersion(&finding.cuda_version);
  finding.version = finding.emulated ? "emulated" : version_of_file(finding.path);
  if (finding.version.empty()) finding.version = kernel_driver_version();
  if (finding.version.empty())
    finding.version = "cuda " + std::to_string(finding.cuda_version / 1000) + "." +
                      std::to_string(finding.cuda_version % 1000 / 10);
  const CUresult result = api.cuInit(0);
  if (result == CUDA_SUCCESS) api.cuDeviceGetCount(&finding.device_count);
  // A library of an old branch cannot report every error by name: look at the version first.
  if (finding.cuda_version > 0 && finding.cuda_version < kOldestCuda) {
    outcome.finding =
        failed(finding, DriverState::kTooOld,
               "driver " + finding.version + " serves CUDA " + std::to_string(finding.cuda_version / 1000) +
                   "." + std::to_string(finding.cuda_version % 1000 / 10) + ", 11.4 is needed");
    return outcome;
  }
  if (result != CUDA_SUCCESS || finding.device_count == 0) {
    const char* name = nullptr;
    api.cuGetErrorName(result, &name);
    const std::string found = finding.path + " (" + finding.version + "): cuInit: " +
                              (name == nullptr ? "error " + std::to_string(result) : std::string(name));
    if (finding.emulated && emulator_error != nullptr) {  // no GPU or kernel module is at fault
      finding.state = DriverState::kBroken;
      finding.text = found + ": " + emulator_error();
      outcome.finding = finding;
      return outcome;
    }
    const MachineFacts machine = read_machine();
    DriverState state = DriverState::kBroken;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NO_DEVICE)
      state =
          machine.container && !machine.device_nodes ? DriverState::kContainerNoGpu : DriverState::kNoDevice;
    if (result == CUDA_ERROR_STUB_LIBRARY) state = DriverState::kUnusable;
    if (result == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH || result == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)
      state = DriverState::kMismatch;
    outcome.finding =
        failed(finding, state, result == CUDA_SUCCESS ? finding.path + " shows no device" : found);
    return outcome;
  }
  driver->path_ = finding.path;
  driver->version_ = finding.version;
  driver->cuda_version_ = finding.cuda_version;
  driver->device_count_ = finding.device_count;
  driver->emulated_ = finding.emulated;
  driver->last_error_ = emulator_error;
  finding.state = DriverState::kReady;
  outcome.driver = std::move(driver);
  cache::be_first_before_fork();
  return outcome;
}

llvm::Expected<const Driver*> Driver::load(llvm::StringRef path) { return driver_of(outcome_for(path)); }

llvm::Expected<const Driver*> Driver::load_emulated(llvm::StringRef target) {
  if (target.empty())
    return make_error(ErrorKind::kBadRequest, "'emulated:' names no target; write emulated:sm_70");
  return driver_of(outcome_for("", target));
}

llvm::Error Driver::check(CUresult result, llvm::StringRef call, llvm::StringRef context) const {
  if (result == CUDA_SUCCESS) return llvm::Error::success();
  const char *name = nullptr, *text = nullptr;
  api_.cuGetErrorName(result, &name);
  api_.cuGetErrorString(result, &text);
  std::string message =
      call.str() + ": " + (name == nullptr ? "error " + std::to_string(result) : std::string(name));
  if (text != nullptr) message += std::string(" (") + text + ")";
  const char* words = last_error_ == nullptr ? nullptr : last_error_();
  if (words != nullptr && *words != '\0') message += std::string(": ") + words;
  if (!context.empty()) message += "; " + context.str();
  return make_error(ErrorKind::kDevice, message);
}

DriverFinding probe_driver(llvm::StringRef path) { return outcome_for(path).finding; }

}  // namespace trigen
