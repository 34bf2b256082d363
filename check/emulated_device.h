// The emulated device's entries beyond the Driver API: those of emulator/emulator_api.h in the driver
// library that is loaded. Found at run time, because nothing links to the emulator.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/device.h"

namespace trigen {

class EmulatedDevice {
 public:
  // Errors: bad request for a real GPU; device when the library is of another release.
  static llvm::Expected<EmulatedDevice> of(const Device& device);

  // Forgets what was counted.
  void reset_counters() const { reset_(ordinal_); }
  // JSON of the launches since then.
  std::string counters() const;
  // The next launch counts as one behind others that may have done anything and may still run, where it may
  // overlap them.
  void assume_busy() const { assume_busy_(ordinal_); }
  // A kernel that writes to the allocation at `address` fails from now on.
  void make_read_only(cuda::CUdeviceptr address) const { set_read_only_(address, 1); }
  // The bytes count as never written: a kernel that reads them before it writes them fails.
  void forget(cuda::CUdeviceptr address, int64_t bytes) const {
    forget_(address, static_cast<unsigned long long>(bytes));
  }

 private:
  int ordinal_ = 0;
  unsigned long long (*counters_)(int device, char* buffer, unsigned long long size) = nullptr;
  void (*reset_)(int device) = nullptr;
  int (*assume_busy_)(int device) = nullptr;
  int (*set_read_only_)(unsigned long long address, int read_only) = nullptr;
  int (*forget_)(unsigned long long address, unsigned long long bytes) = nullptr;
};

}  // namespace trigen
