// NVIDIA's management library, found at run time: what CUDA does not tell. Everything here may be missing.
#include <dlfcn.h>

#include "doctor/gather.h"
#include "runtime/nvml.h"

namespace trigen::doctor {
namespace {

using NvmlHandle = struct NvmlOpaque*;
constexpr int kSuccess = 0, kInsufficientSize = 7;  // nvmlReturn_t
constexpr unsigned kTemperatureGpu = 0;             // nvmlTemperatureSensors_t

// nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3.
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};

// nvmlClocksEventReason*: why clocks are below what they could be. Idle, application clocks and
// synchronised boost are somebody's wish and not told.
struct Reason {
  unsigned long long bit;
  const char* text;
};
constexpr Reason kReasons[] = {{0x4, "power cap"},
                               {0x8, "hardware slowdown"},
                               {0x20, "heat (driver)"},
                               {0x40, "heat (hardware)"},
                               {0x80, "power brake"}};

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlHandle*) = nullptr;
  int (*name)(NvmlHandle, char*, unsigned) = nullptr;
  int (*pci)(NvmlHandle, PciInfo*) = nullptr;
  int (*mig)(NvmlHandle, unsigned*, unsigned*) = nullptr;
  int (*most_slices)(NvmlHandle, unsigned*) = nullptr;
  int (*slice)(NvmlHandle, unsigned, NvmlHandle*) = nullptr;
  int (*temperature)(NvmlHandle, unsigned, unsigned*) = nullptr;
  int (*reasons)(NvmlHandle, unsigned long long*) = nullptr;
  int (*processes)(NvmlHandle, unsigned*, void*) = nullptr;

  explicit Nvml(void* library) {
    const auto look_up = [&](auto& entry, const char* symbol) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(::dlsym(library, symbol));
    };
    look_up(init, "nvmlInit_v2");
    look_up(shutdown, "nvmlShutdown");
    look_up(error_text, "nvmlErrorString");
    look_up(driver_version, "nvmlSystemGetDriverVersion");
    look_up(cuda_version, "nvmlSystemGetCudaDriverVersion");
    look_up(count, "nvmlDeviceGetCount_v2");
    look_up(handle, "nvmlDeviceGetHandleByIndex_v2");
    look_up(name, "nvmlDeviceGetName");
    look_up(pci, "nvmlDeviceGetPciInfo_v3");
    look_up(mig, "nvmlDeviceGetMigMode");
    look_up(most_slices, "nvmlDeviceGetMaxMigDeviceCount");
    look_up(slice, "nvmlDeviceGetMigDeviceHandleByIndex");
    look_up(temperature, "nvmlDeviceGetTemperature");
    look_up(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    look_up(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  }
  bool complete() const {
    return init != nullptr && shutdown != nullptr && error_text != nullptr && count != nullptr &&
           handle != nullptr && name != nullptr;
  }
};

NvmlDevice read_device(const Nvml& nvml, NvmlHandle handle) {
  NvmlDevice device;
  char name[96] = {};
  if (nvml.name(handle, name, sizeof name - 1) == kSuccess) device.name = name;
  PciInfo pci = {};
  if (nvml.pci != nullptr && nvml.pci(handle, &pci) == kSuccess) {
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    device.pci = text;
  }
  unsigned now = 0, pending = 0;
  if (nvml.mig != nullptr && nvml.mig(handle, &now, &pending) == kSuccess) device.mig = now != 0;
  unsigned most = 0;
  if (device.mig && nvml.most_slices != nullptr && nvml.slice != nullptr &&
      nvml.most_slices(handle, &most) == kSuccess) {
    NvmlHandle slice = nullptr;
    for (unsigned i = 0; i < most; ++i)
      device.mig_slices += nvml.slice(handle, i, &slice) == kSuccess ? 1 : 0;
  }
  unsigned celsius = 0;
  if (nvml.temperature != nullptr && nvml.temperature(handle, kTemperatureGpu, &celsius) == kSuccess)
    device.celsius = static_cast<int>(celsius);
  unsigned processes = 0;  // with no room for them, it gives their number
  if (nvml.processes != nullptr) {
    const int result = nvml.processes(handle, &processes, nullptr);
    if (result == kSuccess || result == kInsufficientSize) device.processes = static_cast<int>(processes);
  }
  unsigned long long bits = 0;
  if (nvml.reasons != nullptr && nvml.reasons(handle, &bits) == kSuccess)
    for (const Reason& reason : kReasons)
      if ((bits & reason.bit) != 0) device.slowdown.emplace_back(reason.text);
  return device;
}

}  // namespace

NvmlFacts ask_nvml(const std::string& path) {
  NvmlFacts facts;
  void* library = open_nvml(path, facts.path);
  if (library == nullptr) {
    facts.path.clear();
    facts.problem = "no libnvidia-ml.so.1 (in a container: NVIDIA_DRIVER_CAPABILITIES without utility)";
    return facts;
  }
  const Nvml nvml(library);
  if (!nvml.complete()) {
    facts.problem = "lacks entries";
    return facts;
  }
  if (const int result = nvml.init(); result != kSuccess) {
    facts.problem = nvml.error_text(result);
    return facts;
  }
  char version[96] = {};
  if (nvml.driver_version != nullptr && nvml.driver_version(version, sizeof version - 1) == kSuccess)
    facts.driver = version;
  if (nvml.cuda_version != nullptr) nvml.cuda_version(&facts.cuda_version);
  unsigned count = 0;
  nvml.count(&count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlHandle handle = nullptr;
    if (nvml.handle(i, &handle) == kSuccess) facts.devices.push_back(read_device(nvml, handle));
  }
  nvml.shutdown();
  return facts;
}

}  // namespace trigen::doctor
