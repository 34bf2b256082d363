// Tile scheduler of forward and grad_input: the order of output tiles and their clusters. Plain C++, like
// config.h.
#pragma once

#include "config.h"
#include "persistent/k_range.h"
#include "persistent/sizes.h"
#include "schedule.h"

namespace trigen::persistent {

TRIGEN_HOST_DEVICE constexpr int row_tiles(const Config& c, int T) { return schedule::ceil_div(T, c.tile_m); }
// Column tiles of one head, in units of a cluster, which has `panels` panels of `features` features; those of
// all batches in a row.
TRIGEN_HOST_DEVICE constexpr int panel_units(int panels, int B, int D, int features = kPanel) {
  return schedule::ceil_div(B * schedule::ceil_div(D, features), panels);
}

// The walk of a cluster over output tiles, the same for loader and consumers: sections of columns that fit
// L2; inside a section the longest rows come first and go to the clusters forwards and backwards in turn, so
// that each gets long and short ones. Every section begins anew: an order that ran on across sections gave
// some clusters the long rows of all (up to 1.9x the ideal time).
//
// By columns, a section has a column for each cluster, which takes all rows of it, so that what they share comes from
// memory once: two clusters that share a column read it as far apart as their rings are deep (an H100 reads a fifth more
// of memory by 192 KB of ring at two row tiles, 2026-11-28).
struct TileScheduler {
  int rows, columns, section;  // row tiles; column units of all heads; column units in a section
  int clusters, cluster;       // how many there are, which one this is
  bool longest_last;           // the last row is the longest one
  int turns = 1;               // 0: always forwards, by columns
  int start = 0, round = 0, backwards = turns;

  // The next tile of this cluster; false at the end.
  TRIGEN_HOST_DEVICE constexpr bool next(int& row, int& column) {
    while (start < columns) {
      const int width = schedule::min(section, columns - start);
      while (round < width * rows) {
        backwards ^= turns;
        const int unit = round + (backwards ? clusters - 1 - cluster : cluster);
        round += clusters;
        if (unit < width * rows) {
          const int r = unit / width;
          column = start + unit - r * width;
          row = longest_last ? rows - 1 - r : r;
          return true;
        }
      }
      start += section;
      round = 0;
    }
    return false;
  }
};

TRIGEN_HOST_DEVICE constexpr bool walks_by_columns(const Config& c) { return c.raster == 1; }
// Column units in a section: what the config says, but work for (nearly) every cluster. One column more than
// a round holds would cost a second round for a few tiles.
TRIGEN_HOST_DEVICE constexpr int section_columns(const Config& c, int rows, int columns, int clusters) {
  if (walks_by_columns(c)) return schedule::min(clusters, columns);
  const int section = c.raster > 0 ? schedule::max(c.raster, schedule::max(clusters / rows, 1)) : columns;
  return schedule::min(section, columns);
}

// The walk of cluster `cluster` over the tiles of a product.
TRIGEN_HOST_DEVICE constexpr TileScheduler scheduler_of(const Shape& s, const Config& c, int rows,
                                                        int columns, int clusters, int cluster) {
  return {.rows = rows,
          .columns = columns,
          .section = section_columns(c, rows, columns, clusters),
          .clusters = clusters,
          .cluster = cluster,
          .longest_last = product_fill(s) == Fill::kLower,
          .turns = walks_by_columns(c) ? 0 : 1};
}

}  // namespace trigen::persistent
