// A target: an architecture with its limits, and the GPU that kernels of it are ranked for, with its rates. The
// limits' one table is target.cpp, the GPUs' one is gpus.def; nothing else in the project knows these numbers.
#pragma once

#include <cstdint>
#include <string>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

struct Target {
  llvm::StringLiteral name;           // "sm_70", "sm_90a"
  int64_t max_shared_per_block;       // bytes a block may opt in to
  int64_t shared_per_sm;              // bytes
  int64_t reserved_shared_per_block;  // bytes the system takes from each block
  int64_t registers_per_sm;
  int compute_capability;  // 70, 90 (without the suffix)
  int max_threads_per_sm;
  int max_blocks_per_sm;
  int sms = 0;                  // of the model device, as measured_rates
  bool cp_async;                // sm_80+
  bool ldmatrix;                // sm_75+
  bool bf16_mma;                // sm_80+
  bool tf32_mma;                // sm_80+
  bool wgmma;                   // sm_90a only
  bool setmaxnreg = false;      // sm_90a, sm_100a, sm_120a, which have TMA, too
  bool measured_rates = false;  // the FLOP/s below, on such a device; else a data sheet's
  // The device that the cost model assumes when none is at hand, of gpus.def. Rates are dense, in FLOP/s and byte/s.
  llvm::StringLiteral model_device;  // "V100-SXM2-16GB"
  double clock_hz = 0;
  int64_t l2_bytes = 0;
  double mma16_flops = 0;  // f16 with f32 sums
  double tf32_flops = 0;
  double fp32_flops = 0;
  double dram_bytes_per_s = 0;
  double l2_bytes_per_s = 0;
};

llvm::ArrayRef<Target> targets();
// Error lists the known targets. "sm_90" and "sm_90a" are different targets.
llvm::Expected<const Target*> find_target(llvm::StringRef name);
// The best target for a device of that compute capability: sm_90a for 9.0, sm_100a for 10.0; a newer minor
// revision of a known major takes that major's closest lower entry (8.7 takes sm_86, 10.3 takes sm_100).
// Error when there is none.
llvm::Expected<const Target*> target_for_capability(int major, int minor);

// The rows of gpus.def: each its architecture's target, with its own SMs, clock, caches and rates.
llvm::ArrayRef<Target> gpus();
// The GPU of that name, in any case and without "NVIDIA", "GeForce" or "Tesla": "L40S", "RTX 4090", "A100". A part of
// a name is enough where one GPU alone has it. Error lists the known GPUs.
llvm::Expected<const Target*> find_gpu(llvm::StringRef name);
// The GPU of the name that a driver gives a device ("NVIDIA H100 80GB HBM3"), where it is of that target; else the target.
const Target& gpu_named_by_driver(llvm::StringRef name, const Target& target);

}  // namespace trigen
