// One pass that adds the sums of a product that was cut along k, rounds them to the output's type and stores them.
#pragma once

#include <memory>

#include "peers/ptx_kernel.h"

namespace trigen {

class SumPass {
 public:
  // For sums of `plane` f32 values (a multiple of 4) each. Error: device.
  static llvm::Expected<SumPass> create(Workbench& bench, DType output, int64_t plane);
  // out[h][i] = the sum over parts of from[h][part][i].
  llvm::Error run(cuda::CUdeviceptr from, int64_t parts, cuda::CUdeviceptr out, int64_t heads,
                  cuda::CUstream stream) const;

 private:
  SumPass(std::unique_ptr<PtxKernel> kernel, int64_t plane) : kernel_(std::move(kernel)), plane_(plane) {}
  std::unique_ptr<PtxKernel> kernel_;
  int64_t plane_;
};

}  // namespace trigen
