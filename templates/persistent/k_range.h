// The k range of a product's rows: the blocks of k inside the triangle. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::persistent {

// The triangle as the rows of the product see it: grad_input multiplies by W's transpose.
TRIGEN_HOST_DEVICE constexpr Fill product_fill(const Shape& s) {
  return (s.fill == Fill::kLower) == (s.op != Op::kGradInput) ? Fill::kLower : Fill::kUpper;
}

// The k range of rows [first, first + 64), in blocks of 64 k: `blocks` of them, of which the first
// `unmasked_blocks` do not cross the diagonal. Lower counts blocks from k = 0 up, upper from the last block
// down. `first` and `diag`: elements.
struct KRange {
  int unmasked_blocks = 0, blocks = 0;
  TRIGEN_HOST_DEVICE constexpr KRange(Fill fill, int first, int diag, int all_blocks) {
    if (fill == Fill::kLower) {  // kept: k <= row + diag
      blocks = schedule::min(schedule::max(((first + 63 + diag) >> 6) + 1, 0), all_blocks);
      unmasked_blocks = schedule::min(schedule::max(((first + diag - 63) >> 6) + 1, 0), blocks);
    } else {  // kept: k >= row + diag
      blocks = schedule::min(schedule::max(all_blocks - ((first + diag) >> 6), 0), all_blocks);
      unmasked_blocks = schedule::min(schedule::max(all_blocks - ((first + 63 + diag + 63) >> 6), 0), blocks);
    }
  }
  TRIGEN_HOST_DEVICE constexpr void end_at(int block) {
    blocks = schedule::min(blocks, block);
    unmasked_blocks = schedule::min(unmasked_blocks, block);
  }
};

// Blocks of k before a band's first one, of all rows [first, first + rows) together, counted as KRange counts them.
// `width`: of the band, or 0.
TRIGEN_HOST_DEVICE constexpr int blocks_before_band(Fill fill, int first, int rows, int width,
                                                    int all_blocks) {
  if (width == 0) return 0;
  if (fill == Fill::kLower) return schedule::max(first - width + 1, 0) >> 6;
  const int last = first + rows - 1 + schedule::min(width - 1, (all_blocks << 6) - first);
  return schedule::max(all_blocks - 1 - (last >> 6), 0);
}

}  // namespace trigen::persistent
