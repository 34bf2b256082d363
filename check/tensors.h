// The contents of a problem's tensors in a check.
#pragma once

#include <cstddef>
#include <vector>

#include "numerics/tensors.h"

namespace trigen {

// Buffers on the host, in the order of TensorList::tensors, offsets included.
using HostBuffers = std::vector<std::vector<std::byte>>;
// The first element of a tensor of the list.
inline const std::byte* data_of(const TensorList& list, const Tensor& t, const HostBuffers& buffers) {
  return buffers[static_cast<size_t>(&t - list.tensors.data())].data() + t.offset_bytes;
}
// Inputs are random (check/numbers.h; weights scaled so that an activation sees its curved part), everything
// else is poison: gaps, outputs, and the weights outside the triangle. grad_weight with accumulate has random
// numbers inside the triangle. decode: x is poison beyond the tokens that the rows reach, W in all other
// rows.
HostBuffers make_inputs(const Problem& problem, const TensorList& list, uint64_t seed);

// Tokens of an activation tensor that hold numbers: all of them, but of what is multiplied by a few rows those that the
// rows reach.
Tokens used_tokens(const Problem& problem, const Tensor& tensor, Rows rows);

}  // namespace trigen
