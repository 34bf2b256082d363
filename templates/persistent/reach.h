// Which blocks of k belong to which rows of a product. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::persistent {

// The triangle as the rows of the product see it: grad_input multiplies by W's transpose.
TRIGEN_HOST_DEVICE constexpr Fill product_fill(const Shape& s) {
  return (s.fill == Fill::kLower) == (s.op != Op::kGradInput) ? Fill::kLower : Fill::kUpper;
}

// What of k belongs to rows [first, first + 64): `active` blocks of 64, of which the last active - whole ones
// cross the diagonal. Lower counts blocks from k = 0 up, upper from the last block down.
struct Reach {
  int whole = 0, active = 0;
  TRIGEN_HOST_DEVICE constexpr Reach(Fill fill, int first, int diag, int blocks) {
    if (fill == Fill::kLower) {  // kept: k <= row + diag
      active = schedule::min(schedule::max(((first + 63 + diag) >> 6) + 1, 0), blocks);
      whole = schedule::min(schedule::max(((first + diag - 63) >> 6) + 1, 0), active);
    } else {  // kept: k >= row + diag
      active = schedule::min(schedule::max(blocks - ((first + diag) >> 6), 0), blocks);
      whole = schedule::min(schedule::max(blocks - ((first + 63 + diag + 63) >> 6), 0), active);
    }
  }
  TRIGEN_HOST_DEVICE constexpr void end_at(int block) {
    active = schedule::min(active, block);
    whole = schedule::min(whole, block);
  }
};

}  // namespace trigen::persistent
