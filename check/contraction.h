// out[row, column] = sum over k in range(row) of coefficients[row, k] * panel[k, column], in double, blocked
// and threaded. The reference and its signed sums are all of this form; they differ in where the numbers come
// from.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace trigen {

inline constexpr int64_t kPanelWidth = 16;  // columns of a panel

struct Contraction {
  int64_t rows = 0, columns = 0, depth = 0;
  // The k that take part in a row: [first, last).
  std::function<std::pair<int64_t, int64_t>(int64_t row)> range;
  // Writes coefficients k0 <= k < k1 of a row to out[k - k0]; asked only for k in the row's range.
  std::function<void(int64_t row, int64_t k0, int64_t k1, double* out)> coefficients;
  // Writes out[(k - k0) * kPanelWidth + (c - c0)] for k0 <= k < k1, c0 <= c < min(c0 + kPanelWidth, columns).
  std::function<void(int64_t c0, int64_t k0, int64_t k1, double* out)> panel;
};

// Row-major [rows, columns]. The order of the additions depends on the sizes alone.
std::vector<double> contract(const Contraction& problem);

}  // namespace trigen
