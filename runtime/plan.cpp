#include "runtime/plan.h"

#include "runtime/canary.h"

namespace trigen {

using namespace cuda;

namespace {

llvm::Error wrong_stream(const Executable& executable, CUstream stream, CUresult result, CUcontext owner) {
  const Device& device = executable.device();
  if (result != CUDA_SUCCESS)
    return device.driver().check(result, "cuStreamGetCtx", "the stream is not a CUDA stream");
  CUdevice other = -1;
  {
    const ContextScope scope(device.api(), owner);
    device.api().cuCtxGetDevice(&other);
  }
  const std::string here = "device " + std::to_string(device.info().ordinal);
  if (other != device.info().ordinal)
    return make_error(ErrorKind::kBadRequest, "the stream is of device " + std::to_string(other) +
                                                  ", the plan is for " + here + "; pass a stream of " + here);
  return make_error(ErrorKind::kBadRequest,
                    "the stream is of another context of " + here +
                        "; make the plan while that context is current, or pass a stream of the plan's");
}

// The emulated device reads PTX, every other one its cubin first.
BinaryParts first_parts(const Device& device) {
  return device.info().emulated ? BinaryParts::kAll : BinaryParts::kCubin;
}

}  // namespace

llvm::Expected<std::shared_ptr<const Plan>> Plan::create(const Problem& problem, const Device& device,
                                                         Store& store, const PlanOptions& options) {
  if (llvm::Error error = refuse_lost(device)) return error;
  // A kernel that its canary finds wrong is in quarantine then, and is not found again.
  constexpr int kMostWrong = 8;
  for (int wrong = 0; wrong < kMostWrong; ++wrong) {
    auto resolution = resolve(problem, device, store, options, first_parts(device));
    if (!resolution) return resolution.takeError();
    const bool canary = needs_canary(*resolution, device, store, options);
    const bool without_ptx = resolution->binary.ptx.empty();
    auto plan = load(std::move(*resolution), device, LoadFrom::kAuto, options);
    if (!plan && without_ptx) {  // a driver that refuses the cubin may take the PTX beside it
      auto whole = resolve(problem, device, store, options);
      if (whole && !whole->binary.ptx.empty()) {
        llvm::consumeError(plan.takeError());
        plan = load(std::move(*whole), device, LoadFrom::kAuto, options);
      } else if (!whole) {
        llvm::consumeError(whole.takeError());
      }
    }
    if (!plan || !canary) return plan;
    auto result = try_canary(**plan, device, store);
    if (!result) return result.takeError();
    if (*result != CanaryResult::kWrong) return plan;
    Executable::forget((*plan)->resolution().binary.key);
  }
  return make_error(ErrorKind::kCache,
                    "the canaries of " + std::to_string(kMostWrong) + " kernels for " + to_string(problem) +
                        " failed on " + device.info().name +
                        "; the device or the driver is at fault, or all these cache files are: "
                        "`trigen cache quarantine` shows what was found");
}

llvm::Expected<std::shared_ptr<const Plan>> Plan::of(const Candidate& candidate, Binary binary,
                                                     const Device& device, LoadFrom from,
                                                     const PlanOptions& options) {
  Resolution resolution;
  resolution.candidate = candidate;
  resolution.binary = std::move(binary);
  return load(std::move(resolution), device, from, options);
}

llvm::Expected<std::shared_ptr<const Plan>> Plan::load(Resolution resolution, const Device& device,
                                                       LoadFrom from, const PlanOptions& options) {
  auto context = device.context();
  if (!context) return context.takeError();
  auto executable = Executable::load(device, *context, resolution.candidate, resolution.binary, from);
  if (!executable) return executable.takeError();
  // The module has them. Plans that differ in the batch size share it, and would keep 200 KB each.
  for (std::string Binary::*blob : {&Binary::cubin, &Binary::ptx, &Binary::source, &Binary::log})
    std::string().swap(resolution.binary.*blob);
  std::shared_ptr<Plan> plan(new Plan);
  plan->resolution_ = std::move(resolution);
  plan->executable_ = std::move(*executable);
  plan->options_ = options;
  if (options.check_pointers) plan->seen_ = std::make_shared<SeenPointers>();
  return std::shared_ptr<const Plan>(std::move(plan));
}

llvm::Expected<std::shared_ptr<const Plan>> Plan::again(const Plan& plan, const Candidate& candidate,
                                                        const PlanOptions& options) {
  auto executable = Executable::again(plan.executable(), candidate);
  if (!executable) return executable.takeError();
  std::shared_ptr<Plan> made(new Plan);
  made->resolution_.candidate = candidate;
  made->executable_ = std::move(*executable);
  made->options_ = options;
  return std::shared_ptr<const Plan>(std::move(made));
}

llvm::Error Plan::run(const trigen_args& args, CUstream stream) const {
  Params params;
  ArgumentExtents extents;
  if (llvm::Error error =
          bind_arguments(problem(), workspace_bytes(), args, params, seen_ ? &extents : nullptr))
    return error;
  const Device& device = executable_->device();
  const DriverApi& api = device.api();
  if (seen_)
    if (llvm::Error error = check_pointers(device, args, extents, seen_.get())) return error;
  const ContextScope scope(api, executable_->context());
  if (scope.result() != CUDA_SUCCESS) return device.driver().check(scope.result(), "cuCtxPushCurrent");
  if (stream != kStreamDefault && stream != kStreamLegacy && stream != kStreamPerThread) {
    CUcontext owner = nullptr;
    const CUresult result = api.cuStreamGetCtx(stream, &owner);
    if (result != CUDA_SUCCESS || owner != executable_->context())
      return wrong_stream(*executable_, stream, result, owner);
  }
  if (const CUresult result = executable_->launch(params, stream, args.w_unchanged != 0);
      result != CUDA_SUCCESS)
    return device.driver().check(result, "launch",
                                 to_string(problem()) + "; " + describe(resolution_.candidate));
  if (options_.launch_blocking) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    api.cuStreamIsCapturing(stream, &status);
    if (status == CU_STREAM_CAPTURE_STATUS_NONE)
      return device.driver().check(api.cuStreamSynchronize(stream), "run (CUDA_LAUNCH_BLOCKING)",
                                   to_string(problem()) + "; " + describe(resolution_.candidate));
  }
  return llvm::Error::success();
}

}  // namespace trigen
