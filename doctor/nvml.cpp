// Facts from NVIDIA's management library (NVML), which may be missing, whole or in part.
#include "runtime/nvml.h"
#include "doctor/gather.h"

namespace trigen::doctor {
namespace {

bool is_complete(const NvmlApi& nvml) {
  return nvml.nvmlInit_v2 != nullptr && nvml.nvmlShutdown != nullptr && nvml.nvmlErrorString != nullptr &&
         nvml.nvmlDeviceGetCount_v2 != nullptr && nvml.nvmlDeviceGetHandleByIndex_v2 != nullptr &&
         nvml.nvmlDeviceGetName != nullptr;
}

NvmlDevice read_device(const NvmlApi& nvml, NvmlHandle handle) {
  NvmlDevice device;
  char name[96] = {};
  if (nvml.nvmlDeviceGetName(handle, name, sizeof name - 1) == kNvmlSuccess) device.name = name;
  NvmlPciInfo pci = {};
  if (nvml.nvmlDeviceGetPciInfo_v3 != nullptr && nvml.nvmlDeviceGetPciInfo_v3(handle, &pci) == kNvmlSuccess) {
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    device.pci = text;
  }
  unsigned now = 0, pending = 0;
  if (nvml.nvmlDeviceGetMigMode != nullptr &&
      nvml.nvmlDeviceGetMigMode(handle, &now, &pending) == kNvmlSuccess)
    device.mig = now != 0;
  unsigned most = 0;
  if (device.mig && nvml.nvmlDeviceGetMaxMigDeviceCount != nullptr &&
      nvml.nvmlDeviceGetMigDeviceHandleByIndex != nullptr &&
      nvml.nvmlDeviceGetMaxMigDeviceCount(handle, &most) == kNvmlSuccess) {
    NvmlHandle slice = nullptr;
    for (unsigned i = 0; i < most; ++i)
      device.mig_slices +=
          nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i, &slice) == kNvmlSuccess ? 1 : 0;
  }
  unsigned celsius = 0;
  if (nvml.nvmlDeviceGetTemperature != nullptr &&
      nvml.nvmlDeviceGetTemperature(handle, kNvmlTemperatureOfGpu, &celsius) == kNvmlSuccess)
    device.celsius = static_cast<int>(celsius);
  unsigned processes = 0;  // with no room for them, it gives their number
  if (nvml.nvmlDeviceGetComputeRunningProcesses_v3 != nullptr) {
    const int result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, &processes, nullptr);
    if (result == kNvmlSuccess || result == kNvmlInsufficientSize)
      device.processes = static_cast<int>(processes);
  }
  unsigned long long bits = 0;
  if (nvml.nvmlDeviceGetCurrentClocksThrottleReasons != nullptr &&
      nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, &bits) == kNvmlSuccess)
    device.slowdown = slowdown_reasons(bits);
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
  const NvmlApi nvml(library);
  if (!is_complete(nvml)) {
    facts.problem = "lacks entries";
    return facts;
  }
  if (const int result = nvml.nvmlInit_v2(); result != kNvmlSuccess) {
    facts.problem = nvml.nvmlErrorString(result);
    return facts;
  }
  char version[96] = {};
  if (nvml.nvmlSystemGetDriverVersion != nullptr &&
      nvml.nvmlSystemGetDriverVersion(version, sizeof version - 1) == kNvmlSuccess)
    facts.driver = version;
  if (nvml.nvmlSystemGetCudaDriverVersion != nullptr)
    nvml.nvmlSystemGetCudaDriverVersion(&facts.cuda_version);
  unsigned count = 0;
  nvml.nvmlDeviceGetCount_v2(&count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlHandle handle = nullptr;
    if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &handle) == kNvmlSuccess)
      facts.devices.push_back(read_device(nvml, handle));
  }
  nvml.nvmlShutdown();
  return facts;
}

}  // namespace trigen::doctor
