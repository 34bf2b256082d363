#include "peers/ptx_kernel.h"

namespace trigen {

llvm::Expected<std::unique_ptr<PtxKernel>> PtxKernel::load(Workbench& bench, const std::string& ptx,
                                                           const char* entry, const char* what) {
  std::unique_ptr<PtxKernel> kernel(new PtxKernel(bench, what));
  const Driver& driver = bench.device().driver();
  const ContextScope scope(driver.api(), bench.context());
  if (auto error =
          driver.check(driver.api().cuModuleLoadDataEx(&kernel->module_, ptx.c_str(), 0, nullptr, nullptr),
                       "cuModuleLoadDataEx", what))
    return error;
  if (auto error = driver.check(driver.api().cuModuleGetFunction(&kernel->function_, kernel->module_, entry),
                                "cuModuleGetFunction"))
    return error;
  return kernel;
}

PtxKernel::~PtxKernel() {
  const ContextScope scope(bench_.device().api(), bench_.context());
  if (module_ != nullptr) bench_.device().api().cuModuleUnload(module_);
}

llvm::Error PtxKernel::launch(std::array<uint32_t, 2> grid, std::array<uint32_t, 2> block,
                              cuda::CUstream stream, void** arguments) const {
  const Driver& driver = bench_.device().driver();
  return driver.check(driver.api().cuLaunchKernel(function_, grid[0], grid[1], 1, block[0], block[1], 1, 0,
                                                  stream, arguments, nullptr),
                      "cuLaunchKernel", what_);
}

}  // namespace trigen
