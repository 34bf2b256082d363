// The longest rows of a tile and the mask of A's fragments.
#pragma once

#include "config.h"
#include "persistent/k_range.h"

namespace trigen::wgmma_sm90 {

using persistent::KRange;
using persistent::product_fill;

// The k range of a row tile's longest rows: its last warpgroup's for a lower triangle, its first one's for an
// upper one.
template <Kernel C>
__device__ __forceinline__ KRange longest_k_range(int first, int diag, int blocks) {
  constexpr Fill kFill = product_fill(C.shape);
  return KRange(kFill, kFill == Fill::kLower ? first + C.config.tile_m - 64 : first, diag, blocks);
}

// Writes zeros to A's elements outside the triangle. A: fragments of kSteps m64k16 steps. `distance`: row +
// diag - k of the thread's first element, in elements.
template <Fill kFill, int kSteps>
__device__ __forceinline__ void mask_fragments(unsigned (&a)[kSteps][4], int distance) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // rows + 8 * (j % 2), k + 8 * (j / 2)
      const int element_distance = distance + j % 2 * 8 - 16 * i - j / 2 * 8;
      if constexpr (kFill == Fill::kLower)
        a[i][j] &= (element_distance >= 0 ? 0xFFFFu : 0) | (element_distance >= 1 ? 0xFFFF0000u : 0);
      else
        a[i][j] &= (element_distance <= 0 ? 0xFFFFu : 0) | (element_distance <= 1 ? 0xFFFF0000u : 0);
    }
  }
}

}  // namespace trigen::wgmma_sm90
