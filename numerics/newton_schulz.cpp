#include "numerics/newton_schulz.h"

#include <algorithm>
#include <cmath>

namespace trigen {
namespace {

// A square or wide matrix, its rows one behind the other.
struct Matrix {
  int64_t rows, columns;
  std::vector<double> values = std::vector<double>(static_cast<size_t>(rows * columns));
  double* row(int64_t i) { return values.data() + i * columns; }
  const double* row(int64_t i) const { return values.data() + i * columns; }
};

// A B^T, which is symmetric.
Matrix symmetric_product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, a.rows};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      constexpr int kParts = 8;
      double parts[kParts] = {};
      const double *x = a.row(i), *y = b.row(j);
      int64_t k = 0;
      for (; k + kParts <= a.columns; k += kParts)
        for (int part = 0; part < kParts; ++part) parts[part] += x[k + part] * y[k + part];
      double sum = 0;
      for (const double part : parts) sum += part;
      for (; k < a.columns; ++k) sum += x[k] * y[k];
      out.row(i)[j] = out.row(j)[i] = sum;
    }
  return out;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.columns};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k) {
      const double factor = a.row(i)[k];
      const double* from = b.row(k);
      double* to = out.row(i);
      for (int64_t j = 0; j < b.columns; ++j) to[j] += factor * from[j];
    }
  return out;
}

}  // namespace

// On R alone, so that X is multiplied once: R <- Z R Z and Q <- Z Q with Z = a I + b R + c R R, polynomials of one symmetric
// matrix, which commute.
std::vector<double> newton_schulz(const Problem& p, int64_t b, int64_t h, InputReader read) {
  const auto number = [&](int64_t i) { return read(Role::kW, {0, 0, 0, i}); };
  Matrix x{p.T, p.D};
  double squares = 0;
  for (int64_t t = 0; t < p.T; ++t)
    for (int64_t d = 0; d < p.D; ++d) {
      const double value = x.row(t)[d] = read(Role::kX, {b, h, t, d});
      squares += value * value;
    }
  const double eps = number(3 * p.K), norm = eps < 0 ? 1 : std::max(std::sqrt(squares), eps);
  for (double& value : x.values) value /= norm;
  Matrix r = symmetric_product(x, x), q{p.T, p.T};
  for (int64_t t = 0; t < p.T; ++t) q.row(t)[t] = 1;
  for (int64_t step = 0; step < p.K; ++step) {
    Matrix z = symmetric_product(r, r);
    for (int64_t i = 0; i < p.T; ++i)
      for (int64_t j = 0; j < p.T; ++j)
        z.row(i)[j] = number(3 * step + 2) * z.row(i)[j] + number(3 * step + 1) * r.row(i)[j] +
                      (i == j ? number(3 * step) : 0);
    q = symmetric_product(q, z);
    r = symmetric_product(symmetric_product(r, z), z);
  }
  return product(q, x).values;
}

std::vector<float> checked_steps(const Problem& p) {
  std::vector<float> out;
  for (int64_t step = 0; step < p.K; ++step) {
    const double factor = step == 0 ? std::sqrt(static_cast<double>(std::min(p.T, p.D)) / 4) : 1;
    out.push_back(static_cast<float>((1.7 + static_cast<double>(step % 3) / 16) * factor));
    out.push_back(static_cast<float>(-0.5 * std::pow(factor, 3)));
    out.push_back(static_cast<float>(-0.2 * std::pow(factor, 5)));
  }
  out.push_back(1e-7F);
  return out;
}

}  // namespace trigen
