// Sizes of family newton_schulz_sm80. A block, or a cluster of them, makes a matrix X of T rows and D columns. How it reads
// Config:
//
//   tile_m   T, rounded up to whole tiles of the warps: sides of R, Z and Q
//   tile_n   columns of a panel: X passes the tensor cores panel by panel
//   warps_m, warps_n  warps along the rows of an output, and along its columns
//   stages   1: all panels stay in shared memory; 2: one is multiplied while the next one comes
//   vec_b, vec_c  elements of one access to x, to y
//   cluster  blocks that share a matrix: each has panels of its own, and what follows from R alone each does for itself
//
// An image is a matrix of f16 in shared memory, of rows of R, Z and Q, of a panel along the contiguous axis of x.
#pragma once

#include "schedule.h"

namespace trigen::newton_schulz_sm80 {

using schedule::ceil_div;

TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 32 * c.warps_m * c.warps_n; }

// Steps on R alone before X is multiplied and R computed anew; 1: every step multiplies X. From 1.5 times as many columns as
// rows on the longer round multiplies less, of 5 steps 14 T^3 + 4 T^2 D in place of 5 T^3 + 10 T^2 D. What is small in X is
// lost in it: where X is square, of random 8 x 8 matrices with the coefficients POLAR_EXPRESS everything.
TRIGEN_HOST_DEVICE constexpr int round_steps(int T, int D) { return 2LL * D >= 3LL * T ? 3 : 1; }

// Elements from row to row of an image. Rows of whole 128 bytes are swizzled, others are 16 bytes longer, so that 16 bytes
// each of 8 rows lie in different banks.
TRIGEN_HOST_DEVICE constexpr bool is_swizzled(int columns) { return columns % 64 == 0; }
TRIGEN_HOST_DEVICE constexpr int image_bytes(int rows, int columns) {
  return 2 * rows * (is_swizzled(columns) ? columns : columns + 8);
}
TRIGEN_HOST_DEVICE constexpr int matrix_bytes(const Config& c) { return image_bytes(c.tile_m, c.tile_m); }
TRIGEN_HOST_DEVICE constexpr int panel_bytes(Layout layout, const Config& c) {
  return layout == Layout::kBTD ? image_bytes(c.tile_m, c.tile_n) : image_bytes(c.tile_n, c.tile_m);
}
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c, int D) { return ceil_div(D, c.tile_n); }
TRIGEN_HOST_DEVICE constexpr int blocks(const Config& c) { return c.cluster > 1 ? c.cluster : 1; }
// The panels of block `rank` begin at its first one and end at the next block's; the most that one has.
TRIGEN_HOST_DEVICE constexpr int first_panel(const Config& c, int D, int rank) {
  return static_cast<int>(static_cast<long long>(panels(c, D)) * rank / blocks(c));
}
TRIGEN_HOST_DEVICE constexpr int most_panels(const Config& c, int D) {
  return ceil_div(panels(c, D), blocks(c));
}

// Tiles of 16 x 16 of R. The blocks of a cluster own them in turn: an owner gets the f32 sums of all blocks and adds them up.
inline constexpr int kTileBytes = 16 * 16 * 4;
TRIGEN_HOST_DEVICE constexpr int tiles(const Config& c) { return c.tile_m / 16 * (c.tile_m / 16); }
TRIGEN_HOST_DEVICE constexpr int owned_tiles(const Config& c) { return ceil_div(tiles(c), blocks(c)); }
TRIGEN_HOST_DEVICE constexpr int sent_bytes(const Config& c) {
  return blocks(c) > 1 ? blocks(c) * owned_tiles(c) * kTileBytes : 0;
}

// Q, Z, R. What blocks send lies where Q and Z do, in front of R. Panels that pass, two of X and two of Q X, lie behind Q, as
// no pass needs Z and R; those that stay, behind all.
TRIGEN_HOST_DEVICE constexpr int r_begin(const Config& c) {
  return schedule::max(2 * matrix_bytes(c), sent_bytes(c));
}
TRIGEN_HOST_DEVICE constexpr int panels_begin(const Config& c) {
  return c.stages == 1 ? r_begin(c) + matrix_bytes(c) : matrix_bytes(c);
}
TRIGEN_HOST_DEVICE constexpr long long shared_bytes(Layout layout, const Config& c, int D) {
  const long long panels_end =
      panels_begin(c) +
      static_cast<long long>(c.stages == 1 ? most_panels(c, D) : 4) * panel_bytes(layout, c);
  const long long r_end = r_begin(c) + matrix_bytes(c);
  return panels_end > r_end ? panels_end : r_end;
}

// Panels of X between rounds, where they do not stay: f16 [matrix][panel], without the gaps of their images.
TRIGEN_HOST_DEVICE constexpr long long kept_bytes(const Config& c, int D) {
  return 2LL * panels(c, D) * c.tile_m * c.tile_n;
}
TRIGEN_HOST_DEVICE constexpr long long workspace_bytes(const Config& c, const schedule::Sizes& z) {
  const bool keeps = c.stages != 1 && z.K > round_steps(z.T, z.D);
  return keeps ? static_cast<long long>(z.B) * z.H * kept_bytes(c, z.D) : 0;
}

}  // namespace trigen::newton_schulz_sm80
