#include "check/correlation.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "check/parallel.h"

namespace trigen {
namespace {

using Complex = std::complex<double>;

constexpr int64_t kDirect = 1 << 26;  // multiply-adds, which take no longer than transforms do
constexpr int64_t kPanel = 16;        // columns that are read together, as they lie side by side

// Transforms of one power of two.
class Transform {
 public:
  explicit Transform(size_t size) : roots_(size / 2) {
    for (size_t i = 0; i < roots_.size(); ++i)
      roots_[i] = std::polar(1.0, -2 * std::acos(-1.0) * static_cast<double>(i) / static_cast<double>(size));
  }
  size_t size() const { return 2 * roots_.size(); }

  void operator()(std::vector<Complex>& v) const {
    for (size_t i = 1, j = 0; i < v.size(); ++i) {  // places with their bits the other way round
      size_t bit = v.size() / 2;
      for (; (j & bit) != 0; bit /= 2) j ^= bit;
      j ^= bit;
      if (i < j) std::swap(v[i], v[j]);
    }
    for (size_t half = 1; half < v.size(); half *= 2)
      for (size_t block = 0; block < v.size(); block += 2 * half)
        for (size_t i = 0; i < half; ++i) {
          const Complex w = roots_[i * (roots_.size() / half)], odd = v[block + half + i];
          const Complex other = {w.real() * odd.real() - w.imag() * odd.imag(),
                                 w.real() * odd.imag() + w.imag() * odd.real()};
          v[block + half + i] = v[block + i] - other;
          v[block + i] += other;
        }
  }

 private:
  std::vector<Complex> roots_;
};

// Adds dy^ conj(x^) of a column whose x and dy are the two parts of `v`.
void add_spectrum(std::vector<Complex>& v, const Transform& transform, std::vector<Complex>& sum) {
  transform(v);
  for (size_t k = 0; k < v.size(); ++k) {
    const Complex here = v[k], there = std::conj(v[(v.size() - k) % v.size()]);
    const Complex x = here + there, dy = {here.imag() - there.imag(), there.real() - here.real()};
    sum[k] +=
        Complex(dy.real() * x.real() + dy.imag() * x.imag(), dy.imag() * x.real() - dy.real() * x.imag());
  }
}

// Exact where sums of integers are.
std::vector<double> correlate_directly(const Problem& problem, const Operands& operands, int64_t h) {
  const int64_t T = problem.T, depth = operands.depth();
  std::vector<double> out(static_cast<size_t>(T));
  parallel_for(T, 1, [&](int64_t distance, int64_t) {
    std::vector<double> dy(static_cast<size_t>(depth)), x(dy.size());
    for (int64_t s = 0; s < T - distance; ++s) {
      operands.coefficients(h, s + distance, 0, depth, dy.data());
      operands.column(h, s, 0, depth, x.data(), 1);
      for (size_t k = 0; k < dy.size(); ++k) out[static_cast<size_t>(distance)] += dy[k] * x[k];
    }
  });
  return out;
}

}  // namespace

std::vector<double> correlate(const Problem& problem, const Operands& operands, int64_t h) {
  const int64_t T = problem.T, depth = operands.depth();
  if (T * T / 2 * depth <= kDirect) return correlate_directly(problem, operands, h);
  size_t size = 2;
  while (size < static_cast<size_t>(2 * T)) size *= 2;
  const Transform transform(size);
  const int64_t parts =
      std::min<int64_t>((depth + kPanel - 1) / kPanel, 64);  // that are added in their order
  std::vector<std::vector<Complex>> sums(static_cast<size_t>(parts));
  parallel_for(parts, 1, [&](int64_t part, int64_t) {
    std::vector<Complex>& sum = sums[static_cast<size_t>(part)];
    sum.resize(size);
    std::vector<std::vector<Complex>> panel(kPanel, std::vector<Complex>(size));
    std::vector<double> dy(kPanel), x(kPanel);
    for (int64_t k0 = part * kPanel; k0 < depth; k0 += parts * kPanel) {
      const int64_t k1 = std::min(k0 + kPanel, depth);
      for (std::vector<Complex>& column : panel) std::fill(column.begin(), column.end(), Complex());
      for (int64_t t = 0; t < T; ++t) {
        operands.coefficients(h, t, k0, k1, dy.data());
        operands.column(h, t, k0, k1, x.data(), 1);
        for (int64_t k = 0; k < k1 - k0; ++k)
          panel[static_cast<size_t>(k)][static_cast<size_t>(t)] = {x[static_cast<size_t>(k)],
                                                                   dy[static_cast<size_t>(k)]};
      }
      for (int64_t k = 0; k < k1 - k0; ++k) add_spectrum(panel[static_cast<size_t>(k)], transform, sum);
    }
  });
  std::vector<Complex> all(size);
  for (const std::vector<Complex>& sum : sums)
    for (size_t k = 0; k < size; ++k)
      all[k] += std::conj(sum[k]);  // so that the transform is the inverse one
  transform(all);
  std::vector<double> out;
  for (int64_t i = 0; i < T; ++i)
    out.push_back(all[static_cast<size_t>(i)].real() / (4 * static_cast<double>(size)));
  return out;
}

}  // namespace trigen
