// The grid of family grad_epilogue. A block takes `stages` rounds of one vector a thread, of one batch and
// head, whose rows (tokens of btd, features of bdt) it walks as one run. How the family reads Config:
//
//   warps_n  warps of a block; tile_n: their threads
//   stages   vectors of a thread, all of whose loads are under way at once
//   vec_b, vec_c  elements of one access; a row has whole ones
#pragma once

#include "schedule.h"

namespace trigen::grad_epilogue {

TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 32 * c.warps_n; }
TRIGEN_HOST_DEVICE constexpr int block_vectors(const Config& c) { return threads(c) * c.stages; }
TRIGEN_HOST_DEVICE constexpr int rows(Layout layout, const schedule::Sizes& z) {
  return layout == Layout::kBTD ? z.T : z.D;
}
TRIGEN_HOST_DEVICE constexpr int row_vectors(Layout layout, const Config& c, const schedule::Sizes& z) {
  return (layout == Layout::kBTD ? z.D : z.T) / c.vec_b;
}
// Of one batch and head.
TRIGEN_HOST_DEVICE constexpr long long blocks(Layout layout, const Config& c, const schedule::Sizes& z) {
  const long long vectors = static_cast<long long>(rows(layout, z)) * row_vectors(layout, c, z);
  return (vectors + block_vectors(c) - 1) / block_vectors(c);
}

}  // namespace trigen::grad_epilogue
