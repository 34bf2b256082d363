// A kernel of the peers' own PTX, compiled by the driver (no NVRTC).
#pragma once

#include <array>
#include <memory>

#include "check/workbench.h"

namespace trigen {

class PtxKernel {
 public:
  // In the workbench's context, which must outlive the kernel. `what` names it in errors. Error: device.
  static llvm::Expected<std::unique_ptr<PtxKernel>> load(Workbench& bench, const std::string& ptx,
                                                         const char* entry, const char* what);
  ~PtxKernel();
  PtxKernel(const PtxKernel&) = delete;
  PtxKernel& operator=(const PtxKernel&) = delete;
  // `arguments`: a pointer to each of the kernel's parameters.
  llvm::Error launch(std::array<uint32_t, 2> grid, std::array<uint32_t, 2> block, cuda::CUstream stream,
                     void** arguments) const;

 private:
  PtxKernel(Workbench& bench, const char* what) : bench_(bench), what_(what) {}
  Workbench& bench_;
  const char* what_;
  cuda::CUmodule module_ = nullptr;
  cuda::CUfunction function_ = nullptr;
};

}  // namespace trigen
