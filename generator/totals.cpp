// Exact operation and byte counts of a problem.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "generator/problem.h"

namespace trigen {
namespace {

// Pairs (t, s) in [0, T)^2 with t - s >= k.
double pairs_from(int64_t T, int64_t k) {
  if (k >= T) return 0;
  const auto below = [&](int64_t first) {  // first >= 0
    const double n = static_cast<double>(T - first);
    return n > 0 ? n * (n + 1) / 2 : 0.0;
  };
  if (k >= 0) return below(k);
  return static_cast<double>(T) * static_cast<double>(T) - below(1 - k);
}

// Pairs (d, j) in [0, D) x [0, K) with 0 <= d + j - pad < D.
double tap_products(int64_t D, int64_t K, int64_t pad) {
  double sum = 0;
  // Taps j with |j - pad| < D take part, each with D - |j - pad| features: two arithmetic series.
  const auto series = [&](int64_t count) {  // shifts 1 .. count
    const double n = static_cast<double>(std::min(count, D - 1));
    return n * static_cast<double>(D) - n * (n + 1) / 2;
  };
  sum += static_cast<double>(D);  // shift 0; pad lies in [0, K)
  sum += series(pad);
  sum += series(K - 1 - pad);
  return sum;
}

int64_t row_tokens(const Problem& p, int64_t t) {
  const Tokens tokens = tokens_of_rows(p, {t, 1});
  return tokens.last - tokens.first;
}

}  // namespace

Rows longest_rows(const Problem& p) {
  if (p.op != Op::kDecode) return {0, p.T};
  return {p.fill == Fill::kLower ? p.T - p.rows : 0, p.rows};
}

Tokens tokens_of_rows(const Problem& p, Rows rows) {
  const int64_t first = p.fill == Fill::kLower ? 0 : std::clamp<int64_t>(rows.first + p.diag, 0, p.T);
  const int64_t last =
      p.fill == Fill::kLower ? std::clamp<int64_t>(rows.first + rows.count + p.diag, 0, p.T) : p.T;
  return first < last ? Tokens{first, last} : Tokens{};
}

Totals count_work(const Problem& p, Rows rows) {
  const double B = static_cast<double>(p.B), H = static_cast<double>(p.H), D = static_cast<double>(p.D),
               K = static_cast<double>(p.K), count = static_cast<double>(rows.count);
  const double element = static_cast<double>(element_size(p.dtype)),
               weight = static_cast<double>(element_size(p.wdtype));
  double pairs = 0;
  for (int64_t t = rows.first; t < rows.first + rows.count; ++t)
    pairs += static_cast<double>(row_tokens(p, t));
  const Tokens read = tokens_of_rows(p, rows);
  const Epilogue& e = p.epilogue;
  Totals work{};
  work.triangle_flop = 2 * B * H * pairs * tap_products(p.D, p.K, p.pad);
  work.dense_flop = 2 * B * H * count * static_cast<double>(p.T) * K * D;
  work.min_bytes = B * H * static_cast<double>(read.last - read.first) * D * element +
                   H * pairs * K * weight + (e.bias ? H * count * weight : 0) +
                   B * H * count * D * element * (1 + e.pre + e.gate + e.residual);
  return work;
}

Totals count_work(const Problem& p) {
  if (p.op == Op::kDecode) return count_work(p, longest_rows(p));
  if (p.op == Op::kGradEpilogue) {
    const double elements =
        static_cast<double>(p.B * p.H) * static_cast<double>(p.T) * static_cast<double>(p.D);
    const double flop = 2 * elements;  // a product or two an element
    return {flop, flop, elements * static_cast<double>(element_size(p.dtype)) * (p.epilogue.gate ? 5 : 3)};
  }
  // lower: t - s >= -diag. upper: s - t >= diag, the same count with the roles of t and s exchanged.
  const double triangle = pairs_from(p.T, p.fill == Fill::kLower ? -p.diag : p.diag);
  const double B = static_cast<double>(p.B), H = static_cast<double>(p.H), T = static_cast<double>(p.T);
  const double D = static_cast<double>(p.D), K = static_cast<double>(p.K);
  Totals work{};
  work.triangle_flop = 2 * B * H * triangle * tap_products(p.D, p.K, p.pad);
  work.dense_flop = 2 * B * H * T * T * K * D;

  const double element = static_cast<double>(element_size(p.dtype)),
               weight = static_cast<double>(element_size(p.wdtype));
  const double activation = B * H * T * D * element;
  // With an offset that empties |offset| rows or columns of the triangle, those rows of the input are not
  // read.
  const int64_t emptied =
      p.fill == Fill::kLower ? std::max<int64_t>(0, -p.diag) : std::max<int64_t>(0, p.diag);
  const double input = activation * static_cast<double>(p.T - emptied) / T;
  const double weights = H * triangle * K * weight;
  const double bias = p.epilogue.bias ? H * T * weight : 0;
  const Epilogue& e = p.epilogue;
  switch (p.op) {
    case Op::kForward:
      work.min_bytes = input + weights + bias + activation * (1 + e.pre + e.gate + e.residual);
      break;
    case Op::kGradInput:
      work.min_bytes = input + weights + activation * (1 + e.residual);
      break;
    case Op::kGradWeight: {
      // The bias needs every row of dy.
      const double written = e.zero_outside ? H * T * T * K * weight : weights;
      work.min_bytes = input + (e.bias ? activation : input) + written + bias;
      if (e.accumulate) work.min_bytes += weights + bias;
      break;
    }
    case Op::kDecode:
    case Op::kGradEpilogue:
      break;
  }
  return work;
}

}  // namespace trigen
