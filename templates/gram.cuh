// Elements of gram's D = alpha A B^T + beta C + gamma I, and the mirrored triangle.
#pragma once

#include "params.h"
#include "ptx/memory.cuh"
#include "schedule.h"
#include "types.cuh"

namespace trigen::gram {

// An element in a strict triangle has a mirrored one. Only where the problem asks for it.
template <Kernel C>
__device__ __forceinline__ bool is_mirrored(int row, int column) {
  return C.shape.mirror && (C.shape.fill == Fill::kLower ? column < row : column > row);
}

template <Kernel C>
__device__ __forceinline__ Storage<C.shape.wdtype>* element(const Params& p, int head, int row, int column) {
  return static_cast<Storage<C.shape.wdtype>*>(p.w) + (head * p.w_head + row * p.w_row + column);
}

// D[row, column] of its sum; other ops' values are their sums. Rounded operations by name, whatever the compiler could
// contract around them: an element has the same bits wherever it is computed. C is not read where beta is 0.
template <Kernel C>
__device__ __forceinline__ float value(const Params& p, int head, int row, int column, float sum) {
  if constexpr (C.shape.op != Op::kGram) {
    return sum;
  } else {
    float v = __fmul_rn(p.alpha, sum);
    if (C.shape.residual && p.beta != 0) {
      const auto* const from = static_cast<const Storage<C.shape.wdtype>*>(p.residual.data) +
                               (head * p.residual.head + row * p.residual.row + column);
      v = __fmaf_rn(p.beta, to_float<C.shape.wdtype>(*from), v);
    }
    return row == column ? __fadd_rn(v, p.gamma) : v;
  }
}

// D[row, column] and D[row, column + 1], of which those in the triangle count; C's two elements are read at once where they
// are aligned for that. `column` is even.
template <Kernel C>
__device__ __forceinline__ void values(const Params& p, int head, int row, int column, int tokens, float& v0,
                                       float& v1) {
  if constexpr (C.shape.op == Op::kGram && C.shape.residual && C.config.vec_c > 1) {
    if (p.beta != 0 && column + 1 < tokens && (C.shape.fill == Fill::kLower ? column < row : column >= row)) {
      const auto* const from = static_cast<const Storage<C.shape.wdtype>*>(p.residual.data) +
                               (head * p.residual.head + row * p.residual.row + column);
      constexpr DType kW = C.shape.wdtype;
      Raw<kW, 2> c;
      ptx::load_global<2 * kBytes<kW>>(c.w, from);
      v0 = __fmaf_rn(p.beta, to_float<kW>(c.get(0)), __fmul_rn(p.alpha, v0));
      v1 = __fmaf_rn(p.beta, to_float<kW>(c.get(1)), __fmul_rn(p.alpha, v1));
      if (row == column) v0 = __fadd_rn(v0, p.gamma);
      if (row == column + 1) v1 = __fadd_rn(v1, p.gamma);
      return;
    }
  }
  const bool lower = C.shape.fill == Fill::kLower;
  if (lower ? column <= row : column >= row) v0 = value<C>(p, head, row, column, v0);
  if (column + 1 < tokens && (lower ? column < row : column + 1 >= row)) v1 = value<C>(p, head, row, column + 1, v1);
}

// D[column, row] = D[row, column], if that is another element.
template <Kernel C>
__device__ __forceinline__ void mirror(const Params& p, int head, int row, int column, float v) {
  if constexpr (C.shape.mirror)
    if (is_mirrored<C>(row, column)) *element<C>(p, head, column, row) = from_float<C.shape.wdtype>(v);
}

}  // namespace trigen::gram
