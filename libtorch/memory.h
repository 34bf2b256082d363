// Memory for outputs and workspaces, and the stream that kernels run on.
#pragma once

#include "libtorch/call.h"

namespace trigen::libtorch {

// Contiguous, uninitialised, on like's device: the caching allocator's on a GPU.
Tensor empty(Shape sizes, ScalarType dtype, const Tensor& like);
// The tensor itself where it is contiguous, else a copy that is.
Tensor dense(const Tensor& tensor);
// The stream of this thread on that device, as a CUstream.
void* current_stream(int device);

}  // namespace trigen::libtorch
