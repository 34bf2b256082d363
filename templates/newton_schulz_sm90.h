// Sizes of family newton_schulz_sm90. A block, or a cluster of them, makes a matrix X of T rows and D columns. How it reads
// Config:
//
//   tile_m   T, rounded up to 128, 192 or 256: sides of R, Z and Q
//   tile_n   columns of a panel, 64: X passes the tensor cores panel by panel
//   warps_m  12 of 192 rows, else 8: warpgroups, which multiply tiles of 64 x 64 by wgmma
//   stages   1: all panels stay in shared memory; 2: they pass through a ring of four
//   vec_b, vec_c  elements of one access to x, to y: a thread has two neighbours, or four after an exchange with another
//   cluster  blocks that share a matrix: each has panels of its own
//
// R, Z and Q are symmetric: of each, tiles on and below the diagonal lie in shared memory, as f16 in rows of 128 swizzled bytes.
// A tile above is one of them by columns, which wgmma reads as well. 256 rows are 10 tiles, 80 KB, whole ones would be 128.
#pragma once

#include "schedule.h"

namespace trigen::newton_schulz_sm90 {

using schedule::ceil_div;

inline constexpr int kSide = 64, kTileBytes = 2 * kSide * kSide;
// A warp's 16 rows of a tile: f32 sums, f16.
inline constexpr int kStripBytes = 4 * 16 * kSide, kStripHalfBytes = kStripBytes / 2;

// The norm's sums and the ring's barriers lie ahead of all else.
inline constexpr int kControlBytes = 1024, kSumsBegin = 256;

TRIGEN_HOST_DEVICE constexpr int groups(const Config& c) { return c.warps_m / 4; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 32 * c.warps_m; }
// Tiles along a side; on and below the diagonal; of the row before row i.
TRIGEN_HOST_DEVICE constexpr int sides(const Config& c) { return c.tile_m / kSide; }
TRIGEN_HOST_DEVICE constexpr int tiles_above(int row) { return row * (row + 1) / 2; }
TRIGEN_HOST_DEVICE constexpr int tiles(const Config& c) { return tiles_above(sides(c)); }
TRIGEN_HOST_DEVICE constexpr int row_of(int tile) { return (tile >= 1) + (tile >= 3) + (tile >= 6); }
TRIGEN_HOST_DEVICE constexpr int blocks(const Config& c) { return c.cluster > 1 ? c.cluster : 1; }
// Tiles that a warpgroup makes of a product of R, Z and Q; of a panel of Q X.
TRIGEN_HOST_DEVICE constexpr int turns(const Config& c) { return ceil_div(tiles(c), groups(c)); }
// The tile of a warpgroup's turn, -1 where it has none: of those on the diagonal, which are stored twice, each has as many.
TRIGEN_HOST_DEVICE constexpr int product_tile(int sides, int group, int turn) {
  if (sides == 2) return group == 0 ? turn : turn == 0 ? 2 : -1;
  if (sides == 3 && turn == 1) return group == 0 ? 3 : 6 - group;
  return turn * (sides == 3 ? 3 : 2) + group;
}
TRIGEN_HOST_DEVICE constexpr int panel_turns(const Config& c) { return ceil_div(sides(c), groups(c)); }
// X X^T in pieces of one or two tiles side by side, as many and as wide for all warpgroups: of 256 rows 2, 2 and 1, of 192 two
// single ones, of 128 a pair, the second one's with a tile above the diagonal that nobody stores.
TRIGEN_HOST_DEVICE constexpr int pieces(int sides) { return sides == 4 ? 3 : sides == 3 ? 2 : 1; }
TRIGEN_HOST_DEVICE constexpr int piece_tiles(int sides, int piece) {
  return sides == 3 || piece == 2 ? 1 : 2;
}
// A tile's number; of a piece its first one's.
TRIGEN_HOST_DEVICE constexpr int square_tile(int sides, int group, int piece) {
  if (sides == 3) return 2 * group + piece;
  if (sides == 2) return 1 - group;
  return group == 0 ? (piece == 0 ? 6 : piece == 1 ? 8 : 0) : piece == 0 ? 3 : piece == 1 ? 1 : 5;
}
TRIGEN_HOST_DEVICE constexpr int square_tiles(const Config& c) { return ceil_div(tiles(c), groups(c)); }

TRIGEN_HOST_DEVICE constexpr int matrix_bytes(const Config& c) { return tiles(c) * kTileBytes; }
// Q, Z and R; of 256 rows Q and R alone find room.
TRIGEN_HOST_DEVICE constexpr int matrices(const Config& c) { return c.tile_m <= 192 ? 3 : 2; }
TRIGEN_HOST_DEVICE constexpr int panel_bytes(const Config& c) { return sides(c) * kTileBytes; }
TRIGEN_HOST_DEVICE constexpr int panels(int D) { return ceil_div(D, kSide); }
// The panels of block `rank` begin at its first one and end at the next block's; the most that one has.
TRIGEN_HOST_DEVICE constexpr int first_panel(const Config& c, int D, int rank) {
  return static_cast<int>(static_cast<long long>(panels(D)) * rank / blocks(c));
}
TRIGEN_HOST_DEVICE constexpr int most_panels(const Config& c, int D) {
  return ceil_div(panels(D), blocks(c));
}

// Steps on R alone before X is multiplied and R computed anew (newton_schulz_sm80.h says from which sizes on). A step between
// a round's first and last one needs Q, Z and R.
TRIGEN_HOST_DEVICE constexpr int round_steps(const Config& c, int T, int D) {
  return 2LL * D >= 3LL * T ? matrices(c) : 1;
}

// Strips of R, whose f32 sums an owner gets from all blocks and adds up. They lie where Q and Z do, R behind them; of 256 rows
// where Q and R do.
TRIGEN_HOST_DEVICE constexpr int owned_strips(const Config& c) { return ceil_div(4 * tiles(c), blocks(c)); }
TRIGEN_HOST_DEVICE constexpr int sent_bytes(const Config& c) {
  return blocks(c) > 1 ? blocks(c) * owned_strips(c) * kStripBytes : 0;
}
TRIGEN_HOST_DEVICE constexpr int r_begin(const Config& c) {
  return matrices(c) == 2 ? matrix_bytes(c) : schedule::max(2 * matrix_bytes(c), sent_bytes(c));
}
// A panel of x as it comes, of up to 4 bytes an element, lies where Q will; panels that pass behind that, as no pass needs Z
// and R, and those that stay behind all. Of a ring of four one is multiplied by Q, which Q X replaces, the one before makes R,
// and two come.
inline constexpr int kRing = 4;
TRIGEN_HOST_DEVICE constexpr int staged_bytes(const Config& c) { return 4 * kSide * c.tile_m; }
TRIGEN_HOST_DEVICE constexpr int panels_begin(const Config& c) {
  return c.stages == 1 ? r_begin(c) + matrix_bytes(c) : schedule::max(matrix_bytes(c), staged_bytes(c));
}
TRIGEN_HOST_DEVICE constexpr long long shared_bytes(const Config& c, int D) {
  const long long panels_end =
      panels_begin(c) + static_cast<long long>(c.stages == 1 ? most_panels(c, D) : kRing) * panel_bytes(c);
  const long long r_end = r_begin(c) + matrix_bytes(c);
  return kControlBytes + (panels_end > r_end ? panels_end : r_end);
}

// The largest divisor of `number` up to `most`.
TRIGEN_HOST_DEVICE constexpr int divisor(int number, int most) {
  int divisor = schedule::max(1, schedule::min(number, most));
  while (number % divisor != 0) --divisor;
  return divisor;
}

// Panels of X from the first pass on, where they do not stay: f16 [matrix][panel], as in shared memory.
TRIGEN_HOST_DEVICE constexpr long long kept_bytes(const Config& c, int D) {
  return static_cast<long long>(panels(D)) * panel_bytes(c);
}
TRIGEN_HOST_DEVICE constexpr long long workspace_bytes(const Config& c, const schedule::Sizes& z) {
  return c.stages != 1 ? static_cast<long long>(z.B) * z.H * kept_bytes(c, z.D) : 0;
}

}  // namespace trigen::newton_schulz_sm90
