#include "runtime/nvml.h"

#include <dlfcn.h>

#include <type_traits>

#include "runtime/paths.h"

namespace trigen {
namespace {

constexpr int kNvmlSuccess = 0;                      // nvmlReturn_t
constexpr unsigned kClockSm = 1, kClockMemory = 2;   // nvmlClockType_t
constexpr unsigned kTemperatureOfGpu = 0;            // nvmlTemperatureSensors_t
constexpr unsigned kUncorrected = 1, kVolatile = 0;  // nvmlMemoryErrorType_t, nvmlEccCounterType_t

struct Utilization {  // nvmlUtilization_t
  unsigned gpu, memory;
};
struct ProcessInfo {  // nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

struct NvmlApi {
  int (*init)() = nullptr;
  int (*by_pci)(const char*, void**) = nullptr;
  int (*clock)(void*, unsigned, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  int (*power_limit)(void*, unsigned*) = nullptr;
  int (*temperature)(void*, unsigned, unsigned*) = nullptr;
  int (*utilization)(void*, Utilization*) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;
  int (*ecc)(void*, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*mig)(void*, unsigned*, unsigned*) = nullptr;
  int (*processes)(void*, unsigned*, ProcessInfo*) = nullptr;
  int (*energy)(void*, unsigned long long*) = nullptr;

  explicit NvmlApi(void* library) {
    const auto look_up = [&](auto& entry, const char* symbol) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(::dlsym(library, symbol));
    };
    look_up(init, "nvmlInit_v2");
    look_up(by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
    look_up(clock, "nvmlDeviceGetClockInfo");
    look_up(power, "nvmlDeviceGetPowerUsage");
    look_up(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    look_up(temperature, "nvmlDeviceGetTemperature");
    look_up(utilization, "nvmlDeviceGetUtilizationRates");
    look_up(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    look_up(ecc, "nvmlDeviceGetTotalEccErrors");
    look_up(mig, "nvmlDeviceGetMigMode");
    look_up(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    look_up(energy, "nvmlDeviceGetTotalEnergyConsumption");
  }
};

// Opened and initialised once, never shut down. Null: not here.
const NvmlApi* nvml_api() {
  static const NvmlApi* const api = []() -> const NvmlApi* {
    std::string found;
    void* library = open_nvml("", found);
    if (library == nullptr) return nullptr;
    const auto* loaded = new NvmlApi(library);
    const bool usable =
        loaded->init != nullptr && loaded->by_pci != nullptr && loaded->init() == kNvmlSuccess;
    return usable ? loaded : nullptr;
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

std::string slowdown_of(const GpuState& state) {
  struct Reason {
    uint64_t bit;
    const char* text;
  };
  std::string text;
  for (const Reason& reason : {Reason{0x8, "hardware slowdown"}, Reason{0x20, "heat (driver)"},
                               Reason{0x40, "heat (hardware)"}, Reason{0x80, "power brake"}})
    if (state.reasons && (*state.reasons & reason.bit) != 0)
      text += (text.empty() ? "" : ", ") + std::string(reason.text);
  return text;
}

std::unique_ptr<NvmlGpu> NvmlGpu::find(const std::string& pci) {
  const NvmlApi* api = nvml_api();
  void* handle = nullptr;
  if (api == nullptr || api->by_pci(pci.c_str(), &handle) != kNvmlSuccess) return nullptr;
  return std::unique_ptr<NvmlGpu>(new NvmlGpu(handle));
}

GpuState NvmlGpu::read() const {
  const NvmlApi& api = *nvml_api();
  GpuState state;
  state.sm_mhz = scaled<int>(ask<unsigned>(api.clock, handle_, kClockSm));
  state.memory_mhz = scaled<int>(ask<unsigned>(api.clock, handle_, kClockMemory));
  state.celsius = scaled<int>(ask<unsigned>(api.temperature, handle_, kTemperatureOfGpu));
  state.watts = scaled<double>(ask<unsigned>(api.power, handle_), 1e-3);
  state.watts_allowed = scaled<double>(ask<unsigned>(api.power_limit, handle_), 1e-3);
  if (const auto busy = ask<Utilization>(api.utilization, handle_))
    state.percent_busy = static_cast<int>(busy->gpu);
  if (const auto reasons = ask<unsigned long long>(api.reasons, handle_)) state.reasons = *reasons;
  if (const auto ecc = ask<unsigned long long>(api.ecc, handle_, kUncorrected, kVolatile))
    state.ecc_errors = *ecc;
  unsigned now = 0, pending = 0;
  if (api.mig != nullptr && api.mig(handle_, &now, &pending) == kNvmlSuccess) state.mig = now != 0;
  ProcessInfo list[64] = {};
  unsigned count = 64;
  if (api.processes != nullptr && api.processes(handle_, &count, list) == kNvmlSuccess)
    for (unsigned i = 0; i < count && i < 64; ++i) {
      const bool told = list[i].bytes != ~0ULL;  // NVML_VALUE_NOT_AVAILABLE
      state.processes.push_back({list[i].pid, told ? list[i].bytes : 0});
    }
  return state;
}

std::optional<double> NvmlGpu::joules() const {
  return scaled<double>(ask<unsigned long long>(nvml_api()->energy, handle_), 1e-3);
}

}  // namespace trigen
