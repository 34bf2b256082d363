// A device copy as a peer: the bytes that a problem must move, at the rate of the memory.
#pragma once

#include <memory>

#include "tuner/measure.h"

namespace trigen {

class CopyPeer {
 public:
  // Half of the bytes are read and half written, so that as many cross the memory as the problem must move
  // (decode: as the tokens of x have that its rows read), in memory of its own that is larger than the L2.
  // Error: device, when that memory is not there.
  static llvm::Expected<std::unique_ptr<CopyPeer>> create(Workbench& bench);
  ~CopyPeer();
  CopyPeer(const CopyPeer&) = delete;
  CopyPeer& operator=(const CopyPeer&) = delete;
  LaunchOn launch() const;

 private:
  explicit CopyPeer(Workbench& bench) : bench_(bench) {}
  Workbench& bench_;
  cuda::CUdeviceptr memory_ = 0;
  cuda::size_type half_ = 0;  // bytes of one copy
  int slots_ = 1;             // copies that the memory has room for
};

}  // namespace trigen
