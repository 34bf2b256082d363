// Exact operation and byte counts of a problem.
#include <algorithm>

#include "generator/ops.h"

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

}  // namespace

Rows longest_rows(const Problem& p) {
  if (!op_row(p.op).takes(kRowsField)) return {0, p.T};
  return {p.fill == Fill::kLower ? p.T - p.rows : 0, p.rows};
}

Tokens tokens_of_rows(const Problem& p, Rows rows) {
  const int64_t first = p.fill == Fill::kLower ? 0 : std::clamp<int64_t>(rows.first + p.diag, 0, p.T);
  const int64_t last =
      p.fill == Fill::kLower ? std::clamp<int64_t>(rows.first + rows.count + p.diag, 0, p.T) : p.T;
  return first < last ? Tokens{first, last} : Tokens{};
}

Totals count_work(const Problem& p, Rows rows) {
  const OpRow& op = op_row(p.op);
  const double B = static_cast<double>(p.B), H = static_cast<double>(p.H), T = static_cast<double>(p.T),
               D = static_cast<double>(p.D), K = static_cast<double>(p.K),
               count = static_cast<double>(rows.count);
  const double activation = B * H * D * static_cast<double>(element_size(p.dtype)),  // of a token
      weight = static_cast<double>(element_size(p.wdtype));
  // lower: t - s >= -diag. upper: s - t >= diag, the same count with the roles of t and s exchanged.
  double pairs = 0;
  if (rows.count == p.T) pairs = pairs_from(p.T, p.fill == Fill::kLower ? -p.diag : p.diag);
  if (p.w == WeightForm::kBand) pairs -= pairs_from(p.T, p.width);
  for (int64_t t = rows.first; rows.count < p.T && t < rows.first + rows.count; ++t) {
    const Tokens tokens = tokens_of_rows(p, {t, 1});
    pairs += static_cast<double>(tokens.last - tokens.first);
  }
  // Tokens whose row or column of the triangle is not empty: those of the others are not read.
  const Tokens read = tokens_of_rows(p, rows);

  Totals work{};
  work.triangle_flop = 2 * B * H * pairs * tap_products(p.D, p.K, p.pad);
  work.dense_flop = 2 * B * H * count * T * K * D;
  if (!op.product)  // a product or two an element
    work.triangle_flop = work.dense_flop = 2 * B * H * count * D * (is_scan(p.op) ? 4 : 1);
  if (op.takes(kStepsField))  // X X^T, R R and the product with X of every step
    work.triangle_flop = work.dense_flop = 2 * B * H * K * T * T * (2 * D + T);
  const auto bytes_of = [&](const OpTensor& tensor) {
    if (tensor.axes == Axes::kRows) return H * count * weight;
    if (tensor.axes == Axes::kVectors) return H * scan::kVectors * T * weight;
    if (tensor.axes == Axes::kSteps) return 4.0 * static_cast<double>(step_numbers(p));
    if (tensor.axes == Axes::kWeights && p.w == WeightForm::kToeplitz) return H * T * weight;
    if (tensor.axes == Axes::kWeights && p.w == WeightForm::kBand && tensor.written &&
        p.epilogue.zero_outside)
      return H * T * static_cast<double>(p.width) * weight;
    if (tensor.axes == Axes::kWeights)
      return (tensor.written && (p.epilogue.zero_outside || p.epilogue.mirror) ? H * T * T : H * pairs) * K *
             weight;
    // A sum of dy needs every row of it.
    const bool sums = p.epilogue.bias && op.product && tensor.role == op.product->a;
    const bool multiplied = op.product && (tensor.role == op.product->a || tensor.role == op.product->b);
    return activation * (multiplied && !sums ? static_cast<double>(read.last - read.first) : count);
  };
  for (const OpTensor& tensor : op.list()) {
    if (!tensor.is_in(p.epilogue)) continue;
    if (p.op == Op::kGram && tensor.role == op.product->b) continue;  // may be A
    work.min_bytes += bytes_of(tensor);
    if (tensor.written) work.min_written += bytes_of(tensor);
    if (tensor.written && tensor.is_read(p.epilogue))  // what is outside the triangle is not read
      work.min_bytes += tensor.axes == Axes::kWeights && p.w != WeightForm::kToeplitz ? H * pairs * K * weight
                                                                                      : bytes_of(tensor);
  }
  return work;
}

Totals count_work(const Problem& p) { return count_work(p, longest_rows(p)); }

}  // namespace trigen
