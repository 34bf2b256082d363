// The three ops as one form: out[row, column] = sum over k of coefficient[row, k] * column[k], for one head.
//
//   op           row  k       column  coefficient   column's element
//   forward      t    (s, j)  (b, d)  W[h,t,s,j]    x[b,h,s,d+j-pad]
//   grad_input   s    (t, j)  (b, d)  W[h,t,s,j]    dy[b,h,t,d-j+pad]
//   grad_weight  t    (b, d)  (s, j)  dy[b,h,t,d]   x[b,h,s,d+j-pad]
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "check/tensors.h"

namespace trigen {

class Operands {
 public:
  Operands(const Problem& problem, const TensorList& list, const HostBuffers& buffers);

  int64_t depth() const;
  // The k inside the triangle for a row: [first, last). The other weights are never read.
  std::pair<int64_t, int64_t> range(int64_t row) const;
  void coefficients(int64_t h, int64_t row, int64_t k0, int64_t k1, double* out) const;
  void column(int64_t h, int64_t column, int64_t k0, int64_t k1, double* out, int64_t stride) const;
  // sum over (b, d) of dy[b,h,t,d], for all h * T + t: grad_bias.
  std::vector<double> row_sums() const;
  // The activations that columns are made of: x, or dy for grad_input. token is s (t), feature may lie
  // outside [0, D).
  double activation(int64_t b, int64_t h, int64_t token, int64_t feature) const {
    if (feature < 0 || feature >= problem_.D) return 0;
    return load_element_of(*columns_, column_data_,
                           activation_index(problem_, *columns_, b, h, token, feature));
  }

 private:
  static double load_element_of(const Tensor& tensor, const void* data, int64_t index);

  const Problem& problem_;
  const Tensor* columns_ = nullptr;  // its second: the activations that columns are made of
  const void* column_data_ = nullptr;
  const Tensor* rows_ = nullptr;  // the product's first operand: weights, or dy for grad_weight
  const void* row_data_ = nullptr;
};

}  // namespace trigen
