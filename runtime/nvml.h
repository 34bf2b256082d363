// NVIDIA's management library, found at run time: what CUDA does not tell of a GPU while it runs. Everything
// here may be missing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trigen {

// The library at `path`, else TRIGEN_NVML, else where drivers put it; null when there is none. Never closed.
// `found`: its file.
void* open_nvml(const std::string& path, std::string& found);

struct NvmlPciInfo {  // nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};
struct NvmlUtilization {  // nvmlUtilization_t
  unsigned gpu, memory;
};
struct NvmlProcess {  // nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct NvmlOpaque;
using NvmlHandle = NvmlOpaque*;  // nvmlDevice_t

constexpr int kNvmlSuccess = 0, kNvmlInsufficientSize = 7;  // nvmlReturn_t
constexpr unsigned kNvmlTemperatureOfGpu = 0;               // nvmlTemperatureSensors_t

// The library's entries, by the names that it exports; null where it lacks one.
struct NvmlApi {
  int (*nvmlInit_v2)() = nullptr;
  int (*nvmlShutdown)() = nullptr;
  const char* (*nvmlErrorString)(int) = nullptr;
  int (*nvmlSystemGetDriverVersion)(char*, unsigned) = nullptr;
  int (*nvmlSystemGetCudaDriverVersion)(int*) = nullptr;
  int (*nvmlDeviceGetCount_v2)(unsigned*) = nullptr;
  int (*nvmlDeviceGetHandleByIndex_v2)(unsigned, NvmlHandle*) = nullptr;
  int (*nvmlDeviceGetHandleByPciBusId_v2)(const char*, NvmlHandle*) = nullptr;
  int (*nvmlDeviceGetName)(NvmlHandle, char*, unsigned) = nullptr;
  int (*nvmlDeviceGetPciInfo_v3)(NvmlHandle, NvmlPciInfo*) = nullptr;
  int (*nvmlDeviceGetMigMode)(NvmlHandle, unsigned*, unsigned*) = nullptr;
  int (*nvmlDeviceGetMaxMigDeviceCount)(NvmlHandle, unsigned*) = nullptr;
  int (*nvmlDeviceGetMigDeviceHandleByIndex)(NvmlHandle, unsigned, NvmlHandle*) = nullptr;
  int (*nvmlDeviceGetClockInfo)(NvmlHandle, unsigned, unsigned*) = nullptr;
  int (*nvmlDeviceGetPowerUsage)(NvmlHandle, unsigned*) = nullptr;
  int (*nvmlDeviceGetEnforcedPowerLimit)(NvmlHandle, unsigned*) = nullptr;
  int (*nvmlDeviceGetTemperature)(NvmlHandle, unsigned, unsigned*) = nullptr;
  int (*nvmlDeviceGetUtilizationRates)(NvmlHandle, NvmlUtilization*) = nullptr;
  int (*nvmlDeviceGetCurrentClocksThrottleReasons)(NvmlHandle, unsigned long long*) = nullptr;
  int (*nvmlDeviceGetTotalEccErrors)(NvmlHandle, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*nvmlDeviceGetComputeRunningProcesses_v3)(NvmlHandle, unsigned*, NvmlProcess*) = nullptr;
  int (*nvmlDeviceGetTotalEnergyConsumption)(NvmlHandle, unsigned long long*) = nullptr;

  explicit NvmlApi(void* library);
};

// nvmlClocksEventReason*, why clocks are below what they could be, in words. Idle, application clocks and
// synchronised boost are somebody's wish and not told.
std::vector<std::string> slowdown_reasons(uint64_t bits);

// The state of a GPU. Facts that its driver does not report are absent.
struct GpuState {
  std::optional<int> sm_mhz, memory_mhz, celsius, percent_busy;
  std::optional<double> watts, watts_allowed;
  std::optional<uint64_t> reasons;     // nvmlClocksEventReason*: why clocks are below what they could be
  std::optional<uint64_t> ecc_errors;  // uncorrected ones since the driver's start
  std::optional<bool> mig;             // sliced: power and other users are the whole GPU's
  struct Process {
    unsigned pid = 0;
    uint64_t bytes = 0;  // 0: not told
  };
  std::vector<Process> processes;  // with a context there; as NVML numbers them, which in a container is the
                                   // host's numbering
};

// The words for clocks that heat, the board or its supply hold down; "" for none. A power cap is not among
// them: heavy kernels live at it.
std::string slowdown_of(const GpuState& state);

class NvmlGpu {
 public:
  // The GPU at "0000:1a:00.0"; null where there is no NVML or it does not know it.
  static std::unique_ptr<NvmlGpu> find(const std::string& pci);
  GpuState read() const;
  // Energy since the driver's start; nullopt before Volta.
  std::optional<double> joules() const;

 private:
  explicit NvmlGpu(NvmlHandle handle) : handle_(handle) {}
  NvmlHandle handle_;
};

}  // namespace trigen
