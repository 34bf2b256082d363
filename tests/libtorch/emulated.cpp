// libtrigen_torch.so's GPU kernels under CPU tensors, on the emulated device (TRIGEN_DRIVER): each call's
// tensors are copied into emulated memory, where the ends of an allocation are checked, and its outputs back.
// Stands in place of memory.cpp and cpu.cpp.
#include <trigen/trigen_memory.h>

#include <algorithm>

#include "libtorch/memory.h"
#include "libtorch/signatures.h"

namespace trigen::libtorch {
namespace {

thread_local std::vector<void*> allocated;

void must(trigen_status status) {
  if (status != TRIGEN_OK) refuse(trigen_last_error());
}

trigen_runtime* device() {
  static trigen_runtime* const made = [] {
    trigen_runtime* runtime = nullptr;
    must(trigen_runtime_create(nullptr, &runtime));
    return runtime;
  }();
  return made;
}

Tensor blob(void* data, Shape sizes, Shape strides, ScalarType dtype) {
  AtenTensorHandle made = nullptr;
  succeed(aoti_torch_create_tensor_from_blob(
      data, static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), 0,
      torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype)), aoti_torch_device_type_cpu(), 0,
      &made));
  return Tensor(made);
}

void* allocate(size_t bytes) {
  void* data = nullptr;
  must(trigen_memory_allocate(device(), 0, bytes, &data));
  allocated.push_back(data);
  return data;
}

// A copy with the same strides in emulated memory.
Tensor put(const Tensor& tensor) {
  size_t extent = 1;
  for (int64_t axis = 0; axis < tensor.dim(); ++axis)
    extent += static_cast<size_t>((tensor.size(axis) - 1) * tensor.stride(axis));
  const size_t bytes = tensor.numel() == 0 ? 0 : extent * tensor.element_size();
  void* const data = allocate(bytes);
  if (bytes > 0) must(trigen_memory_write(device(), 0, data, tensor.data_ptr(), bytes));
  return blob(data, tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

MaybeTensor put(const MaybeTensor& tensor) { return tensor ? MaybeTensor(put(*tensor)) : std::nullopt; }

Tensor get(const Tensor& tensor) {
  if (std::ranges::find(allocated, tensor.data_ptr()) == allocated.end())
    return tensor;  // ATen's operations made it
  Tensor host = torch::stable::empty_like(tensor);
  const size_t bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  if (bytes > 0) must(trigen_memory_read(device(), 0, host.data_ptr(), tensor.data_ptr(), bytes));
  return host;
}

struct Call {
  ~Call() {
    for (void* data : allocated) (void)trigen_memory_free(device(), 0, data);
    allocated.clear();
  }
};

}  // namespace

Tensor empty(Shape sizes, ScalarType dtype, const Tensor&) {
  std::vector<int64_t> strides(sizes.size(), 1);
  size_t count = 1;
  for (size_t axis = sizes.size(); axis-- > 0;) {
    strides[axis] = static_cast<int64_t>(count);
    count *= static_cast<size_t>(sizes[axis]);
  }
  const size_t element = dtype == ScalarType::Byte ? 1 : dtype == ScalarType::Float ? 4 : 2;
  return blob(allocate(count * element), sizes, strides, dtype);
}

Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : put(torch::stable::contiguous(tensor));
}

void* current_stream(int) { return nullptr; }

namespace cpu {

Tensor forward(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate, MaybeTensor residual, int64_t pad,
               std::string layout, std::string fill, int64_t diag, std::string activation, std::string math,
               std::string form) {
  const Call call;
  return get(kernels::forward(put(x), put(weight), put(bias), put(gate), put(residual), pad, layout, fill,
                              diag, activation, math, form));
}

std::tuple<Tensor, Tensor> forward_pre(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate,
                                       MaybeTensor residual, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string activation,
                                       std::string math, std::string form) {
  const Call call;
  const auto [y, pre] = kernels::forward_pre(put(x), put(weight), put(bias), put(gate), put(residual), pad,
                                             layout, fill, diag, activation, math, form);
  return {get(y), get(pre)};
}

Tensor grad_input(Tensor grad, Tensor weight, MaybeTensor residual, int64_t pad, std::string layout,
                  std::string fill, int64_t diag, std::string math, std::string form) {
  const Call call;
  return get(kernels::grad_input(put(grad), put(weight), put(residual), pad, layout, fill, diag, math, form));
}

std::tuple<Tensor, Tensor> grad_weight(Tensor grad, Tensor x, std::vector<int64_t> weight_size,
                                       ScalarType weight_dtype, bool bias, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string math, std::string form) {
  const Call call;
  const auto [dw, db] = kernels::grad_weight(put(grad), put(x), weight_size, weight_dtype, bias, pad, layout,
                                             fill, diag, math, form);
  return {get(dw), get(db)};
}

}  // namespace cpu
}  // namespace trigen::libtorch
