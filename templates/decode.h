// Sizes and places of family decode, shared by the kernel (NVRTC) and the host side
// (generator/families/decode.cpp).
//
// Fields of Config, as this family uses them:
//
//   tile_m   rows t that are summed together: x is read once for all of them
//   tile_n   features of x that a block reads
//   tile_k   btd: tokens that a thread loads at once; bdt: features that a warp loads at once
//   warps_m  warps that share a feature's tokens, warps_n: warps along the features
//   stages   taps that are summed together: K in one pass over x, or groups of them
//   split_k  parts of the tokens, each with blocks of its own; the workspace holds their sums
//   vec_b    elements of one load of x; vec_c: of one store of y; vec_a is 1
#pragma once

#include "schedule.h"

namespace trigen::decode {

using schedule::ceil_div;

inline constexpr int kSharedLimit = 48 << 10;  // bytes: what every target gives without asking
inline constexpr int kWeightFloats = 2048;     // of W staged at a time, more where one step needs more
inline constexpr int kReduceThreads = 256;

TRIGEN_HOST_DEVICE constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 32 * c.warps_m * c.warps_n; }
TRIGEN_HOST_DEVICE constexpr bool tokens_contiguous(Layout layout) { return layout == Layout::kBDT; }
// Tokens that the warps of a block take in one step.
TRIGEN_HOST_DEVICE constexpr int step_tokens(Layout layout, const Config& c) {
  return c.warps_m * (tokens_contiguous(layout) ? 32 * c.vec_b : c.tile_k);
}
// Sums of one feature: rows by taps.
TRIGEN_HOST_DEVICE constexpr int sums_per_feature(const Config& c) { return c.tile_m * c.stages; }
// Tokens whose weights lie in shared memory at a time, whole steps.
TRIGEN_HOST_DEVICE constexpr int chunk_tokens(Layout layout, const Config& c) {
  const int step = step_tokens(layout, c);
  return schedule::max(1, kWeightFloats / sums_per_feature(c) / step) * step;
}
// Several groups of taps are added up in shared memory. A generic kernel without vectors may have taps.
TRIGEN_HOST_DEVICE constexpr bool many_groups(const Config& c, int K) { return c.vec_b == 1 || K > c.stages; }

// Shared memory in floats: the weights, [token][row][tap] for btd and [row][tap][token] for bdt; the sums of
// every warp along the tokens, [warp][row][tap][feature]; the outputs [row][feature] of many groups.
TRIGEN_HOST_DEVICE constexpr int weight_floats(Layout layout, const Config& c) {
  return chunk_tokens(layout, c) * sums_per_feature(c);
}
TRIGEN_HOST_DEVICE constexpr int sum_floats(const Config& c) {
  return c.warps_m * sums_per_feature(c) * c.tile_n;
}
TRIGEN_HOST_DEVICE constexpr long long shared_bytes(Layout layout, const Config& c, int K) {
  return 4ll * (weight_floats(layout, c) + sum_floats(c) + (many_groups(c, K) ? c.tile_m * c.tile_n : 0));
}

// Features of a tile. Without taps, tiles cut the flattened (b,d). With taps, a tile holds whole rows of
// `batches` batches, or a part of one row that overlaps the next tile by `halo` features.
struct Tiling {
  bool flat;
  int width;    // features of x of one batch in a tile
  int outputs;  // features of y of one batch in a tile
  int batches;  // of one tile
  int per_row;  // tiles of one row of D features
  int count;    // all tiles: blocks along x
};
// `unit`: features that stay together (vectors for btd, one for bdt); it divides D and tile_n.
TRIGEN_HOST_DEVICE constexpr int halo(const Config& c, int unit) {
  return round_up(c.stages + unit - 2, unit);
}
TRIGEN_HOST_DEVICE constexpr Tiling tiling(const Config& c, const schedule::Sizes& z, int unit) {
  if (z.K == 1 && z.pad == 0) return {true, c.tile_n, c.tile_n, 1, 1, ceil_div(z.B * z.D, c.tile_n)};
  if (z.D <= c.tile_n) {
    const int batches = c.tile_n / z.D;
    return {false, z.D, z.D, batches, 1, ceil_div(z.B, batches)};
  }
  const int outputs = c.tile_n - halo(c, unit);
  const int per_row = ceil_div(z.D, outputs);
  return {false, c.tile_n, outputs, 1, per_row, z.B * per_row};
}

// Blocks along z: parts of the tokens within groups of rows. Along y: heads.
TRIGEN_HOST_DEVICE constexpr int row_groups(const Config& c, int rows) { return ceil_div(rows, c.tile_m); }

// split_k: f32 [split][h][row][b][d].
TRIGEN_HOST_DEVICE constexpr long long workspace_floats(const Config& c, const schedule::Sizes& z, int rows) {
  return c.split_k <= 1 ? 0 : static_cast<long long>(c.split_k) * z.H * rows * z.B * z.D;
}

}  // namespace trigen::decode
