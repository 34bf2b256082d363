#include "libtorch/memory.h"

// LibTorch's CUDA part alone has this entry; where the entry is missing, no tensor is on a GPU.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device,
                                                                                   void** stream);

namespace trigen::libtorch {

Tensor empty(Shape sizes, ScalarType dtype, const Tensor& like) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t axis = sizes.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * sizes[axis];
  int32_t device_type = 0;
  succeed(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle made = nullptr;
  succeed(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                                   torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype)),
                                   device_type, like.get_device_index(), &made));
  return Tensor(made);
}

Tensor dense(const Tensor& tensor) { return torch::stable::contiguous(tensor); }

void* current_stream(int device) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr)
    refuse("this LibTorch has no CUDA; allowed: tensors of a CPU");
  succeed(aoti_torch_get_current_cuda_stream(device, &stream));
  return stream;
}

}  // namespace trigen::libtorch
