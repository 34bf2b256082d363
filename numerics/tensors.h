// The tensors of a problem: shapes and strides. One description for the reference, the checks, the timing and
// the canary.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/ops.h"

namespace trigen {

inline int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// How a run is given a scan's vectors: as trigen_args has it, left out or repeated, a decay within bounds.
struct VectorForm {
  bool given = true, heads = true, tokens = true;  // else one for all heads, all tokens
};
struct VectorForms {
  VectorForm of[scan::kVectors];
  float low = 0, high = 0;  // of decays; both 0: no bounds
  bool is_clipped(double decay) const { return (low != 0 || high != 0) && (decay < low || decay > high); }
};
// Those of every check and measurement of the problem. From a million elements of x on, as one times them, all four are
// given, a number each head and token: what takes longest. Smaller problems of other sizes have other forms, so that each
// way that there is belongs to some; not all ones for decays, as a formula's sums would be long.
VectorForms vector_forms(const Problem& problem);

// What stands in W for vector i of those of a head and token, `read` being those that are given.
template <class Read>
double vector_of(const VectorForms& forms, scan::Vector i, const Read& read) {
  const auto one = [&](scan::Vector j) { return forms.of[j].given ? static_cast<double>(read(j)) : 1.0; };
  if (i == scan::kDiagonal && !forms.of[i].given) return one(scan::kSource) * one(scan::kTarget);
  const double value = one(i);
  if (i != scan::kDecay || !forms.is_clipped(value)) return value;
  return value < forms.low ? forms.low : forms.high;
}

// One tensor in a buffer of its own. Strides and counts are in elements. Activations are indexed (b,h,t,d),
// weights (h,t,s,j), bias (h,t), vectors (h,i,t), newton_schulz's numbers (i). The innermost axis has stride 1.
struct Tensor {
  Role role = Role::kX;
  Axes axes = Axes::kActivations;
  DType dtype = DType::kF32;
  bool read = false, written = false;  // both: accumulate
  int64_t batch = 0, head = 0, row = 0;
  VectorForms vectors;       // of a W that is vectors: the numbers in their rows that are used
  int64_t first_token = 0;   // of an activation tensor; only decode's outputs do not begin at 0
  int64_t tokens = 0;        // of an activation tensor
  int64_t elements = 0;      // of the buffer, from the tensor's first element on, gaps between rows included
  int64_t offset_bytes = 0;  // of the first element from the buffer's 256-byte aligned start
  int64_t bytes() const { return elements * element_size(dtype); }
  int64_t buffer_bytes() const { return offset_bytes + bytes() + kGuardBytes; }
  static constexpr int64_t kGuardBytes = 256;  // behind the last element, poisoned and checked like a gap
};

// The tensors that a problem has, inputs and outputs. Rows are dense where the problem's alignment allows it,
// else padded to the next multiple of it; with align < 16 every first element is aligned to `align` and to
// nothing larger, so that a kernel that assumes more is found out. `gap` adds that many alignment units
// between rows.
struct TensorList {
  std::vector<Tensor> tensors;
  Rows rows;  // that a run makes: of decode as named, else all
  const Tensor* find(Role role) const;
  const Tensor& output() const;  // the main one: y, dx, dW, dz
};
// decode: `rows` default to the longest ones (generator/problem.h); y, pre, gate and residual hold these rows
// only.
TensorList tensors_of(const Problem& problem, int gap = 0, std::optional<Rows> rows = std::nullopt);

// Elements from what one pointer of an array names to what the next one does (takes_pointers), where both are parts of `t`.
inline int64_t distance_of_pointers(const Problem& p, const Tensor& t) {
  return p.pointers != 0 ? t.head : t.batch;
}

inline int64_t activation_index(const Problem& p, const Tensor& x, int64_t b, int64_t h, int64_t t,
                                int64_t d) {
  const int64_t token = t - x.first_token;
  const int64_t outer = p.layout == Layout::kBTD ? token : d;
  const int64_t inner = p.layout == Layout::kBTD ? d : token;
  return b * x.batch + h * x.head + outer * x.row + inner;
}
// Of a Toeplitz matrix the number of the distance t - s, which all of a diagonal share.
inline int64_t weight_index(const Problem& p, const Tensor& w, int64_t h, int64_t t, int64_t s, int64_t j) {
  if (p.w == WeightForm::kToeplitz) return h * w.head + t - s;
  if (p.w == WeightForm::kBand) return h * w.head + t * w.row + s - t + p.width - 1;
  return h * w.head + t * w.row + s * p.K + j;
}
// Element of row i of a W that is vectors, or of their gradients.
inline int64_t vector_index(const Tensor& w, int64_t h, int64_t i, int64_t t) {
  const VectorForm& form = w.vectors.of[i];
  return (form.heads ? h : 0) * w.head + i * w.row + (form.tokens ? t : 0);
}
// Element of an output, of what has its axes or is no activation: row h * T + token, a column of output_columns.
inline int64_t output_index(const Problem& p, const Tensor& t, int64_t row, int64_t column) {
  if (t.axes == Axes::kRows) return row;
  if (t.axes == Axes::kSteps) return column;
  const int64_t h = row / p.T, token = row % p.T;
  if (t.axes == Axes::kWeights) return weight_index(p, t, h, token, column / p.K, column % p.K);
  if (t.axes == Axes::kVectors) return vector_index(t, h, column, token);
  return activation_index(p, t, column / p.D, h, token, column % p.D);
}
// Is (t, s) in the triangle, and in the band where W has one?
inline bool in_triangle(const Problem& p, int64_t t, int64_t s) {
  if (p.w == WeightForm::kBand && t - s >= p.width) return false;
  return p.fill == Fill::kLower ? s <= t + p.diag : s >= t + p.diag;
}

// The s of row t that are: [first, last).
inline std::pair<int64_t, int64_t> tokens_of_weights(const Problem& p, int64_t t) {
  const int64_t border = std::clamp<int64_t>(p.fill == Fill::kLower ? t + p.diag + 1 : t + p.diag, 0, p.T);
  const int64_t first = p.w == WeightForm::kBand ? std::max<int64_t>(0, t - p.width + 1) : 0;
  return p.fill == Fill::kLower ? std::pair(first, border) : std::pair(border, p.T);
}

// The tokens that are in the triangle with an output's row, which grad_input's t and s are the other way round:
// [first, last).
inline std::pair<int64_t, int64_t> tokens_of_row(const Problem& p, int64_t row) {
  if (!transposes(p.op)) return tokens_of_weights(p, row);
  const bool lower = p.fill == Fill::kLower;
  const int64_t border = std::clamp<int64_t>(lower ? row - p.diag : row - p.diag + 1, 0, p.T);
  const int64_t last = p.w == WeightForm::kBand ? std::min(p.T, row + p.width) : p.T;
  return lower ? std::pair(border, last) : std::pair(int64_t{0}, border);
}

// The columns of an output's row (output_columns) that there are: of a W those in the triangle, [first, last).
inline std::pair<int64_t, int64_t> columns_of_row(const Problem& p, int64_t row) {
  if (!makes_weights(p.op) || p.w == WeightForm::kToeplitz) return {0, output_columns(p)};
  const auto [first, last] = tokens_of_weights(p, row);
  return {first * p.K, last * p.K};
}

// Of grad_epilogue's pre, so that both ends of an activation's curve are seen; other inputs are within +-1.
inline constexpr float kPreScale = 4;

// A decay of scan from a random number within +-1: of either sign, and so near 1 that what lies T tokens back still
// counts, with a sign of its own for each place.
inline float decay_from(float value, int64_t T) {
  const float near = 1 - std::abs(value) * std::min(1.0F, 4.0F / static_cast<float>(T));
  return value < 0 ? -near : near;
}

// gram's factors in every check and measurement. Integers stay exact: alpha is a power of two.
inline constexpr float kCheckedAlpha = -0.5F, kCheckedBeta = 3, kCheckedGamma = 2;

// The byte that fills memory that a kernel must not read or has not written: all ones, a NaN in each format.
inline constexpr unsigned char kPoison = 0xFF;

}  // namespace trigen
