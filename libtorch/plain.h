// The operators in ATen operations: every CPU tensor, and what no kernel takes (float64, an empty batch, a
// triangle without an entry). The arithmetic is that of python/trigen/torch/plain.py: the weight is masked by
// index and rounded to x's dtype, 16-bit data is multiplied and added up in float32, and one rounding ends
// it.
#pragma once

#include <utility>

#include "libtorch/call.h"

namespace trigen::libtorch::plain {

// (y, pre), both like x and contiguous.
std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& weight, const MaybeTensor& bias,
                                  const MaybeTensor& gate, const MaybeTensor& residual, const Sizes& sizes,
                                  const Options& options);
Tensor grad_input(const Tensor& grad, const Tensor& weight, const MaybeTensor& residual, const Sizes& sizes,
                  const Options& options);
// (dW of weight_size, grad_bias; that is empty unless bias asks for it).
std::pair<Tensor, Tensor> grad_weight(const Tensor& grad, const Tensor& x, Shape weight_size,
                                      ScalarType weight_dtype, bool bias, const Sizes& sizes,
                                      const Options& options);

}  // namespace trigen::libtorch::plain
