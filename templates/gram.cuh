// Elements of gram's D = alpha A B^T + beta C + gamma I, and the mirrored triangle.
#pragma once

#include "params.h"
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

// D[column, row] = D[row, column], if that is another element.
template <Kernel C>
__device__ __forceinline__ void mirror(const Params& p, int head, int row, int column, float v) {
  if constexpr (C.shape.mirror)
    if (is_mirrored<C>(row, column)) *element<C>(p, head, column, row) = from_float<C.shape.wdtype>(v);
}

}  // namespace trigen::gram
