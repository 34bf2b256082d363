// A kernel of somebody else's ahead of what is timed: it fills the device for some microseconds and lets
// nothing start early, so that a launch behind it gains nothing from overlapping one of its own kind.
#pragma once

#include <memory>

#include "peers/ptx_kernel.h"
#include "tuner/measure.h"

namespace trigen {

class ForeignKernel {
 public:
  // Error: device.
  static llvm::Expected<std::unique_ptr<ForeignKernel>> create(Workbench& bench);
  ~ForeignKernel();
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;

  llvm::Error run(cuda::CUstream stream) const;
  LaunchOn alone() const;
  LaunchOn ahead_of(LaunchOn launch) const;

 private:
  explicit ForeignKernel(Workbench& bench) : bench_(bench) {}
  Workbench& bench_;
  std::unique_ptr<PtxKernel> kernel_;
  cuda::CUdeviceptr memory_ = 0;
  uint32_t blocks_ = 0;
};

// trigen's launch and a peer's, each behind the foreign kernel, in turn; the kernel's own time, measured in
// the same rounds, is taken off.
struct Behind {
  double seconds = 0, peer_seconds = 0;
  double ratio = 0;  // the peer's time over trigen's, median of the rounds
};
llvm::Expected<Behind> time_behind(Workbench& bench, const LaunchOn& own, const LaunchOn& peer, int rounds);
inline constexpr int kBehindRounds = 11;

}  // namespace trigen
