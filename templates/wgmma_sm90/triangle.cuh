// What the triangle leaves of 64 rows, and the conversion of sums to 16-bit pairs.
#pragma once

#include "config.h"
#include "ptx/convert.cuh"
#include "schedule.h"

namespace trigen::wgmma_sm90 {

// What of k belongs to rows [first, first + 64): `active` blocks of 64, of which the last active - whole ones cross the
// diagonal. Lower counts blocks from k = 0 up, upper from the last block down.
struct Reach {
  int whole, active;
  __device__ __forceinline__ Reach(Fill fill, int first, int diag, int blocks) {
    if (fill == Fill::kLower) {  // kept: k <= row + diag
      active = min(max(((first + 63 + diag) >> 6) + 1, 0), blocks);
      whole = min(max(((first + diag - 63) >> 6) + 1, 0), active);
    } else {  // kept: k >= row + diag
      active = min(max(blocks - ((first + diag) >> 6), 0), blocks);
      whole = min(max(blocks - ((first + 63 + diag + 63) >> 6), 0), active);
    }
  }
};

// The triangle as the rows of the product see it: grad_input multiplies by W's transpose.
TRIGEN_HOST_DEVICE constexpr Fill product_fill(const Shape& s) {
  return (s.fill == Fill::kLower) == (s.op != Op::kGradInput) ? Fill::kLower : Fill::kUpper;
}

// The reach of a row tile's longest rows: those of its last warpgroup for lower, of its first one for upper.
template <Kernel C>
__device__ __forceinline__ Reach longest_reach(int first, int diag, int blocks) {
  constexpr Fill kFill = product_fill(C.shape);
  return Reach(kFill, kFill == Fill::kLower ? first + C.config.tile_m - 64 : first, diag, blocks);
}

// Two sums as one word of 16-bit elements.
template <DType kType>
__device__ __forceinline__ unsigned pack(float low, float high) {
  return kType == DType::kBF16 ? ptx::f32x2_to_bf16x2(low, high) : ptx::f32x2_to_f16x2(low, high);
}

}  // namespace trigen::wgmma_sm90
