// Slices of forward and grad_input: a cluster's blocks make two row tiles of the same columns, as far from
// either end of the triangle, so that all clusters have as much to multiply. The k blocks of the longer one and
// then those of the shorter one are cut into a run for each block. The first block stores the longer one, the
// last block the shorter one, and the others send them their sums. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "persistent/k_range.h"
#include "persistent/sizes.h"
#include "persistent/tile_scheduler.h"
#include "schedule.h"

namespace trigen::persistent {

TRIGEN_HOST_DEVICE constexpr bool slices(const Config& c) { return c.split_k > 1; }
// Blocks that load for each other: those of a cluster, but slices, whose blocks have a ring each.
TRIGEN_HOST_DEVICE constexpr int sharers(const Config& c) { return slices(c) ? 1 : c.cluster; }
// Of the blocks that fill a stage together.
TRIGEN_HOST_DEVICE constexpr Config ring_config(Config c) {
  c.cluster = sharers(c);
  return c;
}
// A block has room for what every other one sends.
TRIGEN_HOST_DEVICE constexpr int sent_bytes(const Config& c) {
  return slices(c) ? (c.cluster - 1) * c.tile_m * c.tile_n * 4 : 0;
}
// A work tile: k blocks [begin, end) of a row tile, counted as KRange counts them. Without slices all of
// them.
struct RowWorkTile {
  int row = 0, column = 0;
  int begin = 0, end = 0;
  bool stores = true;    // else the block sends its sums to block `owner`
  int owner = 0;         // of the cluster's
  unsigned senders = 0;  // bit n: the sums that block n sends are added
};

TRIGEN_HOST_DEVICE constexpr int row_pairs(int rows) { return schedule::ceil_div(rows, 2); }

// Pair `number` of `rows` row tiles of 64, from the ends of the triangle inwards.
struct RowPair {
  int longer = 0, shorter = -1;         // row tiles; shorter < 0: an odd number's middle one is alone
  int longer_end = 0, shorter_end = 0;  // their blocks of k
  int slices = 1, sending = 0;

  TRIGEN_HOST_DEVICE constexpr RowPair() = default;

  // sending: blocks of k that take as long as it takes to send sums.
  TRIGEN_HOST_DEVICE constexpr RowPair(Fill fill, int number, int rows, int diag, int blocks, int slices,
                                       int sending)
      : longer(fill == Fill::kLower ? rows - 1 - number : number),
        shorter(rows - 1 - longer == longer ? -1 : rows - 1 - longer),
        longer_end(reached(fill, longer, diag, blocks)),
        shorter_end(shorter < 0 ? 0 : reached(fill, shorter, diag, blocks)),
        slices(slices),
        sending(schedule::min(sending, all())) {}

  TRIGEN_HOST_DEVICE constexpr int all() const { return longer_end + shorter_end; }
  // The first k block of block `rank`'s run, those of the shorter row tile counted behind the longer one's. A block that
  // stores a row tile has some of it, if it has any.
  TRIGEN_HOST_DEVICE constexpr int bound(int rank) const {
    if (rank == 0 || rank == slices) return rank == 0 ? 0 : all();
    const int even = schedule::ceil_div(rank * all() + (slices - rank) * sending, slices);
    return schedule::min(even, rank == 1 ? longer_end : all() - (shorter_end > 0 ? 1 : 0));
  }
  // The same, counted in the longer row tile or in the shorter one.
  TRIGEN_HOST_DEVICE constexpr int first(int rank, bool of_longer) const {
    return of_longer ? schedule::min(bound(rank), longer_end)
                     : schedule::max(bound(rank), longer_end) - longer_end;
  }
  // The most k blocks of a run.
  TRIGEN_HOST_DEVICE constexpr int longest() const {
    int most = 0;
    for (int rank = 0; rank < slices; ++rank) most = schedule::max(most, bound(rank + 1) - bound(rank));
    return most;
  }

 private:
  TRIGEN_HOST_DEVICE static constexpr int reached(Fill fill, int row, int diag, int blocks) {
    return KRange(fill, row * kPanel, diag, blocks).blocks;
  }
};

// The work tiles of a block: at most one of each row tile.
struct Slices {
  RowWorkTile longer, shorter;
  bool has_longer = false, has_shorter = false;
  int at = 0;  // the row tile to look at next

  TRIGEN_HOST_DEVICE constexpr Slices() = default;
  // Of block `rank` of a cluster.
  TRIGEN_HOST_DEVICE constexpr Slices(const RowPair& pair, int column, int rank)
      : longer(tile_of(pair, column, rank, true)),
        shorter(tile_of(pair, column, rank, false)),
        has_longer(longer.stores || longer.begin < longer.end),
        has_shorter(shorter.stores || shorter.begin < shorter.end) {}
  TRIGEN_HOST_DEVICE constexpr bool next(RowWorkTile& work) {
    if (at == 0) {
      at = 1;
      work = longer;
      if (has_longer) return true;
    }
    work = shorter;
    return at++ == 1 && has_shorter;
  }

 private:
  TRIGEN_HOST_DEVICE static constexpr RowWorkTile tile_of(const RowPair& pair, int column, int rank,
                                                          bool of_longer) {
    RowWorkTile tile;
    tile.row = of_longer ? pair.longer : pair.shorter;
    tile.column = column;
    tile.begin = pair.first(rank, of_longer);
    tile.end = pair.first(rank + 1, of_longer);
    tile.owner = of_longer ? 0 : pair.slices - 1;
    tile.stores = rank == tile.owner && tile.row >= 0;
    for (int other = 0; tile.stores && other < pair.slices; ++other)
      if (other != rank && pair.first(other, of_longer) < pair.first(other + 1, of_longer))
        tile.senders |= 1u << other;
    return tile;
  }
};

// The walk of a block.
template <bool kSlices>
struct RowWalk {
  using Type = TileScheduler;
};
template <>
struct RowWalk<true> {
  using Type = Slices;
};

TRIGEN_HOST_DEVICE constexpr bool next_work(Slices& slices, RowWorkTile& work) { return slices.next(work); }
TRIGEN_HOST_DEVICE constexpr bool next_work(TileScheduler& scheduler, RowWorkTile& work) {
  return scheduler.next(work.row, work.column);
}

}  // namespace trigen::persistent
