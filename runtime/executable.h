// A binary loaded on a device, with the launch geometry of its candidate. What the tuner times and what a
// plan runs.
#pragma once

#include <memory>

#include "cache/store.h"
#include "generator/candidate.h"
#include "runtime/device.h"
#include "templates/params.h"

namespace trigen {

enum class LoadFrom { kAuto, kCubin, kPtx };  // kAuto: the cubin where the device runs it, else the PTX

class Executable {
 public:
  // Loads into `context` (Device::context()). Do it outside stream capture. Executables of one binary in one
  // context share the loaded module. Errors: device (the driver's refusal, with its PTX log and what to do).
  static llvm::Expected<std::shared_ptr<const Executable>> load(const Device& device, cuda::CUcontext context,
                                                                const Candidate& candidate,
                                                                const Binary& binary,
                                                                LoadFrom from = LoadFrom::kAuto);
  // The loaded binary of another one, whose candidate differs in the batch size alone.
  static llvm::Expected<std::shared_ptr<const Executable>> again(const Executable& loaded,
                                                                 const Candidate& candidate);
  // Later loads of this key make a module of their own: what is loaded under it is wrong.
  static void forget(const BinaryKey& key);
  ~Executable();
  const Candidate& candidate() const { return candidate_; }
  const Device& device() const { return *device_; }
  cuda::CUcontext context() const { return context_; }
  int64_t workspace_bytes() const { return plan_.workspace_bytes; }
  const LaunchPlan& launch_plan() const { return plan_; }
  bool from_ptx() const { return from_ptx_; }
  // Of the workspace, made by the launch that `w_unchanged` leaves out; 0: there is none.
  int64_t prepared_bytes() const { return plan_.prepared_bytes; }

  // Launches everything in stream order. The context must be current. Asynchronous; no lock, no allocation,
  // no sync; safe under stream capture and from several threads. Params must be checked already
  // (arguments.h). `w_unchanged`: of trigen_args; no launch is given W then, so that one which still reads it faults.
  cuda::CUresult launch(const Params& params, cuda::CUstream stream, bool w_unchanged = false) const {
    if (w_unchanged && prepared_bytes() > 0) return launch_prepared(params, stream);
    if (packs_) return launch_packed(params, stream);
    return launch_steps(params, params, stream);
  }

 private:
  struct Step {
    cuda::CUfunction function = nullptr;
    uint32_t grid[3], block[3], cluster = 1, shared_bytes = 0;
    bool early = false, packed = false, prepares_w = false;
    llvm::SmallVector<TensorMapSpec, kMostMaps> maps;
  };
  // Functions and geometry out of a loaded module.
  llvm::Error find_functions(cuda::CUmodule module, const std::string& what);
  // `packed`: what Launch::packed says.
  cuda::CUresult launch_steps(const Params& own, const Params& packed, cuda::CUstream stream) const {
    for (const Step& step : steps_) {
      if (step.prepares_w && own.w == nullptr) continue;
      const Params& params = step.packed ? packed : own;
      void* arguments[] = {const_cast<Params*>(&params)};
      const auto result = !step.maps.empty() ? launch_mapped(step, params, stream)
                          : step.cluster > 1 || step.early
                              ? launch_with_attributes(step, arguments, stream)
                              : api_->cuLaunchKernel(step.function, step.grid[0], step.grid[1], step.grid[2],
                                                     step.block[0], step.block[1], step.block[2],
                                                     step.shared_bytes, stream, arguments, nullptr);
      if (result != cuda::CUDA_SUCCESS) return result;
    }
    return cuda::CUDA_SUCCESS;
  }
  cuda::CUresult launch_packed(const Params& params, cuda::CUstream stream) const;
  cuda::CUresult launch_prepared(const Params& params, cuda::CUstream stream) const;
  // With tensor maps after Params, made on the stack for this run.
  cuda::CUresult launch_mapped(const Step& step, const Params& params, cuda::CUstream stream) const;
  cuda::CUresult launch_with_attributes(const Step& step, void** arguments, cuda::CUstream stream) const;

  Candidate candidate_;
  LaunchPlan plan_;
  const Device* device_ = nullptr;
  const DriverApi* api_ = nullptr;
  cuda::CUcontext context_ = nullptr;
  std::vector<Step> steps_;
  bool from_ptx_ = false, packs_ = false;
  std::shared_ptr<void> module_;
};

}  // namespace trigen
