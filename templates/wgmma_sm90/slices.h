// Slices of forward and grad_input: a cluster's two blocks make two row tiles of the same columns, as far from
// either end of the triangle, so that all clusters have as much to multiply. The first block begins the longer
// one; the second one multiplies what is left of its k, sends these sums to the first one, and makes the shorter
// one. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "persistent/k_range.h"
#include "persistent/sizes.h"
#include "persistent/tile_scheduler.h"
#include "schedule.h"

namespace trigen::wgmma_sm90 {

TRIGEN_HOST_DEVICE constexpr bool slices(const Config& c) { return c.split_k > 1; }
inline constexpr int kSlices = 2;  // blocks of such a cluster
// Blocks that load for each other: those of a cluster, but slices, whose blocks have a ring each.
TRIGEN_HOST_DEVICE constexpr int sharers(const Config& c) { return slices(c) ? 1 : c.cluster; }
TRIGEN_HOST_DEVICE constexpr int sent_bytes(const Config& c) {
  return slices(c) ? c.tile_m * c.tile_n * 4 : 0;
}
// A work tile: k blocks [begin, end) of a row tile, counted as KRange counts them. Without slices all of
// them.
struct RowWorkTile {
  int row = 0, column = 0;
  int begin = 0, end = 0;
  bool stores = true;  // else the block sends its sums
  bool adds = false;   // the sums that the other block sends
};

TRIGEN_HOST_DEVICE constexpr int row_pairs(int rows) { return schedule::ceil_div(rows, 2); }

// Pair `number` of `rows` row tiles, from the ends of the triangle inwards.
struct RowPair {
  int longer, shorter;          // row tiles; shorter < 0: an odd number's middle one is alone
  int longer_end, shorter_end;  // their blocks of k
  int cut;                      // those of the longer one that the first block multiplies

  // sending: blocks of k that take as long as it takes to send sums.
  TRIGEN_HOST_DEVICE constexpr RowPair(Fill fill, int number, int rows, int diag, int blocks, int sending)
      : longer(fill == Fill::kLower ? rows - 1 - number : number),
        shorter(rows - 1 - longer == longer ? -1 : rows - 1 - longer),
        longer_end(reached(fill, longer, diag, blocks)),
        shorter_end(shorter < 0 ? 0 : reached(fill, shorter, diag, blocks)),
        cut(schedule::min(longer_end, schedule::ceil_div(longer_end + shorter_end + sending, 2))) {}

 private:
  TRIGEN_HOST_DEVICE static constexpr int reached(Fill fill, int row, int diag, int blocks) {
    return persistent::KRange(fill, row * persistent::kPanel, diag, blocks).blocks;
  }
};

// The work tiles of a block: one of the first block of a pair, at most two of the second one.
struct Slices {
  RowPair pair;
  int column, rank;
  int at = 0;  // work tiles before the next one

  TRIGEN_HOST_DEVICE constexpr bool next(RowWorkTile& work) {
    const bool sends = pair.cut < pair.longer_end;
    if (rank == 0) {
      work = {pair.longer, column, 0, pair.cut, true, sends};
      return at++ == 0;
    }
    if (at == 0) {
      at = 1;
      work = {pair.longer, column, pair.cut, pair.longer_end, false, false};
      if (sends) return true;
    }
    work = {pair.shorter, column, 0, pair.shorter_end, true, false};
    return at++ == 1 && pair.shorter >= 0;
  }
};

TRIGEN_HOST_DEVICE constexpr bool next_work(Slices& slices, RowWorkTile& work) { return slices.next(work); }
TRIGEN_HOST_DEVICE constexpr bool next_work(persistent::TileScheduler& scheduler, RowWorkTile& work) {
  return scheduler.next(work.row, work.column);
}

}  // namespace trigen::wgmma_sm90
