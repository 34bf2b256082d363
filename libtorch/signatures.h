// The operators as C++ functions, for each kind of tensor.
#pragma once

#include <tuple>

#include "libtorch/call.h"

// On a GPU: trigen's plans for the tensors as they lie.
namespace trigen::libtorch::kernels {

Tensor forward(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate, MaybeTensor residual, int64_t pad,
               std::string layout, std::string fill, int64_t diag, std::string activation, std::string math,
               std::string form);
std::tuple<Tensor, Tensor> forward_pre(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate,
                                       MaybeTensor residual, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string activation,
                                       std::string math, std::string form);
Tensor grad_input(Tensor grad, Tensor weight, MaybeTensor residual, int64_t pad, std::string layout,
                  std::string fill, int64_t diag, std::string math, std::string form);
std::tuple<Tensor, Tensor> grad_weight(Tensor grad, Tensor x, std::vector<int64_t> weight_size,
                                       ScalarType weight_dtype, bool bias, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string math, std::string form);

}  // namespace trigen::libtorch::kernels

// On a CPU: ATen operations.
namespace trigen::libtorch::cpu {

Tensor forward(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate, MaybeTensor residual, int64_t pad,
               std::string layout, std::string fill, int64_t diag, std::string activation, std::string math,
               std::string form);
std::tuple<Tensor, Tensor> forward_pre(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate,
                                       MaybeTensor residual, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string activation,
                                       std::string math, std::string form);
Tensor grad_input(Tensor grad, Tensor weight, MaybeTensor residual, int64_t pad, std::string layout,
                  std::string fill, int64_t diag, std::string math, std::string form);
std::tuple<Tensor, Tensor> grad_weight(Tensor grad, Tensor x, std::vector<int64_t> weight_size,
                                       ScalarType weight_dtype, bool bias, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string math, std::string form);

}  // namespace trigen::libtorch::cpu
