// Tiles of 64 or 128 rows by 192 columns, one for a block: where tiles of 128 columns are a few more than the SMs, these are fewer
// than them. StreamK counts the rows' spans, which begin and end at its edges. Plain C++, like config.h.
#pragma once

#include "persistent/grad_weight.h"

namespace trigen::persistent::weight {

inline constexpr int kMostThreePanelRows = 32;  // a warp finds a tile's row

// Elements of a row tile's span, from element first(row) * edge on, and the tiles that it is cut into.
TRIGEN_HOST_DEVICE constexpr int span_elements(const Config& c, const StreamK& s, int row) {
  return edge_of(c) * s.span(row);
}
TRIGEN_HOST_DEVICE constexpr int three_panel_tiles(const Config& c, const StreamK& s, int row) {
  return schedule::ceil_div(span_elements(c, s, row), c.tile_n);
}
TRIGEN_HOST_DEVICE constexpr int three_panel_tiles(const Config& c, const StreamK& s) {  // of all copies
  int tiles = 0;
  for (int row = 0; row < s.rows; ++row) tiles += three_panel_tiles(c, s, row);
  return tiles * s.copies;
}
// Tiles of slices, of all copies.
TRIGEN_HOST_DEVICE constexpr int sliced_tiles(const Config& c, const StreamK& s) {
  return one_tile(c) ? three_panel_tiles(c, s) : s.wide + s.narrow;
}

}  // namespace trigen::persistent::weight
