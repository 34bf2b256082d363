// One device: its properties and its context.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "generator/cost/cost.h"
#include "generator/target.h"
#include "runtime/driver.h"

namespace trigen {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int sms = 0;
  double clock_hz = 0;  // boost clock; of Device::info_with_clocks() alone
  double memory_clock_hz = 0;
  int bus_bits = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int64_t max_shared_per_block = 0;  // opt-in limit
  std::string driver;                // Driver::version()
  std::string pci;                   // "0000:1a:00.0"
  bool emulated = false;
  std::string spec() const;  // "cuda:0", "emulated:sm_70"
};

class Device {
 public:
  // A device of a driver by ordinal. Opened once per process and kept; its primary context is retained at
  // first use.
  static llvm::Expected<const Device*> open(const Driver& driver, int ordinal);
  // "" or "auto": the current context's device, else device 0. "0", "cuda:0": by ordinal. "emulated:sm_70":
  // the emulated device. Errors name the text and what is allowed, or say why there is no driver.
  static llvm::Expected<const Device*> open(llvm::StringRef spec);

  // A device that another process has opened: its facts and what follows from them. No driver, no context.
  static llvm::Expected<std::unique_ptr<const Device>> describe(const DeviceInfo& info);

  const Driver& driver() const { return *driver_; }
  const DriverApi& api() const { return driver_->api(); }
  const DeviceInfo& info() const { return info_; }
  // A driver reads the clocks from the device: asked at first use, which a plan with a warm cache is none of.
  const DeviceInfo& info_with_clocks() const;
  // The best target of this device: sm_90a for capability 9.0.
  const Target& target() const { return *target_; }
  // The GPU's own row of gpus.def (its units' rates), where the driver's name is one of them; else the target.
  const Target& gpu() const;
  // What the cost model takes of it: its row's numbers, or, where it has none, the target's and what the driver says.
  DeviceModel model() const;
  // Can a cubin of that target run here? (Same major, not newer, "a" targets on exactly their capability.)
  // Never on the emulated device, which reads PTX.
  bool runs_cubin_of(const Target& target) const;
  // Can the driver make a kernel of that target's PTX for this device? (Any older capability; "a" targets
  // only on their own.)
  bool runs_ptx_of(const Target& target) const;
  // The caller's current context when it belongs to this device, else the device's primary context (retained
  // for the process's life). Does not change what is current.
  llvm::Expected<cuda::CUcontext> context() const;

 private:
  friend struct DeviceTable;
  const Driver* driver_ = nullptr;
  const Target* target_ = nullptr;
  DeviceInfo info_;
  mutable std::once_flag clocks_asked_;
  mutable DeviceInfo with_clocks_;
};

// Makes a context current for a scope, and restores the caller's on exit. Free when it is current already.
class ContextScope {
 public:
  ContextScope(const DriverApi& api, cuda::CUcontext context) : api_(api) {
    cuda::CUcontext current = nullptr;
    result_ = api.cuCtxGetCurrent(&current);
    if (result_ == cuda::CUDA_SUCCESS && current != context) {
      result_ = api.cuCtxPushCurrent(context);
      pushed_ = result_ == cuda::CUDA_SUCCESS;
    }
  }
  ~ContextScope() {
    cuda::CUcontext dropped = nullptr;
    if (pushed_) api_.cuCtxPopCurrent(&dropped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  cuda::CUresult result() const { return result_; }

 private:
  const DriverApi& api_;
  cuda::CUresult result_ = cuda::CUDA_SUCCESS;
  bool pushed_ = false;
};

// Loading and allocating are not allowed while any stream of the process captures in the default mode; in
// relaxed mode, for this thread and from driver 12.3 on, they are.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& api) : api_(api) {
    if (api_.cuThreadExchangeStreamCaptureMode != nullptr)
      exchanged_ = api_.cuThreadExchangeStreamCaptureMode(&mode_) == cuda::CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (exchanged_) api_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverApi& api_;
  cuda::CUstreamCaptureMode mode_ = cuda::CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged_ = false;
};

// Every device of a driver, as far as each could be read. Devices that fail are left out, with the reason in
// `problems`.
std::vector<DeviceInfo> list_devices(const Driver& driver, std::vector<std::string>& problems);

}  // namespace trigen
