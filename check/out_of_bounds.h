// Out-of-bounds writes of a run, and outputs that it did not write.
#pragma once

#include <string>

#include "check/tensors.h"

namespace trigen {

// An output's element in words: "y[b=0,h=0,t=3,d=7]". `row` is h * T + t, `column` that of the op's product.
std::string place(const Problem& problem, const Tensor& tensor, int64_t row, int64_t column);

// The first place outside the tensor's own elements that was written; empty when there is none. For dW it
// also looks at the weights outside the triangle, and in all outputs for NaN (never written).
std::string find_out_of_bounds_write(const Problem& problem, const Tensor& tensor, const std::byte* buffer);

}  // namespace trigen
