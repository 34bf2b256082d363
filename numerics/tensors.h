// The tensors of a problem: shapes and strides. One description for the reference, the checks, the timing and
// the canary.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/problem.h"

namespace trigen {

// Names as in templates/params.h. For grad_input, x is dx and y is dy; for grad_weight, w is dW, bias is
// grad_bias; for grad_epilogue, x is dz, y is dy and residual is grad_gate.
enum class Role : int { kX = 0, kY = 1, kW = 2, kBias = 3, kPre = 4, kGate = 5, kResidual = 6 };
const char* to_string(Role role);

inline int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// One tensor in a buffer of its own. Strides and counts are in elements. Activations are indexed (b,h,t,d),
// weights (h,t,s,j), bias (h,t). The innermost axis has stride 1.
struct Tensor {
  Role role = Role::kX;
  DType dtype = DType::kF32;
  bool read = false, written = false;  // both: accumulate
  int64_t batch = 0, head = 0, row = 0;
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
};
// decode: `rows` default to the longest ones (generator/problem.h); y, pre, gate and residual hold these rows
// only.
TensorList tensors_of(const Problem& problem, int gap = 0, std::optional<Rows> rows = std::nullopt);

inline int64_t activation_index(const Problem& p, const Tensor& x, int64_t b, int64_t h, int64_t t,
                                int64_t d) {
  const int64_t token = t - x.first_token;
  const int64_t outer = p.layout == Layout::kBTD ? token : d;
  const int64_t inner = p.layout == Layout::kBTD ? d : token;
  return b * x.batch + h * x.head + outer * x.row + inner;
}
inline int64_t weight_index(const Problem& p, const Tensor& w, int64_t h, int64_t t, int64_t s, int64_t j) {
  return h * w.head + t * w.row + s * p.K + j;
}
// Is (t, s) in the triangle?
inline bool in_triangle(const Problem& p, int64_t t, int64_t s) {
  return p.fill == Fill::kLower ? s <= t + p.diag : s >= t + p.diag;
}

// The s of row t that are: [first, last).
inline std::pair<int64_t, int64_t> tokens_of_weights(const Problem& p, int64_t t) {
  const int64_t border = std::clamp<int64_t>(p.fill == Fill::kLower ? t + p.diag + 1 : t + p.diag, 0, p.T);
  return p.fill == Fill::kLower ? std::pair(int64_t{0}, border) : std::pair(border, p.T);
}

// Of grad_epilogue's pre, so that both ends of an activation's curve are seen; other inputs are within +-1.
inline constexpr float kPreScale = 4;

// The byte that fills memory that a kernel must not read or has not written: all ones, a NaN in each format.
inline constexpr unsigned char kPoison = 0xFF;

}  // namespace trigen
