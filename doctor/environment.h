// Facts of a machine that trigen depends on, nothing judged. Gathered from the
// machine that runs (gather.h), or read from JSON: a recorded machine is judged like this one (diagnose.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cache/store.h"
#include "generator/error.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/nvrtc.h"

namespace trigen::doctor {

// CUdevcompute_mode: the driver's numbers.
enum class ComputeMode : int { kDefault = 0, kProhibited = 2, kExclusive = 3 };

struct DeviceFacts {
  DeviceInfo info;
  std::string pci;  // "0000:17:00.0"; "" on the emulated device
  ComputeMode compute_mode = ComputeMode::kDefault;
};

// One GPU as NVML, the management library, sees it: GPUs that CUDA does not show, too.
struct NvmlDevice {
  std::string name, pci;
  bool mig = false;                   // MIG mode is on: CUDA shows its slices alone
  int mig_slices = 0;                 // instances that exist
  int celsius = -1;                   // -1: not told
  int processes = -1;                 // that compute on it; -1: not told
  std::vector<std::string> slowdown;  // why its clocks are held down now: "power cap", "heat"
};
struct NvmlFacts {
  std::string path;      // "" when there is no libnvidia-ml.so.1
  std::string driver;    // "580.159.03"
  int cuda_version = 0;  // 13000: what nvidia-smi prints as "CUDA Version"
  std::string problem;   // why it tells nothing
  std::vector<NvmlDevice> devices;
};

struct TorchFacts {
  std::string path;                // of the package's folder
  std::string version;             // "2.8.0+cu128"
  std::string cuda;                // "12.8"; "" when it was built without CUDA
  std::vector<std::string> archs;  // it has kernels for: "sm_70"; "compute_120" is PTX. Empty: not told
};

// Binaries of a compiler and an architecture that the caches hold.
struct CachedCode {
  std::string compiler, arch;  // "nvrtc 12.9.86", "sm_70"
  int64_t binaries = 0;
};

// The result of a problem's look-up, without making a plan.
struct ProblemFacts {
  std::string problem, target;
  std::string match;       // "exact", "predicted", "near", "none"
  std::string difference;  // for near: what differs
  std::string candidate, provenance, layer;
  bool binary = false;  // the cache has its code: nothing is compiled
};

struct Environment {
  std::string trigen;  // version
  MachineFacts machine;
  std::string glibc;         // of the machine: "2.36"
  std::string glibc_needed;  // by this program and its libraries
  // TRIGEN_*, CUDA_*, NVIDIA_* and what else decides: name -> value.
  std::map<std::string, std::string> variables;
  DriverFinding driver;
  std::vector<DeviceFacts> devices;
  NvmlFacts nvml;
  std::string emulator;               // path of libtrigen_emulator.so, "" when it is not there
  std::vector<std::string> toolkits;  // CUDA toolkits, which trigen has no use for
  std::vector<NvrtcFinding> nvrtc;    // in search order
  std::vector<TorchFacts> torch;
  std::vector<LayerInfo> caches;  // in lookup order
  std::vector<CachedCode> cached;
  std::vector<ProblemFacts> problems;  // that were asked about
  bool no_jit = false;
  bool no_cache = false;       // TRIGEN_CACHE=none
  bool bundles_alone = false;  // named with --cache: nobody asks for a file to store in

  bool has(const std::string& variable) const { return variables.count(variable) != 0; }
  std::string variable(const std::string& name) const {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  }
};

// JSON with a key for each field; what a recorded machine leaves out has its default. It may stand below a key
// "environment", as `trigen doctor --json` prints it. Errors name the key.
std::string to_json(const Environment& environment);
llvm::Expected<Environment> from_json(llvm::StringRef text);

}  // namespace trigen::doctor
