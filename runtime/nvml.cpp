#include "runtime/nvml.h"

#include <dlfcn.h>

#include <memory>

#include "llvm/ADT/StringExtras.h"
#include "runtime/paths.h"

namespace trigen {
namespace {

constexpr unsigned kClockSm = 1, kClockMemory = 2;   // nvmlClockType_t
constexpr unsigned kUncorrected = 1, kVolatile = 0;  // nvmlMemoryErrorType_t, nvmlEccCounterType_t
constexpr uint64_t kPowerCap = 0x4;                  // nvmlClocksEventReasonSwPowerCap

// Opened and initialised once, never shut down. Null: not here.
const NvmlApi* nvml_api() {
  static const NvmlApi* const api = []() -> const NvmlApi* {
    std::string found;
    void* library = open_nvml("", found);
    if (library == nullptr) return nullptr;
    auto loaded = std::make_unique<NvmlApi>(library);
    const bool usable = loaded->nvmlInit_v2 != nullptr &&
                        loaded->nvmlDeviceGetHandleByPciBusId_v2 != nullptr &&
                        loaded->nvmlInit_v2() == kNvmlSuccess;
    return usable ? loaded.release() : nullptr;
  }();
  return api;
}

template <class Value, class Entry, class... Arguments>
std::optional<Value> ask(Entry entry, Arguments... arguments) {
  Value value{};
  if (entry == nullptr || entry(arguments..., &value) != kNvmlSuccess) return std::nullopt;
  return value;
}

template <class To, class From>
std::optional<To> scaled(std::optional<From> value, double factor = 1) {
  if (!value) return std::nullopt;
  return static_cast<To>(static_cast<double>(*value) * factor);
}

}  // namespace

void* open_nvml(const std::string& path, std::string& found) {
  const std::string named = path.empty() ? environment("TRIGEN_NVML") : path;
  if (!named.empty()) {
    found = named;
    return ::dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  for (const char* place : {"libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
                            "/usr/lib64/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}) {
    if (place[0] == '/' && path_exists(place) && !distrust_of_search(real_path(place)).empty()) continue;
    found = place;
    if (void* library = ::dlopen(place, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

NvmlApi::NvmlApi(void* library) {
#define TRIGEN_LOOK_UP(name) name = reinterpret_cast<decltype(name)>(::dlsym(library, #name))
  TRIGEN_LOOK_UP(nvmlInit_v2);
  TRIGEN_LOOK_UP(nvmlShutdown);
  TRIGEN_LOOK_UP(nvmlErrorString);
  TRIGEN_LOOK_UP(nvmlSystemGetDriverVersion);
  TRIGEN_LOOK_UP(nvmlSystemGetCudaDriverVersion);
  TRIGEN_LOOK_UP(nvmlDeviceGetCount_v2);
  TRIGEN_LOOK_UP(nvmlDeviceGetHandleByIndex_v2);
  TRIGEN_LOOK_UP(nvmlDeviceGetHandleByPciBusId_v2);
  TRIGEN_LOOK_UP(nvmlDeviceGetName);
  TRIGEN_LOOK_UP(nvmlDeviceGetPciInfo_v3);
  TRIGEN_LOOK_UP(nvmlDeviceGetMigMode);
  TRIGEN_LOOK_UP(nvmlDeviceGetMaxMigDeviceCount);
  TRIGEN_LOOK_UP(nvmlDeviceGetMigDeviceHandleByIndex);
  TRIGEN_LOOK_UP(nvmlDeviceGetClockInfo);
  TRIGEN_LOOK_UP(nvmlDeviceGetPowerUsage);
  TRIGEN_LOOK_UP(nvmlDeviceGetEnforcedPowerLimit);
  TRIGEN_LOOK_UP(nvmlDeviceGetTemperature);
  TRIGEN_LOOK_UP(nvmlDeviceGetUtilizationRates);
  TRIGEN_LOOK_UP(nvmlDeviceGetCurrentClocksThrottleReasons);
  TRIGEN_LOOK_UP(nvmlDeviceGetTotalEccErrors);
  TRIGEN_LOOK_UP(nvmlDeviceGetComputeRunningProcesses_v3);
  TRIGEN_LOOK_UP(nvmlDeviceGetTotalEnergyConsumption);
#undef TRIGEN_LOOK_UP
}

std::vector<std::string> slowdown_reasons(uint64_t bits) {
  struct Reason {
    uint64_t bit;
    const char* text;
  };
  std::vector<std::string> reasons;
  for (const Reason& reason :
       {Reason{kPowerCap, "power cap"}, Reason{0x8, "hardware slowdown"}, Reason{0x20, "heat (driver)"},
        Reason{0x40, "heat (hardware)"}, Reason{0x80, "power brake"}})
    if ((bits & reason.bit) != 0) reasons.emplace_back(reason.text);
  return reasons;
}

std::string slowdown_of(const GpuState& state) {
  return llvm::join(slowdown_reasons(state.reasons.value_or(0) & ~kPowerCap), ", ");
}

std::unique_ptr<NvmlGpu> NvmlGpu::find(const std::string& pci) {
  const NvmlApi* api = nvml_api();
  NvmlHandle handle = nullptr;
  if (api == nullptr || api->nvmlDeviceGetHandleByPciBusId_v2(pci.c_str(), &handle) != kNvmlSuccess)
    return nullptr;
  return std::unique_ptr<NvmlGpu>(new NvmlGpu(handle));
}

GpuState NvmlGpu::read() const {
  const NvmlApi& api = *nvml_api();
  GpuState state;
  state.sm_mhz = scaled<int>(ask<unsigned>(api.nvmlDeviceGetClockInfo, handle_, kClockSm));
  state.memory_mhz = scaled<int>(ask<unsigned>(api.nvmlDeviceGetClockInfo, handle_, kClockMemory));
  state.celsius = scaled<int>(ask<unsigned>(api.nvmlDeviceGetTemperature, handle_, kNvmlTemperatureOfGpu));
  state.watts = scaled<double>(ask<unsigned>(api.nvmlDeviceGetPowerUsage, handle_), 1e-3);
  state.watts_allowed = scaled<double>(ask<unsigned>(api.nvmlDeviceGetEnforcedPowerLimit, handle_), 1e-3);
  if (const auto busy = ask<NvmlUtilization>(api.nvmlDeviceGetUtilizationRates, handle_))
    state.percent_busy = static_cast<int>(busy->gpu);
  if (const auto reasons = ask<unsigned long long>(api.nvmlDeviceGetCurrentClocksThrottleReasons, handle_))
    state.reasons = *reasons;
  if (const auto ecc =
          ask<unsigned long long>(api.nvmlDeviceGetTotalEccErrors, handle_, kUncorrected, kVolatile))
    state.ecc_errors = *ecc;
  unsigned now = 0, pending = 0;
  if (api.nvmlDeviceGetMigMode != nullptr &&
      api.nvmlDeviceGetMigMode(handle_, &now, &pending) == kNvmlSuccess)
    state.mig = now != 0;
  NvmlProcess list[64] = {};
  unsigned count = 64;
  if (api.nvmlDeviceGetComputeRunningProcesses_v3 != nullptr &&
      api.nvmlDeviceGetComputeRunningProcesses_v3(handle_, &count, list) == kNvmlSuccess)
    for (unsigned i = 0; i < count && i < 64; ++i) {
      const bool told = list[i].bytes != ~0ULL;  // NVML_VALUE_NOT_AVAILABLE
      state.processes.push_back({list[i].pid, told ? list[i].bytes : 0});
    }
  return state;
}

std::optional<double> NvmlGpu::joules() const {
  return scaled<double>(ask<unsigned long long>(nvml_api()->nvmlDeviceGetTotalEnergyConsumption, handle_),
                        1e-3);
}

}  // namespace trigen
