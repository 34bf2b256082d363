// One pass that adds the sums of a product that was cut along k, rounds them to the output's type and stores them.
#pragma once

#include <memory>

#include "check/workbench.h"

namespace trigen {

class SumPass {
 public:
  // For sums of `plane` f32 values (a multiple of 4) each. Compiles a PTX text of its own through the driver (no
  // NVRTC). Errors: device.
  static llvm::Expected<std::unique_ptr<SumPass>> create(Workbench& bench, DType output, int64_t plane);
  ~SumPass();
  SumPass(const SumPass&) = delete;
  SumPass& operator=(const SumPass&) = delete;
  // out[h][i] = the sum over parts of from[h][part][i].
  llvm::Error run(cuda::CUdeviceptr from, int64_t parts, cuda::CUdeviceptr out, int64_t heads,
                  cuda::CUstream stream) const;

 private:
  SumPass(Workbench& bench, int64_t plane) : bench_(bench), plane_(plane) {}
  Workbench& bench_;
  int64_t plane_;
  cuda::CUmodule module_ = nullptr;
  cuda::CUfunction function_ = nullptr;
};

}  // namespace trigen
