// Elements of gram's D = alpha A B^T + beta C + gamma I, and the mirrored triangle.
#pragma once

#include "matrices.cuh"
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
  return static_cast<Storage<C.shape.wdtype>*>(matrix_origin<C>(p.w, p.w_head, head)) +
         (matrix_offset<C>(p.w_head, head) + row * p.w_row + column);
}

// C's element.
template <Kernel C>
__device__ __forceinline__ const Storage<C.shape.wdtype>* addend(const Params& p, int head, int row,
                                                                 int column) {
  const Activations& c = p.residual;
  return static_cast<const Storage<C.shape.wdtype>*>(matrix_origin<C>(c.data, c.head, head)) +
         (matrix_offset<C>(c.head, head) + row * c.row + column);
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
      const auto* const from = addend<C>(p, head, row, column);
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
      const auto* const from = addend<C>(p, head, row, column);
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
  if (column + 1 < tokens && (lower ? column < row : column + 1 >= row))
    v1 = value<C>(p, head, row, column + 1, v1);
}

// D's two elements of their sums, and C's in a word. `own`: the first one's row less its column.
template <Kernel C>
__device__ __forceinline__ void pair_values(const Params& p, int own, unsigned c, float& v0, float& v1) {
  v0 = __fmul_rn(p.alpha, v0);
  v1 = __fmul_rn(p.alpha, v1);
  if (C.shape.residual && p.beta != 0) {
    v0 = __fmaf_rn(p.beta, to_float<C.shape.wdtype>(static_cast<unsigned short>(c)), v0);
    v1 = __fmaf_rn(p.beta, to_float<C.shape.wdtype>(static_cast<unsigned short>(c >> 16)), v1);
  }
  if (own == 0) v0 = __fadd_rn(v0, p.gamma);
  if (own == 1) v1 = __fadd_rn(v1, p.gamma);
}

// C's elements of 64 rows and 8 kColumns columns from (row, column) on, two of a thread's at a time, where rows are whole pieces of 16
// bytes: all are loaded before one is needed. `row`, `column`: the thread's first.
template <Kernel C, int kColumns = 8>
struct PanelOfC {
  static constexpr bool kRead = C.shape.op == Op::kGram && C.shape.residual;
  unsigned words[kRead ? kColumns : 1][2];  // [8 columns][8 rows]

  __device__ __forceinline__ PanelOfC(const Params& p, int head, int row, int column, int tokens) {
    if constexpr (kRead) {
      static_assert(kBytes<C.shape.wdtype> == 2, "two elements are a word");
      const Activations& c = p.residual;
      const auto* const from = static_cast<const unsigned short*>(matrix_origin<C>(c.data, c.head, head)) +
                               (matrix_offset<C>(c.head, head) + column);
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          words[i][j] = ptx::load_global_if(from + ((row + 8 * j) * p.residual.row + 8 * i),
                                            p.beta != 0 && row + 8 * j < tokens && column + 8 * i < tokens);
    }
  }
  // D's elements in columns `column` + 8 i and + 1 of row `row` + 8 j, of their sums.
  __device__ __forceinline__ void values(const Params& p, int row, int column, int i, int j, float& v0,
                                         float& v1) const {
    unsigned c = 0;
    if constexpr (kRead) c = words[i][j];
    pair_values<C>(p, row + 8 * j - (column + 8 * i), c, v0, v1);
  }
};

// D[column, row] = D[row, column], if that is another element.
template <Kernel C>
__device__ __forceinline__ void mirror(const Params& p, int head, int row, int column, float v) {
  if constexpr (C.shape.mirror)
    if (is_mirrored<C>(row, column)) *element<C>(p, head, column, row) = from_float<C.shape.wdtype>(v);
}

}  // namespace trigen::gram
