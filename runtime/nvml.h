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

// What a GPU is doing. What its driver does not say is absent.
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
  explicit NvmlGpu(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace trigen
