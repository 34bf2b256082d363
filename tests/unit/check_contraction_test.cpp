#include "check/contraction.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "check/parallel.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

double number(uint64_t stream, int64_t i) { return random_value(11, stream, static_cast<uint64_t>(i), 1); }

// Coefficients outside a row's range are poison: nothing may ask for them.
Contraction contraction(int64_t rows, int64_t columns, int64_t depth) {
  Contraction c;
  c.rows = rows, c.columns = columns, c.depth = depth;
  c.range = [=](int64_t row) { return std::pair(row % 3, std::max(row % 3, depth - 5 * row)); };
  c.coefficients = [=, range = c.range](int64_t row, int64_t k0, int64_t k1, double* out) {
    const auto [first, last] = range(row);
    EXPECT_LE(first, k0);
    EXPECT_LE(k1, last);
    for (int64_t k = k0; k < k1; ++k) out[k - k0] = number(1, row * depth + k);
  };
  c.panel = [=](int64_t c0, int64_t k0, int64_t k1, double* out) {
    for (int64_t k = k0; k < k1; ++k)
      for (int64_t i = 0; i < kPanelWidth; ++i)
        out[(k - k0) * kPanelWidth + i] = c0 + i < columns ? number(2, k * columns + c0 + i) : NAN;
  };
  return c;
}

// Sizes on both sides of a panel, of a block of rows, and of a block along k (at least 256).
TEST(Contraction, IsTheSumOverEachRowsRange) {
  struct Sizes {
    int64_t rows, columns, depth;
  };
  for (const Sizes& s :
       {Sizes{1, 1, 1}, Sizes{9, 17, 40}, Sizes{3, 16, 9000}, Sizes{70, 33, 300}, Sizes{4, 5, 0}}) {
    const Contraction c = contraction(s.rows, s.columns, s.depth);
    const std::vector<double> sums = contract(c);
    ASSERT_EQ(sums.size(), static_cast<size_t>(s.rows * s.columns));
    for (int64_t row = 0; row < s.rows; ++row) {
      const auto [first, last] = c.range(row);
      for (int64_t column = 0; column < s.columns; ++column) {
        double expected = 0;
        for (int64_t k = first; k < last; ++k)
          expected += number(1, row * s.depth + k) * number(2, k * s.columns + column);
        ASSERT_NEAR(sums[static_cast<size_t>(row * s.columns + column)], expected, 1e-10)
            << row << "," << column << " of " << s.rows << "x" << s.columns << "x" << s.depth;
      }
    }
  }
}

TEST(Contraction, TheSameBitsOnEveryRun) {
  const Contraction c = contraction(40, 50, 1000);
  const std::vector<double> once = contract(c);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(contract(c), once);
}

TEST(ParallelFor, CoversEveryIndexOnceInRangesOfAGrain) {
  for (const int64_t count : {0, 1, 7, 1000, 1003})
    for (const int64_t grain : {1, 8, 5000}) {
      std::vector<std::atomic<int>> met(static_cast<size_t>(count));
      parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        EXPECT_LE(end - begin, grain);
        for (int64_t i = begin; i < end; ++i) ++met[static_cast<size_t>(i)];
      });
      for (const auto& times : met) ASSERT_EQ(times, 1);
    }
}

}  // namespace
}  // namespace trigen
