// The longest rows of a tile and the mask of A's fragments.
#pragma once

#include "config.h"
#include "persistent/reach.h"

namespace trigen::wgmma_sm90 {

using persistent::product_fill;
using persistent::Reach;

// The reach of a row tile's longest rows: those of its last warpgroup for lower, of its first one for upper.
template <Kernel C>
__device__ __forceinline__ Reach longest_reach(int first, int diag, int blocks) {
  constexpr Fill kFill = product_fill(C.shape);
  return Reach(kFill, kFill == Fill::kLower ? first + C.config.tile_m - 64 : first, diag, blocks);
}

// A as fragments of kSteps m64k16 steps: what lies outside the triangle becomes zero, whatever it was. `own`:
// row + diag - k of the thread's first element.
template <Fill kFill, int kSteps>
__device__ __forceinline__ void mask_fragments(unsigned (&a)[kSteps][4], int own) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // rows + 8 * (j % 2), k + 8 * (j / 2)
      const int over = own + j % 2 * 8 - 16 * i - j / 2 * 8;
      if constexpr (kFill == Fill::kLower)
        a[i][j] &= (over >= 0 ? 0xFFFFu : 0) | (over >= 1 ? 0xFFFF0000u : 0);
      else
        a[i][j] &= (over <= 0 ? 0xFFFFu : 0) | (over <= 1 ? 0xFFFF0000u : 0);
    }
  }
}

}  // namespace trigen::wgmma_sm90
