// The longest rows of a tile, and the conversion of sums to 16-bit pairs.
#pragma once

#include "config.h"
#include "ptx/convert.cuh"
#include "wgmma_sm90.h"

namespace trigen::wgmma_sm90 {

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
