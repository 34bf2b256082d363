#include "libtorch/plain.h"
#include "libtorch/signatures.h"

namespace trigen::libtorch::cpu {
namespace {

std::pair<Tensor, Tensor> both(const Tensor& x, const Tensor& weight, const MaybeTensor& bias,
                               const MaybeTensor& gate, const MaybeTensor& residual, const Options& options) {
  const Sizes sizes = check_forward(x, weight, bias, gate, residual, options);
  return plain::forward(x, weight, bias, gate, residual, sizes, options);
}

}  // namespace

Tensor forward(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate, MaybeTensor residual, int64_t pad,
               std::string layout, std::string fill, int64_t diag, std::string activation, std::string math,
               std::string form) {
  return both(x, weight, bias, gate, residual, {pad, layout, fill, diag, activation, math, form}).first;
}

std::tuple<Tensor, Tensor> forward_pre(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate,
                                       MaybeTensor residual, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string activation,
                                       std::string math, std::string form) {
  auto [y, pre] = both(x, weight, bias, gate, residual, {pad, layout, fill, diag, activation, math, form});
  return {y, pre.data_ptr() == y.data_ptr() ? torch::stable::clone(pre) : pre};  // outputs alias nothing
}

Tensor grad_input(Tensor grad, Tensor weight, MaybeTensor residual, int64_t pad, std::string layout,
                  std::string fill, int64_t diag, std::string math, std::string form) {
  const Options options{pad, layout, fill, diag, "none", math, form};
  const Sizes sizes = check_grad_input(grad, weight, residual, options);
  return plain::grad_input(grad, weight, residual, sizes, options);
}

std::tuple<Tensor, Tensor> grad_weight(Tensor grad, Tensor x, std::vector<int64_t> weight_size,
                                       ScalarType weight_dtype, bool bias, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string math, std::string form) {
  const Options options{pad, layout, fill, diag, "none", math, form};
  const Sizes sizes = check_grad_weight(grad, x, weight_size, weight_dtype, options);
  return plain::grad_weight(grad, x, weight_size, weight_dtype, bias, sizes, options);
}

}  // namespace trigen::libtorch::cpu
