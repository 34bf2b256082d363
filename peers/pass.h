// One elementwise pass over a product's output: what a program does today for the epilogue that cuBLAS lacks.
// The peer at its best: a single kernel for all terms, 16 bytes an access, in place.
#pragma once

#include <memory>

#include "peers/ptx_kernel.h"

namespace trigen {

class EpiloguePass {
 public:
  // The terms `epilogue` of the problem's (all of them, or what a product left over). For forward and
  // grad_input in btd with dense rows and heads of a multiple of 8 elements, 16-bit data, no pre-activation.
  // Errors: unsupported, device.
  static llvm::Expected<std::unique_ptr<EpiloguePass>> create(Workbench& bench, const Epilogue& epilogue);
  // y = act(y + bias) * gate + residual (dx = dx + residual) on a set of the workbench; GELU by tanh.approx,
  // the cheapest there is.
  llvm::Error run(int set, cuda::CUstream stream) const;

 private:
  EpiloguePass(Workbench& bench, Role output, std::unique_ptr<PtxKernel> kernel)
      : bench_(bench), output_(output), kernel_(std::move(kernel)) {}
  Workbench& bench_;
  Role output_;
  std::unique_ptr<PtxKernel> kernel_;
};

// The pass's PTX for a problem with these terms as its epilogue, for tests.
std::string epilogue_pass_ptx(const Problem& problem);

}  // namespace trigen
