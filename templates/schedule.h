// Tiles of thread blocks: output tile and depth. The kernels (NVRTC) and the host side of the families
// (generator/families/) include this file, so that grid sizes and kernels cannot disagree.
//
// All three ops are one product C[m,n] = sum_k A[m,k] B[k,n] per head:
//
//   op           m   n        k        A                       B                        C
//   forward      t   (b,d)    (s,j)    W[t,s,j]                x[b,s,d+j-pad]           y[b,t,d]
//   grad_input   s   (b,d)    (t,j)    W[t,s,j]                dy[b,t,d-j+pad]          dx[b,s,d]
//   grad_weight  t   (s,j)    (b,d)    dy[b,t,d]               x[b,s,d+j-pad]           dW[t,s,j]
//
// (a,b) is a flattened axis, b innermost. In forward and grad_input the triangle bounds k for every row, in
// grad_weight it bounds n.
#pragma once

#include "config.h"

namespace trigen::schedule {

struct Sizes {
  int B, H, T, D, K, pad, diag;
  int width;  // of a band; 0: W has no band
};

TRIGEN_HOST_DEVICE constexpr long long clamp(long long value, long long low, long long high) {
  return value < low ? low : value > high ? high : value;
}
TRIGEN_HOST_DEVICE constexpr int ceil_div(int a, int b) { return a / b + (a % b != 0); }
TRIGEN_HOST_DEVICE constexpr int min(int a, int b) { return a < b ? a : b; }
TRIGEN_HOST_DEVICE constexpr int max(int a, int b) { return a > b ? a : b; }

// The entries of a row that take part, as a half-open range.
struct Range {
  int begin, end;
};

// The s of row t of W that lie in the triangle; empty ranges have begin == end.
TRIGEN_HOST_DEVICE constexpr Range weight_row(Fill fill, long long diag, int t, int T) {
  return fill == Fill::kLower ? Range{0, static_cast<int>(clamp(t + diag + 1, 0, T))}
                              : Range{static_cast<int>(clamp(t + diag, 0, T)), T};
}
// The same triangle seen from the rows m of the product: for grad_input (m = s) it is the transposed one.
TRIGEN_HOST_DEVICE constexpr Range product_row(Op op, Fill fill, long long diag, int m, int T) {
  if (op != Op::kGradInput) return weight_row(fill, diag, m, T);
  return weight_row(fill == Fill::kLower ? Fill::kUpper : Fill::kLower, -diag, m, T);
}
// Both of a W that may be a band, which begins width - 1 tokens left of the diagonal.
TRIGEN_HOST_DEVICE constexpr Range product_row(Op op, Fill fill, const Sizes& z, int m) {
  if (z.width == 0) return product_row(op, fill, z.diag, m, z.T);
  const Range r = product_row(op, fill, z.diag, m, z.T);
  if (op == Op::kGradInput) return {r.begin, min(r.end - m, z.width) + m};
  return {max(r.begin, m - z.width + 1), r.end};
}
TRIGEN_HOST_DEVICE constexpr Range weight_row(Fill fill, const Sizes& z, int t) {
  return product_row(Op::kForward, fill, z, t);
}
// Long rows come last (first) when the product's triangle is a lower (upper) one.
TRIGEN_HOST_DEVICE constexpr bool long_rows_last(Op op, Fill fill) {
  return (op == Op::kGradInput) != (fill == Fill::kLower);
}

TRIGEN_HOST_DEVICE constexpr int product_columns(Op op, const Sizes& z) {
  return makes_weights(op) ? z.T * z.K : z.B * z.D;
}
TRIGEN_HOST_DEVICE constexpr int product_depth(Op op, const Sizes& z) {
  return makes_weights(op) ? z.B * z.D : z.T * z.K;
}

// Work of one thread block. Empty depth (begin == end) still writes its tile: the sum is zero.
struct Tile {
  bool valid;       // false: nothing to do (grad_weight enumerates a few tiles outside the triangle)
  int row, column;  // first m and n of the tile, in tiles
  bool first;       // grad_weight: the tile of its row that also sums grad_bias
  Range depth;      // k
};

// The k of a row tile in forward and grad_input: the union over its rows. `begin` is not rounded to tiles.
TRIGEN_HOST_DEVICE constexpr Range row_tile_depth(Op op, Fill fill, const Sizes& z, int row, int tile_m) {
  const int first = row * tile_m;
  const int last = min(first + tile_m, z.T) - 1;
  const Range a = product_row(op, fill, z, first);
  const Range b = product_row(op, fill, z, last);
  const int begin = min(a.begin, b.begin), end = max(a.end, b.end);
  return begin < end ? Range{begin * z.K, end * z.K} : Range{0, 0};
}

// grad_weight: the column tiles of a row tile that touch the triangle; `every` asks for all of them
// (zero_outside), `one` for one at least (the row's grad_bias).
TRIGEN_HOST_DEVICE constexpr Range row_tile_columns(Fill fill, const Sizes& z, int row, int tile_m,
                                                    int tile_n, bool every, bool one) {
  const int columns = ceil_div(z.T * z.K, tile_n);
  if (every) return {0, columns};
  const int first = row * tile_m;
  const int last = min(first + tile_m, z.T) - 1;
  Range r{};
  if (fill == Fill::kLower) {
    r = {weight_row(fill, z, first).begin * z.K / tile_n,
         ceil_div(weight_row(fill, z, last).end * z.K, tile_n)};
    if (one && r.end == 0) r.end = 1;
  } else {
    r = {weight_row(fill, z, first).begin * z.K / tile_n, columns};
    if (one && r.begin == columns) r.begin = columns - 1;
  }
  return r.begin < r.end ? r : Range{r.begin, r.begin};
}

// grad_weight: a group is `raster` row tiles, walked column by column over the columns that any of its rows
// has; the few tiles of that rectangle outside the triangle are not valid.
struct Group {
  int first_row, rows;
  Range columns;
};
TRIGEN_HOST_DEVICE constexpr Group row_group(Fill fill, const Sizes& z, const Config& c, int group,
                                             int raster, bool every, bool one) {
  const int row_tiles = ceil_div(z.T, c.tile_m);
  const int first = group * raster;
  const int rows = min(raster, row_tiles - first);
  const Range a = row_tile_columns(fill, z, first, c.tile_m, c.tile_n, every, one);
  const Range b = row_tile_columns(fill, z, first + rows - 1, c.tile_m, c.tile_n, every, one);
  return {first, rows, {min(a.begin, b.begin), max(a.end, b.end)}};
}
TRIGEN_HOST_DEVICE constexpr int group_rows(const Sizes& z, const Config& c) {
  const int row_tiles = ceil_div(z.T, c.tile_m);
  return c.raster > 0 ? min(c.raster, row_tiles) : row_tiles;
}
// With split_k > 1 the reduction writes the zeros. Those of a band lie in its own rows (store_weights).
TRIGEN_HOST_DEVICE constexpr bool every_tile(const Shape& s, const Config& c) {
  return s.zero_outside && c.split_k <= 1 && s.w == WeightForm::kDense;
}

// Thread blocks of one head and one split: the grid is {tile_count, H, split_k}.
TRIGEN_HOST_DEVICE constexpr int tile_count(const Shape& s, const Config& c, const Sizes& z) {
  const int row_tiles = ceil_div(z.T, c.tile_m);
  if (!makes_weights(s.op)) return row_tiles * ceil_div(z.B * z.D, c.tile_n);
  const int raster = group_rows(z, c);
  int count = 0;
  for (int group = 0; group * raster < row_tiles; ++group) {
    const Group g = row_group(s.fill, z, c, group, raster, every_tile(s, c), s.bias);
    count += g.rows * (g.columns.end - g.columns.begin);
  }
  return count;
}

// The k of one split of grad_weight: whole steps of tile_k, as even as possible.
TRIGEN_HOST_DEVICE constexpr Range split_depth(const Config& c, int depth, int split) {
  const int splits = max(c.split_k, 1);
  const int steps = ceil_div(depth, c.tile_k);
  const int base = steps / splits, extra = steps % splits;
  const int begin = split * base + min(split, extra);
  const int end = begin + base + (split < extra ? 1 : 0);
  return {static_cast<int>(clamp(static_cast<long long>(begin) * c.tile_k, 0, depth)),
          static_cast<int>(clamp(static_cast<long long>(end) * c.tile_k, 0, depth))};
}

// forward and grad_input: the columns are cut into sections of `raster` tiles whose B panel stays in the L2
// cache; a section is walked longest row first, so that the short rows fill the gaps at its end. grad_weight:
// see Group.
TRIGEN_HOST_DEVICE constexpr Tile tile_at(const Shape& s, const Config& c, const Sizes& z, int index,
                                          int split) {
  const int row_tiles = ceil_div(z.T, c.tile_m);
  if (!makes_weights(s.op)) {
    const int column_tiles = ceil_div(z.B * z.D, c.tile_n);
    const int width = c.raster > 0 ? min(c.raster, column_tiles) : column_tiles;
    const int section = index / (row_tiles * width);
    const int rest = index - section * row_tiles * width;
    const int here = min(width, column_tiles - section * width);
    const int rank = rest / here;
    const int row = long_rows_last(s.op, s.fill) ? row_tiles - 1 - rank : rank;
    return {true, row, section * width + rest % here, false, row_tile_depth(s.op, s.fill, z, row, c.tile_m)};
  }
  const int raster = group_rows(z, c);
  for (int group = 0; group * raster < row_tiles; ++group) {
    const Group g = row_group(s.fill, z, c, group, raster, every_tile(s, c), s.bias);
    const int count = g.rows * (g.columns.end - g.columns.begin);
    if (index >= count) {
      index -= count;
      continue;
    }
    const int row = g.first_row + index % g.rows, column = g.columns.begin + index / g.rows;
    const Range own = row_tile_columns(s.fill, z, row, c.tile_m, c.tile_n, every_tile(s, c), s.bias);
    return {column >= own.begin && column < own.end, row, column, column == own.begin,
            split_depth(c, z.B * z.D, split)};
  }
  return {false, 0, 0, false, {0, 0}};
}

// A second launch of grad_weight adds parts: those of the sum, and those that tiles have of a Toeplitz matrix's diagonals.
inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceDiagonals = 8;  // of a block (a sector), by as many threads each as that leaves
TRIGEN_HOST_DEVICE constexpr bool sums_diagonals(const Shape& s) {
  return makes_weights(s.op) && s.w == WeightForm::kToeplitz;
}
TRIGEN_HOST_DEVICE constexpr bool adds_parts(const Shape& s, const Config& c) {
  return makes_weights(s.op) && (c.split_k > 1 || sums_diagonals(s));
}
// The diagonals of a tile, by t - s from the tile's upper right corner on, and one more that no element has.
TRIGEN_HOST_DEVICE constexpr int tile_diagonals(const Config& c) { return c.tile_m + c.tile_n; }
// Tiles of a lower triangle in the rows of tiles before `row`.
TRIGEN_HOST_DEVICE constexpr long long tiles_before(const Config& c, int row) {
  if (c.tile_m >= c.tile_n) return c.tile_m / c.tile_n * (static_cast<long long>(row) * (row + 1) / 2);
  const int same = c.tile_n / c.tile_m, whole = row / same;  // rows with as many tiles
  return row + static_cast<long long>(whole) * (whole - 1) / 2 * same +
         static_cast<long long>(whole) * (row % same);
}
// Its workspace. Partial dW as f32 [split][h][t][pitch], of a band as its rows lie; of a Toeplitz matrix
// [split][h][tile][diagonal]. Then, with split_k > 1, partial grad_bias [split][h][t].
TRIGEN_HOST_DEVICE constexpr int workspace_pitch(const Sizes& z) {
  return ((z.width > 0 ? z.width : z.T * z.K) + 3) / 4 * 4;
}
TRIGEN_HOST_DEVICE constexpr long long workspace_bias(const Shape& s, const Config& c, const Sizes& z) {
  return static_cast<long long>(max(c.split_k, 1)) * z.H *
         (sums_diagonals(s) ? tiles_before(c, ceil_div(z.T, c.tile_m)) * tile_diagonals(c)
                            : static_cast<long long>(z.T) * workspace_pitch(z));
}
TRIGEN_HOST_DEVICE constexpr long long workspace_floats(const Shape& s, const Config& c, const Sizes& z) {
  if (!adds_parts(s, c)) return 0;
  return workspace_bias(s, c, z) +
         (s.bias && c.split_k > 1 ? static_cast<long long>(c.split_k) * z.H * z.T : 0);
}

// Shared memory. The accumulators leave through it in slices: a slice is `fragments` fragments of
// `fragment_rows` rows of every warp row, as many as fit where the operands' stages were.
struct Footprint {
  int operands;    // bytes of all stages
  int slice_rows;  // rows of the output tile in one slice
  int total;       // bytes a block asks for
};
// Paddings keep both the fragments' stores and the vector reads off each other's banks: a fragment writes
// pairs of columns for 8 rows (row pitch = 8 words mod 32), or, when the output's rows are contiguous (bdt),
// single words for 4 pairs of columns and 8 rows (pitch = 4 words mod 32).
inline constexpr int kSlicePadColumns = 8, kSlicePadRows = 4;
TRIGEN_HOST_DEVICE constexpr bool rows_contiguous(const Shape& s) {
  return !makes_weights(s.op) && s.layout == Layout::kBDT;
}
TRIGEN_HOST_DEVICE constexpr int slice_bytes(const Shape& s, const Config& c, int rows) {
  return 4 * (rows_contiguous(s) ? c.tile_n * (rows + kSlicePadRows) : rows * (c.tile_n + kSlicePadColumns));
}
TRIGEN_HOST_DEVICE constexpr Footprint footprint(const Shape& s, const Config& c, int fragment_rows,
                                                 int operands) {
  int rows = c.tile_m;
  while (rows > fragment_rows * c.warps_m && rows % (2 * fragment_rows * c.warps_m) == 0 &&
         slice_bytes(s, c, rows) > operands)
    rows /= 2;
  return {operands, rows, max(operands, slice_bytes(s, c, rows))};
}
// simt keeps both operands as f32 with k outermost; the pad spreads a transposing store over the banks.
inline constexpr int kSimtPad = 4;
TRIGEN_HOST_DEVICE constexpr Footprint simt_footprint(const Shape& s, const Config& c) {
  return footprint(s, c, 32, 4 * c.stages * c.tile_k * (c.tile_m + c.tile_n + 2 * kSimtPad));
}
TRIGEN_HOST_DEVICE constexpr Footprint mma_footprint(const Shape& s, const Config& c) {
  return footprint(s, c, 16, (s.dtype == DType::kF32 ? 4 : 2) * c.stages * c.tile_k * (c.tile_m + c.tile_n));
}

}  // namespace trigen::schedule
