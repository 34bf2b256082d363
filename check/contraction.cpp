#include "check/contraction.h"

#include <algorithm>

#include "check/parallel.h"

namespace trigen {
namespace {

void multiply(const double* a, const double* panel, int64_t count, double* out) {
  double sums[kPanelWidth] = {};
  for (int64_t k = 0; k < count; ++k) {
    const double factor = a[k];
    for (int64_t c = 0; c < kPanelWidth; ++c) sums[c] += factor * panel[k * kPanelWidth + c];
  }
  for (int64_t c = 0; c < kPanelWidth; ++c) out[c] += sums[c];
}

}  // namespace

std::vector<double> contract(const Contraction& p) {
  const int64_t panels = (p.columns + kPanelWidth - 1) / kPanelWidth;
  std::vector<double> sums(static_cast<size_t>(p.rows * panels * kPanelWidth));  // [panel][row][kPanelWidth]
  // 32 MiB of coefficients at a time, and at most 1 MiB of panel per thread
  const int64_t step = std::clamp<int64_t>((int64_t{4} << 20) / std::max<int64_t>(1, p.rows), 256, 8192);
  std::vector<double> a(static_cast<size_t>(p.rows * std::min(step, p.depth)));
  for (int64_t k0 = 0; k0 < p.depth; k0 += step) {
    const int64_t k1 = std::min(p.depth, k0 + step);
    auto part = [&](int64_t row) {
      const auto [first, last] = p.range(row);
      return std::pair(std::max(first, k0), std::min(last, k1));
    };
    parallel_for(p.rows, 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const auto [first, last] = part(row);
        if (first < last)
          p.coefficients(row, first, last, &a[static_cast<size_t>(row * (k1 - k0) + first - k0)]);
      }
    });
    parallel_for(panels, 1, [&](int64_t begin, int64_t end) {
      std::vector<double> panel(static_cast<size_t>((k1 - k0) * kPanelWidth));
      for (int64_t index = begin; index < end; ++index) {
        p.panel(index * kPanelWidth, k0, k1, panel.data());
        for (int64_t row = 0; row < p.rows; ++row) {
          const auto [first, last] = part(row);
          if (first >= last) continue;
          multiply(&a[static_cast<size_t>(row * (k1 - k0) + first - k0)],
                   &panel[static_cast<size_t>((first - k0) * kPanelWidth)], last - first,
                   &sums[static_cast<size_t>((index * p.rows + row) * kPanelWidth)]);
        }
      }
    });
  }
  std::vector<double> out(static_cast<size_t>(p.rows * p.columns));
  for (int64_t row = 0; row < p.rows; ++row) {
    for (int64_t c = 0; c < p.columns; ++c) {
      out[static_cast<size_t>(row * p.columns + c)] =
          sums[static_cast<size_t>((c / kPanelWidth * p.rows + row) * kPanelWidth + c % kPanelWidth)];
    }
  }
  return out;
}

}  // namespace trigen
