#include "check/workbench.h"

#include <algorithm>

#include "check/text.h"
#include "runtime/arguments.h"

namespace trigen {
namespace {

// Sets of 0.12 MB and more outgrow a 60 MB L2 twice; a timed graph has a launch for each.
constexpr int kMaxSets = 1024;

}  // namespace

llvm::Expected<Rows> rows_from(const Problem& p, std::optional<int64_t> first_row) {
  if (!first_row) return longest_rows(p);
  if (!op_row(p.op).takes(kRowsField) || *first_row < 0 || *first_row >= p.T)
    return make_error(ErrorKind::kBadRequest,
                      "first_row=" + llvm::Twine(*first_row) + " with " + to_string(p) +
                          "; allowed are the rows 0 to T-1 of decode; leave it out for the longest rows");
  return Rows{*first_row, std::min(p.rows, p.T - *first_row)};
}

llvm::Error Workbench::allocate(int64_t bytes, cuda::CUdeviceptr& out) {
  const auto result = device_->api().cuMemAlloc(&out, static_cast<cuda::size_type>(bytes));
  if (result != cuda::CUDA_SUCCESS) {
    return device_->driver().check(result, "cuMemAlloc",
                                   format_bytes(static_cast<double>(bytes)) + " for the tensors of " +
                                       to_string(problem_) + "; free device memory or use a smaller B");
  }
  allocations_.push_back(out);
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Workbench>> Workbench::create(const Device& device, const Problem& problem,
                                                             const WorkbenchOptions& options) {
  std::unique_ptr<Workbench> bench(new Workbench);
  bench->device_ = &device;
  bench->problem_ = problem;
  auto context = device.context();
  if (!context) return context.takeError();
  bench->context_ = *context;
  const DriverApi& api = device.api();
  const ContextScope scope(api, *context);
  if (auto error = device.driver().check(scope.result(), "cuCtxPushCurrent")) return error;
  if (auto error = device.driver().check(api.cuStreamCreate(&bench->stream_, cuda::CU_STREAM_NON_BLOCKING),
                                         "cuStreamCreate"))
    return error;

  bench->list_ = tensors_of(problem, options.gap, options.rows);
  bench->inputs_ = make_inputs(problem, bench->list_, options.seed);
  int64_t bytes = 0;  // not 0 in the end: every problem has tensors, and each a guard
  for (const Tensor& t : bench->list_.tensors)
    if (bench->stored_as(1, t.role) == t.role) bytes += round_up(t.buffer_bytes(), 256);
  bench->set_bytes_ = bytes;
  int sets = 1;
  if (options.rotate && bytes > 0) {
    // all sets together twice the L2, so that a set is gone from it when its turn comes again
    const int64_t wanted = 2 * device.info().l2_bytes / bytes + 2;
    cuda::size_type free_bytes = 0;
    cuda::size_type total_bytes = 0;
    if (auto error = device.driver().check(api.cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo"))
      return error;
    const int64_t fit = static_cast<int64_t>(free_bytes / 10 * 8) / bytes;
    sets = static_cast<int>(std::clamp<int64_t>(std::min(wanted, fit), 1, kMaxSets));
  }
  if (device.info().emulated) {
    auto emulated = EmulatedDevice::of(device);
    if (!emulated) return emulated.takeError();
    bench->emulated_ = *emulated;
  }
  for (int set = 0; set < sets; ++set) {
    auto& pointers = bench->sets_.emplace_back();
    for (size_t i = 0; i < bench->list_.tensors.size(); ++i) {
      const Tensor& t = bench->list_.tensors[i];
      // an allocation each, so that memory checkers see where a tensor ends
      cuda::CUdeviceptr base = 0;
      if (bench->stored_as(set, t.role) != t.role) {
        pointers.push_back(base);
        continue;
      }
      if (auto error = bench->allocate(t.buffer_bytes(), base)) return error;
      pointers.push_back(base);
      const auto size = static_cast<cuda::size_type>(t.buffer_bytes());
      const auto result = set == 0 ? api.cuMemcpyHtoD(base, bench->inputs_[i].data(), size)
                                   : api.cuMemcpyDtoD(base, bench->sets_[0][i], size);
      if (auto error = device.driver().check(result, "cuMemcpy")) return error;
      if (bench->emulated_ && !t.written) bench->emulated_->make_read_only(base);
    }
  }
  if (auto error = device.driver().check(api.cuCtxSynchronize(), "cuCtxSynchronize")) return error;
  return bench;
}

Workbench::~Workbench() {
  if (context_ == nullptr) return;
  const DriverApi& api = device_->api();
  const ContextScope scope(api, context_);
  if (stream_ != nullptr) {
    api.cuStreamSynchronize(stream_);
    api.cuStreamDestroy(stream_);
  }
  for (const cuda::CUdeviceptr pointer : allocations_) api.cuMemFree(pointer);
}

// A product of A and A is what gram is called for most, and reads half of the memory.
Role Workbench::stored_as(int set, Role role) const {
  return set > 0 && problem_.op == Op::kGram && role == Role::kX ? Role::kY : role;
}

void* Workbench::data(int set, Role role) const {
  role = stored_as(set, role);
  const Tensor* t = list_.find(role);
  if (t == nullptr) return nullptr;
  const auto at = static_cast<size_t>(t - list_.tensors.data());
  return device_pointer(sets_[static_cast<size_t>(set)][at] +
                        static_cast<cuda::CUdeviceptr>(t->offset_bytes));
}

llvm::Expected<trigen_args> Workbench::args(int set, int64_t workspace_bytes) {
  if (workspace_bytes > workspace_bytes_) {
    const ContextScope scope(device_->api(), context_);
    if (auto error = synchronize()) return error;
    if (auto error = allocate(workspace_bytes, workspace_))
      return error;  // the smaller one is freed at the end
    workspace_bytes_ = workspace_bytes;
  }
  trigen_args out = TRIGEN_ARGS_INIT;
  if (op_row(problem_.op).takes(kRowsField)) out.first_row = list_.rows.first, out.rows = list_.rows.count;
  if (op_row(problem_.op).takes(kFactorsField)) {
    out.alpha = kCheckedAlpha;
    out.gamma = kCheckedGamma;
    if (problem_.epilogue.residual) out.beta = kCheckedBeta;
  }
  for (const Tensor& t : list_.tensors) set_argument(out, t, data(set, t.role));
  if (workspace_bytes > 0) {
    out.workspace = device_pointer(workspace_);
    out.workspace_size = static_cast<size_t>(workspace_bytes);
  }
  return out;
}

llvm::Expected<trigen_args> Workbench::args_of_own_workspace(int set, int64_t workspace_bytes) {
  auto out = args(set, 0);
  if (!out || workspace_bytes == 0) return out;
  const ContextScope scope(device_->api(), context_);
  cuda::CUdeviceptr workspace = 0;
  if (auto error = allocate(workspace_bytes, workspace)) return error;
  out->workspace = device_pointer(workspace);
  out->workspace_size = static_cast<size_t>(workspace_bytes);
  return out;
}

llvm::Expected<trigen_args> Workbench::args_of_pointers(int set, int64_t workspace_bytes) {
  auto out = args(set, workspace_bytes);
  if (!out) return out;
  const int64_t count = pointer_count(problem_);
  arrays_.resize(sets_.size());
  cuda::CUdeviceptr& arrays = arrays_[static_cast<size_t>(set)];  // one for each tensor
  const int64_t bytes = static_cast<int64_t>(list_.tensors.size()) * count * int64_t{sizeof arrays};
  if (arrays == 0) {
    std::vector<cuda::CUdeviceptr> pointers;
    for (const Tensor& t : list_.tensors) {
      const auto first = std::bit_cast<cuda::CUdeviceptr>(data(set, t.role));
      const int64_t distance = distance_of_pointers(problem_, t) * element_size(t.dtype);
      for (int64_t i = count - 1; i >= 0; --i)
        pointers.push_back(first + static_cast<cuda::CUdeviceptr>(i * distance));
    }
    const ContextScope scope(device_->api(), context_);
    if (auto error = allocate(bytes, arrays)) return error;
    const auto result =
        device_->api().cuMemcpyHtoD(arrays, pointers.data(), static_cast<cuda::size_type>(bytes));
    if (auto error = device_->driver().check(result, "cuMemcpyHtoD")) return error;
    // The copy is another stream's, and stream_ waits for none.
    if (auto error = device_->driver().check(device_->api().cuCtxSynchronize(), "cuCtxSynchronize"))
      return error;
  }
  for (const Tensor& t : list_.tensors) {
    if (!takes_pointers(problem_, *tensor_of(problem_.op, t.role))) continue;
    const Tensor* const stored = list_.find(stored_as(set, t.role));
    const int64_t at = (stored - list_.tensors.data()) * count * int64_t{sizeof arrays};
    set_pointers(*out, t, device_pointer(arrays + static_cast<cuda::CUdeviceptr>(at)));
  }
  return out;
}

llvm::Error Workbench::put_inputs(const HostBuffers& inputs) {
  const DriverApi& api = device_->api();
  const ContextScope scope(api, context_);
  if (auto error = synchronize()) return error;
  for (size_t i = 0; i < list_.tensors.size(); ++i) {
    if (!list_.tensors[i].read) continue;
    const auto result = api.cuMemcpyHtoD(sets_[0][i], inputs[i].data(), inputs[i].size());
    if (auto error = device_->driver().check(result, "cuMemcpyHtoD")) return error;
  }
  set_0_ = &inputs;
  return llvm::Error::success();
}

llvm::Error Workbench::poison(bool keep_workspace) {
  const DriverApi& api = device_->api();
  const ContextScope scope(api, context_);
  for (size_t i = 0; i < list_.tensors.size(); ++i) {
    const Tensor& t = list_.tensors[i];
    if (!t.written) continue;
    const auto size = static_cast<cuda::size_type>(t.buffer_bytes());
    const auto result = t.read ? api.cuMemcpyHtoDAsync(sets_[0][i], (*set_0_)[i].data(), size, stream_)
                               : api.cuMemsetD8Async(sets_[0][i], kPoison, size, stream_);
    if (auto error = device_->driver().check(result, "cuMemsetD8Async")) return error;
  }
  const bool forget = workspace_bytes_ > 0 && !keep_workspace;
  if (forget) {
    const auto result =
        api.cuMemsetD8Async(workspace_, kPoison, static_cast<cuda::size_type>(workspace_bytes_), stream_);
    if (auto error = device_->driver().check(result, "cuMemsetD8Async")) return error;
  }
  if (auto error = synchronize()) return error;
  if (emulated_) {
    if (forget) emulated_->forget(workspace_, workspace_bytes_);
    emulated_->assume_busy();
  }
  return llvm::Error::success();
}

llvm::Expected<const HostBuffers&> Workbench::download(bool again) {
  const DriverApi& api = device_->api();
  const ContextScope scope(api, context_);
  if (auto error = synchronize()) return error;
  HostBuffers& out = downloads_[again ? 1 : 0];
  out.resize(list_.tensors.size());
  for (size_t i = 0; i < list_.tensors.size(); ++i) {
    const Tensor& t = list_.tensors[i];
    if (!t.written) continue;
    out[i].resize(static_cast<size_t>(t.buffer_bytes()));
    if (auto error = device_->driver().check(api.cuMemcpyDtoH(out[i].data(), sets_[0][i], out[i].size()),
                                             "cuMemcpyDtoH"))
      return error;
  }
  return out;
}

llvm::Error Workbench::synchronize() const {
  const ContextScope scope(device_->api(), context_);
  return device_->driver().check(device_->api().cuStreamSynchronize(stream_), "cuStreamSynchronize",
                                 to_string(problem_));
}

}  // namespace trigen
