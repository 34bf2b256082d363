#include "check/operands.h"

#include <algorithm>

#include "check/parallel.h"
#include "numerics/numbers.h"

namespace trigen {

Operands::Operands(const Problem& problem, const TensorList& list, const HostBuffers& buffers)
    : problem_(problem) {
  auto bind = [&](Role role, const Tensor*& tensor, const void*& data) {
    tensor = list.find(role);
    const auto at = static_cast<size_t>(tensor - list.tensors.data());
    data = buffers[at].data() + tensor->offset_bytes;
  };
  bind(problem.op == Op::kGradInput ? Role::kY : Role::kX, columns_, column_data_);
  bind(problem.op == Op::kGradWeight ? Role::kY : Role::kW, rows_, row_data_);
}

double Operands::load_element_of(const Tensor& tensor, const void* data, int64_t index) {
  return load_element(tensor.dtype, data, index);
}

int64_t Operands::depth() const {
  return problem_.op == Op::kGradWeight ? problem_.B * problem_.D : problem_.T * problem_.K;
}

std::pair<int64_t, int64_t> Operands::range(int64_t row) const {
  const Problem& p = problem_;
  auto clamp = [&](int64_t token) { return std::clamp<int64_t>(token, 0, p.T) * p.K; };
  const bool lower = p.fill == Fill::kLower;
  if (p.op == Op::kGradWeight) return {0, depth()};
  if (p.op == Op::kForward || p.op == Op::kDecode) {
    return lower ? std::pair(int64_t{0}, clamp(row + p.diag + 1)) : std::pair(clamp(row + p.diag), p.T * p.K);
  }
  return lower ? std::pair(clamp(row - p.diag), p.T * p.K) : std::pair(int64_t{0}, clamp(row - p.diag + 1));
}

void Operands::coefficients(int64_t h, int64_t row, int64_t k0, int64_t k1, double* out) const {
  const Problem& p = problem_;
  for (int64_t k = k0; k < k1; ++k) {
    if (p.op == Op::kGradWeight) {
      out[k - k0] =
          load_element(rows_->dtype, row_data_, activation_index(p, *rows_, k / p.D, h, row, k % p.D));
      continue;
    }
    const int64_t t = p.op != Op::kGradInput ? row : k / p.K;
    const int64_t s = p.op != Op::kGradInput ? k / p.K : row;
    // weights that are wider than the data are rounded when they are loaded
    out[k - k0] =
        round_to(p.dtype, load_element(rows_->dtype, row_data_, weight_index(p, *rows_, h, t, s, k % p.K)));
  }
}

void Operands::column(int64_t h, int64_t column, int64_t k0, int64_t k1, double* out, int64_t stride) const {
  const Problem& p = problem_;
  if (p.op == Op::kGradWeight) {
    const int64_t s = column / p.K;
    const int64_t shift = column % p.K - p.pad;
    for (int64_t k = k0; k < k1; ++k) out[(k - k0) * stride] = activation(k / p.D, h, s, k % p.D + shift);
    return;
  }
  const int64_t b = column / p.D;
  const int64_t d = column % p.D;
  for (int64_t k = k0; k < k1; ++k) {
    const int64_t shift = k % p.K - p.pad;
    out[(k - k0) * stride] = activation(b, h, k / p.K, p.op != Op::kGradInput ? d + shift : d - shift);
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
