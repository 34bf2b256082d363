#include "check/operands.h"

#include "check/parallel.h"
#include "numerics/numbers.h"

namespace trigen {

Operands::Operands(const Problem& problem, const TensorList& list, const HostBuffers& buffers)
    : problem_(problem) {
  auto bind = [&](Role role, const Tensor*& tensor, const void*& data) {
    tensor = list.find(role);
    data = data_of(list, *tensor, buffers);
  };
  bind(op_row(problem.op).product->b, columns_, column_data_);
  bind(op_row(problem.op).product->a, rows_, row_data_);
}

double Operands::load_element_of(const Tensor& tensor, const void* data, int64_t index) {
  return load_element(tensor.dtype, data, index);
}

int64_t Operands::depth() const {
  return makes_weights(problem_.op) ? problem_.B * problem_.D : problem_.T * problem_.K;
}

std::pair<int64_t, int64_t> Operands::range(int64_t row) const {
  if (makes_weights(problem_.op)) return {0, depth()};
  const auto [first, last] = tokens_of_row(problem_, row);
  return {first * problem_.K, last * problem_.K};
}

void Operands::coefficients(int64_t h, int64_t row, int64_t k0, int64_t k1, double* out) const {
  const Problem& p = problem_;
  const bool transposed = transposes(p.op);
  for (int64_t k = k0; k < k1; ++k) {
    if (rows_->axes == Axes::kActivations) {
      out[k - k0] =
          load_element(rows_->dtype, row_data_, activation_index(p, *rows_, k / p.D, h, row, k % p.D));
      continue;
    }
    const int64_t t = transposed ? k / p.K : row, s = transposed ? row : k / p.K;
    // weights that are wider than the data are rounded when they are loaded
    out[k - k0] =
        round_to(p.dtype, load_element(rows_->dtype, row_data_, weight_index(p, *rows_, h, t, s, k % p.K)));
  }
}

void Operands::column(int64_t h, int64_t column, int64_t k0, int64_t k1, double* out, int64_t stride) const {
  const Problem& p = problem_;
  if (makes_weights(p.op)) {
    const int64_t s = column / p.K;
    const int64_t shift = column % p.K - p.pad;
    for (int64_t k = k0; k < k1; ++k) out[(k - k0) * stride] = activation(k / p.D, h, s, k % p.D + shift);
    return;
  }
  const int64_t b = column / p.D;
  const int64_t d = column % p.D;
  const bool transposed = transposes(p.op);
  for (int64_t k = k0; k < k1; ++k) {
    const int64_t shift = k % p.K - p.pad;
    out[(k - k0) * stride] = activation(b, h, k / p.K, transposed ? d - shift : d + shift);
  }
}

std::vector<double> Operands::row_sums() const {
  const Problem& p = problem_;
  std::vector<double> sums(static_cast<size_t>(p.H * p.T));
  parallel_for(p.H * p.T, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (int64_t b = 0; b < p.B; ++b) {
        for (int64_t d = 0; d < p.D; ++d) {
          sum +=
              load_element(rows_->dtype, row_data_, activation_index(p, *rows_, b, row / p.T, row % p.T, d));
        }
      }
      sums[static_cast<size_t>(row)] = sum;
    }
  });
  return sums;
}

}  // namespace trigen
