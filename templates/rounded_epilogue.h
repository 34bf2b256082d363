// Tiles that end with rounded_epilogue.cuh, and the slices of them that pass through shared memory at once.
// Read by the kernels and by the generator, whose model has a rate of its own for such ends.
#pragma once

#include "schedule.h"

namespace trigen::rounded_tile {

inline constexpr int kVec = 8;  // elements of one store
// Rows begin 4 or 12 banks (mod 16) after the row before, and those with bit 3 another 8 further: 16 bytes of rows
// 0, 1, 4, 5, 8, 9, 12 and 13, which a warp of mma_sm70 writes at a time, lie on different banks.
inline constexpr int kSkew = 32;  // bytes
TRIGEN_HOST_DEVICE constexpr int pitch(const Config& c) { return 2 * c.tile_n + 16 + kSkew; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 32 * c.warps_m * c.warps_n; }
TRIGEN_HOST_DEVICE constexpr int chunks(const Config& c) { return c.tile_n / kVec; }  // vectors of a row

// Rows of the tile in shared memory of so many bytes at once.
TRIGEN_HOST_DEVICE constexpr int slice_rows(const Config& c, int bytes) {
  int rows = c.tile_m;
  while (rows > 16 * c.warps_m && rows % (32 * c.warps_m) == 0 && rows * pitch(c) > bytes) rows /= 2;
  return rows;
}

// 16-bit sums that need only be rounded, in slices of as many whole vectors for each thread.
TRIGEN_HOST_DEVICE constexpr bool serves(const Shape& s, const Config& c, int bytes) {
  return !makes_weights(s.op) && !schedule::rows_contiguous(s) && s.dtype != DType::kF32 && c.vec_c == kVec &&
         !s.bias && s.act == Activation::kNone && !s.pre && !s.gate && !s.residual &&
         threads(c) % chunks(c) == 0 && slice_rows(c, bytes) % (threads(c) / chunks(c)) == 0;
}

}  // namespace trigen::rounded_tile
