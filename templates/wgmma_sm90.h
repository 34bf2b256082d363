// Sizes of the wgmma_sm90 kernels that host and kernel agree on. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::wgmma_sm90 {

inline constexpr int kPanel = 64;             // elements of one 128-byte swizzled row, 16-bit types
inline constexpr int kPanelBytes = 64 * 128;  // 64 rows of 128 bytes: a box of the copy engine
inline constexpr int kSharedLimit = 232448;   // bytes a block may use on sm_90
inline constexpr int kBarrierBytes = 256;     // at the end of shared memory

TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) { return c.tile_m / 64; }  // warpgroups that multiply
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + 1); }
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) { return c.tile_n / kPanel; }
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c) { return (consumers(c) + panels(c)) * kPanelBytes; }
// Output panels that each multiplying warpgroup can stage: what the ring leaves, at most its whole tile. 0: too many stages.
TRIGEN_HOST_DEVICE constexpr int store_panels(const Config& c) {
  const int room = kSharedLimit - kBarrierBytes - c.stages * stage_bytes(c);
  return room < 0 ? 0 : schedule::min(panels(c), room / (consumers(c) * kPanelBytes));
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Config& c) {
  return c.stages * stage_bytes(c) + consumers(c) * store_panels(c) * kPanelBytes + kBarrierBytes;
}
// setmaxnreg: the registers that the loading warpgroup keeps and that each multiplying one gets, in units of 8.
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 40; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) { return consumers(c) == 1 ? 240 : 232; }

// Column tiles of one head, in units of a cluster: panels of 64 features, those of all batches in a row.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  return schedule::ceil_div(B * schedule::ceil_div(D, kPanel), panels(c) * c.cluster);
}
TRIGEN_HOST_DEVICE constexpr int row_tiles(const Config& c, int T) { return schedule::ceil_div(T, c.tile_m); }

inline constexpr int kWideSums = 128 * 256;    // f32 values of a wide part of grad_weight in the workspace
inline constexpr int kNarrowSums = 128 * 128;  // of a narrow one
inline constexpr int kReduceBlocks = 8;        // blocks of the reduction for each block of the product
inline constexpr int kReduceThreads = 256;

// How the blocks of grad_weight share its tiles. Row tiles of 128 t; each row's span of columns is cut into wide tiles of
// 256 s and, where 128 are left over, a narrow one of 128. Tiles are few and deep (k = B * D), so:
//   - whole rounds of wide tiles go one to a block;
//   - the wide tiles that are left are cut into split_k equal parts of k, one part to a block: blocks that work at the same
//     time then read the same k, which keeps x and dy in L2;
//   - the narrow tiles' k blocks are laid end to end and every block takes an equal share of them.
// Incomplete sums go to the workspace in f32; a second kernel adds them in a fixed order: the same bits every run.
struct Shares {
  int rows = 0;       // row tiles; as many columns of 128
  int diag = 0;
  bool lower = true;
  int depth = 0;      // k blocks of a tile
  int wide = 0, narrow = 0;  // tiles of 256 and of 128 columns
  int whole = 0;      // wide tiles that no one shares: a multiple of `blocks`, or all when split is 1
  int split = 1;      // parts of the others, none of them empty
  int blocks = 1;

  Shares() = default;
  TRIGEN_HOST_DEVICE constexpr Shares(int T, int d, bool is_lower, int k_blocks, int parts, int grid)
      : rows(schedule::ceil_div(T, 128)), diag(d), lower(is_lower), depth(k_blocks), split(schedule::min(parts, k_blocks)), blocks(grid) {
    for (int row = 0; row < rows; ++row) {
      const int n = last(row) - first(row);
      wide += n / 2;
      narrow += n & 1;
    }
    whole = split == 1 ? wide : wide / blocks * blocks;
  }
  // The span of row tile `row`, in columns of 128.
  TRIGEN_HOST_DEVICE constexpr int first(int row) const {
    return lower ? 0 : schedule::min(schedule::max((128 * row + diag) >> 7, 0), rows);
  }
  TRIGEN_HOST_DEVICE constexpr int last(int row) const {
    const int end = lower ? schedule::min(schedule::max(((128 * row + 127 + diag) >> 7) + 1, 0), rows) : rows;
    return schedule::max(end, first(row));
  }
  // Wide tile `index` in row order, or narrow tile `index`. `column` counts 128s.
  TRIGEN_HOST_DEVICE constexpr void locate(bool is_narrow, int index, int& row, int& column) const {
    for (row = 0;; ++row) {
      const int n = last(row) - first(row);
      const int here = is_narrow ? n & 1 : n / 2;
      if (index < here) {
        column = first(row) + (is_narrow ? n - 1 : 2 * index);
        return;
      }
      index -= here;
    }
  }
  TRIGEN_HOST_DEVICE constexpr int parts() const { return (wide - whole) * split; }
  TRIGEN_HOST_DEVICE constexpr int part_begin(int part) const { return static_cast<int>(static_cast<long long>(depth) * part / split); }
  // The narrow tiles' k blocks, end to end; blocks that have a share of them; where share b begins; who has position `at`.
  TRIGEN_HOST_DEVICE constexpr int length() const { return narrow * depth; }
  TRIGEN_HOST_DEVICE constexpr int sharers() const { return schedule::min(blocks, length()); }
  TRIGEN_HOST_DEVICE constexpr int bound(int b) const {
    return b >= sharers() ? length() : static_cast<int>(static_cast<long long>(length()) * b / sharers());
  }
  TRIGEN_HOST_DEVICE constexpr int owner(int at) const { return static_cast<int>(((at + 1ll) * sharers() - 1) / length()); }
  // Workspace of one head, in f32 values: the parts, then two narrow sums for each block (a share that began in an earlier
  // block, one that a later block ends).
  TRIGEN_HOST_DEVICE constexpr long long workspace() const {
    return static_cast<long long>(parts()) * kWideSums + 2ll * blocks * kNarrowSums;
  }
  TRIGEN_HOST_DEVICE constexpr long long narrow_slot(int b, bool from_start) const {
    return static_cast<long long>(parts()) * kWideSums + (2ll * b + (from_start ? 1 : 0)) * kNarrowSums;
  }
};

}  // namespace trigen::wgmma_sm90
