// The driver library: libcuda, or another library with its entries (the emulated device), opened at run time.
#pragma once

#include <string>
#include <vector>

#include "abi/cuda_entries.h"
#include "generator/error.h"
#include "llvm/ADT/StringRef.h"

namespace trigen {

// One function pointer per entry of abi/cuda_entries.h: api.cuInit(0). Entries that this driver is too old
// for are null; the ones that trigen cannot do without are checked at load.
struct DriverApi {
#define TRIGEN_CUDA_POINTER(name, symbol, parameters) cuda::fn::name* name = nullptr;
  TRIGEN_CUDA_ENTRIES(TRIGEN_CUDA_POINTER)
#undef TRIGEN_CUDA_POINTER
  cuda::CUresult (*cuFuncLoad)(cuda::CUfunction) = nullptr;  // 12.4+: load now, not at the first launch
};

// Why there is no usable driver here. Each has its own next step (driver_advice).
enum class DriverState {
  kReady,
  kNoLibrary,       // no libcuda anywhere: no driver installed
  kContainerNoGpu,  // a container that was started without GPUs
  kUnusable,        // the library is there but does not load, or lacks entries
  kTooOld,          // older than CUDA 11.4's driver (470)
  kNoDevice,        // driver without a device (or CUDA_VISIBLE_DEVICES hides all)
  kMismatch,        // library and kernel module are of different versions
  kBroken,          // cuInit failed otherwise
};

class Driver {
 public:
  // Opens the library at `path` and calls cuInit, once per path and process; later calls return the same
  // object, or the same error. Empty: TRIGEN_DRIVER, else libcuda.so.1 from the loader path and then from the
  // usual directories. Never unloaded. Thread safe.
  static llvm::Expected<const Driver*> load(llvm::StringRef path = "");
  // The emulated device: libtrigen_emulator.so beside this library, beside the program, or from the loader
  // path, set to `target` ("sm_70"). One process holds one emulated target.
  static llvm::Expected<const Driver*> load_emulated(llvm::StringRef target);

  const DriverApi& api() const { return api_; }
  const std::string& path() const { return path_; }
  int cuda_version() const { return cuda_version_; }       // 13000: the newest CUDA that it serves
  const std::string& version() const { return version_; }  // "580.159.03"; "emulated" for the emulated device
  bool emulated() const { return emulated_; }
  int device_count() const { return device_count_; }
  // success, or a device error: "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (invalid argument)" + `context`.
  llvm::Error check(cuda::CUresult result, llvm::StringRef call, llvm::StringRef context = "") const;

 private:
  friend struct DriverLoader;
  DriverApi api_;
  std::string path_, version_;
  int cuda_version_ = 0, device_count_ = 0;
  bool emulated_ = false;
  const char* (*last_error_)() = nullptr;  // the emulated device's own words
};

// Facts of the driver, found without failing: for doctor and for messages.
struct DriverFinding {
  DriverState state = DriverState::kNoLibrary;
  std::string path;     // the library, when one was found
  std::string version;  // "580.159.03"
  int cuda_version = 0;
  int device_count = 0;
  bool emulated = false;
  std::vector<std::string> tried;  // where a library was looked for
  std::string text;                // the error's text; empty when ready
};
DriverFinding probe_driver(llvm::StringRef path = "");

// libtrigen_emulator.so beside this library or this program; "" when it is not there.
std::string find_emulator();

struct DeviceNode {
  std::string path;     // "/dev/nvidiactl"
  std::string mode;     // "0660 root:27"
  std::string problem;  // why this process cannot open it: "permission denied"; "" when it can
};

// Facts about the machine that tell the states apart; from the file system below `root` and the environment.
struct MachineFacts {
  bool device_nodes = false;      // /dev/nvidia0 or /dev/dxg
  bool control_node = false;      // /dev/nvidiactl
  bool kernel_module = false;     // /proc/driver/nvidia/version
  bool container = false;         // /.dockerenv, /run/.containerenv, container=..., or a container's cgroup
  std::string runs_in;            // "docker", "podman", "apptainer", "kubernetes", "slurm" where it is known
  bool wsl = false;               // Windows Subsystem for Linux
  std::vector<DeviceNode> nodes;  // /dev/nvidia*, /dev/dxg
  std::string kernel_driver;      // version of the kernel module, "580.159.03"
  std::string visible;            // NVIDIA_VISIBLE_DEVICES, "" when unset
  std::string cuda_visible;       // CUDA_VISIBLE_DEVICES
  bool cuda_visible_set = false;
};
MachineFacts read_machine(llvm::StringRef root = "/");
// One sentence with the next step.
std::string driver_advice(DriverState state, const MachineFacts& machine);

}  // namespace trigen
