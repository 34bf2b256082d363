#include "runtime/doctor.h"

#include <algorithm>

#include "runtime/compile.h"
#include "runtime/paths.h"

namespace trigen {
namespace {

class Examination {
 public:
  explicit Examination(Findings& findings) : findings_(findings) {}

  void driver(llvm::StringRef path) {
    findings_.driver = probe_driver(path);
    const DriverFinding& driver = findings_.driver;
    if (driver.state == DriverState::kReady) {
      auto loaded = Driver::load(path);
      if (!loaded) {
        llvm::consumeError(loaded.takeError());
        return;
      }
      std::vector<std::string> problems;
      findings_.devices = list_devices(**loaded, &problems);
      for (const std::string& problem : problems)
        add(Severity::kError, "driver", problem,
            "check nvidia-smi, and the device's compute mode and health");
      for (const DeviceInfo& device : findings_.devices) {
        auto target = target_for_capability(device.major, device.minor);
        if (!target)
          add(Severity::kWarning, "device " + device.spec(),
              device.name + ": " + take_error(target.takeError()).message, "use another device");
      }
      return;
    }
    // Machines that only compile have no driver, and that is right.
    const bool absent = driver.state == DriverState::kNoLibrary ||
                        driver.state == DriverState::kContainerNoGpu ||
                        driver.state == DriverState::kNoDevice;
    std::string advice = driver_advice(driver.state, findings_.machine);
    std::string text = driver.text;
    if (!advice.empty() && llvm::StringRef(text).endswith("; " + advice))
      text.resize(text.size() - advice.size() - 2);
    if (absent) text += " (compiling, ranking and emulated devices work without one)";
    add(absent ? Severity::kWarning : Severity::kError, "driver", text, advice);
  }

  void compilers() {
    findings_.nvrtc = list_nvrtc();
    for (const NvrtcFinding& found : findings_.nvrtc)
      if (!found.problem.empty())
        add(Severity::kWarning, "nvrtc " + found.file.path, found.problem,
            "remove it, or name a working one in TRIGEN_NVRTC");
    std::string missing;
    for (const Target& target : targets()) {
      TargetFinding finding;
      finding.target = target.name.str();
      for (const NvrtcFinding& found : findings_.nvrtc) {
        if (!found.problem.empty()) continue;
        auto nvrtc = Nvrtc::load(found.file);
        if (!nvrtc)
          llvm::consumeError(nvrtc.takeError());
        else if ((*nvrtc)->makes(target))
          finding.made_by.push_back((*nvrtc)->name());
      }
      if (!finding.made_by.empty()) {
        auto chosen = Nvrtc::choose(target, newest_cuda());
        if (chosen)
          finding.chosen = (*chosen)->name();
        else
          llvm::consumeError(chosen.takeError());
      } else {
        missing += (missing.empty() ? "" : " ") + finding.target;
      }
      findings_.targets.push_back(std::move(finding));
    }
    const std::string install =
        "pip install 'nvidia-cuda-nvrtc-cu12==12.9.*' (makes sm_70 to sm_120), or name one in TRIGEN_NVRTC";
    if (findings_.nvrtc.empty())
      add(Severity::kWarning, "nvrtc", "no compiler was found; only kernels that a cache holds can run",
          install);
    else if (!missing.empty())
      add(own_target_missing() ? Severity::kError : Severity::kNote, "nvrtc",
          "no compiler here makes " + missing, install);
  }

  void caches(Store& store) {
    findings_.caches = store.layers();
    int64_t binaries = 0;
    bool user_layer = false;
    for (const LayerInfo& layer : findings_.caches) {
      binaries += layer.binaries;
      user_layer = user_layer || layer.writable;
      if (!layer.problem.empty()) add(Severity::kWarning, "cache " + layer.path, layer.problem, "");
      if (!layer.note.empty()) add(Severity::kNote, "cache " + layer.path, layer.note, "");
    }
    if (!user_layer)
      add(Severity::kWarning, "cache", "no cache file can be written; every process compiles anew",
          "name a writable file in TRIGEN_CACHE");
    if (findings_.no_jit && binaries == 0)
      add(Severity::kError, "cache", "TRIGEN_NO_JIT forbids compiling, and no cache holds a kernel",
          "name a filled cache in TRIGEN_CACHE, or unset TRIGEN_NO_JIT");
    else if (findings_.no_jit)
      add(Severity::kNote, "cache",
          "TRIGEN_NO_JIT forbids compiling: problems that no cache holds are errors", "");
  }

  int newest_cuda() const { return findings_.driver.emulated ? 0 : findings_.driver.cuda_version; }

 private:
  void add(Severity severity, std::string about, std::string text, std::string next_step) {
    findings_.troubles.push_back({severity, std::move(about), std::move(text), std::move(next_step)});
  }
  bool own_target_missing() const {
    for (const DeviceInfo& device : findings_.devices) {
      auto target = target_for_capability(device.major, device.minor);
      if (!target) {
        llvm::consumeError(target.takeError());
        continue;
      }
      for (const TargetFinding& finding : findings_.targets)
        if (finding.target == (*target)->name && finding.made_by.empty()) return true;
    }
    return false;
  }

  Findings& findings_;
};

}  // namespace

Findings examine(Store& store, llvm::StringRef driver_path) {
  Findings findings;
  findings.version = TRIGEN_VERSION_TEXT;
  findings.machine = read_machine();
  findings.no_jit = no_jit_from_environment();
  findings.emulator = find_emulator();
  Examination examination(findings);
  examination.driver(driver_path);
  examination.compilers();
  examination.caches(store);
  std::stable_sort(findings.troubles.begin(), findings.troubles.end(),
                   [](const Trouble& a, const Trouble& b) { return a.severity > b.severity; });
  return findings;
}

}  // namespace trigen
