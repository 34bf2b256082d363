// Slices (slices.cuh): their shared memory and the rules that their configs obey, and the tile of a cluster.
#pragma once

#include "persistent/grad_weight.cuh"
#include "persistent/three_panels.h"

namespace trigen::persistent::weight {

// The ring is a block's own.
TRIGEN_HOST_DEVICE constexpr Config own_ring(Config c) {
  c.cluster = 1;
  return c;
}

// Output panels are staged in the ring.
template <Kernel C>
inline constexpr bool kStagesOutput = C.config.cluster == 1 && kStagedOutput<C>;

template <Kernel C>
struct SliceGeometry
    : persistent::Geometry<own_ring(C.config), Warpgroups{consumers(C.config), 0, 0, threads(C.config)}> {
  static constexpr Config c = C.config;
  static constexpr int kBytesA = consumers(c) * kPanelBytes;
  static constexpr int kStageBytes = stage_bytes(c);
  static constexpr int kSharedBytes = shared_bytes(c);
  static constexpr int kBarrierBytes = weight::kBarrierBytes;
  // Of the block, in shared memory: the sums that it is sent, [eight][rank], then those of grad_bias, [rank][row].
  static constexpr int kExchange = reuses_ring(c) ? 0 : c.stages * kStageBytes;
  static constexpr int kBiasExchange = kExchange + owned_eights(c) * c.split_k * eight_bytes(c);
  static constexpr int kBiasBytes = owned_eights(c) * kSentRows * 4;
  // Staged output, where a block is alone.
  static constexpr int kStorePanels = ring_panels(c);
  static constexpr bool kReusesPanels = false, kTokens = false;

  static_assert(makes_weights(C.shape.op) && C.shape.K <= 1 && !schedule::sums_diagonals(C.shape),
                "sums dW of one tap, element by element");
  static_assert(c.split_k == c.cluster, "a slice for every block");
  static_assert(c.tile_m == c.tile_n
                    ? c.tile_n == 64 || c.tile_n == 128
                    : c.cluster == 1 && ((c.tile_m == 64 && c.tile_n == 128) ||
                                         ((c.tile_m == 64 || c.tile_m == 128) && one_tile(c))),
                "the tiles that are counted, those of more columns than rows by a block alone");
  static_assert(!kStagesOutput<C> || consumers(c) * kStorePanels * kPanelBytes <= slices_bytes(c),
                "staged in the ring, and what lies behind it");
  static_assert(!fitted(c) || (C.shape.op == Op::kGram && C.shape.mirror && kStagesOutput<C> &&
                               !contiguous_tokens(C.shape, c) && c.tile_n % 16 == 0),
                "both triangles of 16-bit elements, features contiguous");
  static_assert(c.warps_m == 4 * consumers(c) && c.warps_n == 1, "a warpgroup is 4 warps along m");
  static_assert(kSharedBytes <= kSharedLimit && c.stages <= 12, "fits");
};

struct SlicedTile {
  int head, row, column;  // first element
  int panels;             // of its columns
  // Those that are loaded and multiplied: all of a block's beside grad_bias, or ptxas runs a narrow tile's products one after the
  // other (C7511), and all of 192 columns, whose last tile of a row takes as long as the others then, which run beside it.
  int multiplied;
  int own;              // of own_panel
  bool any, sums_bias;  // any: there is one for this cluster
};

// Tile `number` of 192 columns, found by a whole warp.
template <Kernel C>
__device__ __forceinline__ SlicedTile three_panel_tile(const StreamK& s, int number, bool itself) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int own = lane < s.rows ? three_panel_tiles(C.config, s, lane) : 0;
  int until = own;  // tiles of rows up to the lane's
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(~0u, until, step);
    if (lane >= step) until += before;
  }
  const int tiles = schedule::max(__shfl_sync(~0u, until, 31), 1), head = number / tiles,
            place = number - head * tiles;
  SlicedTile tile{.any = head < s.copies};
  const int row = schedule::min(__popc(__ballot_sync(~0u, until <= place)), s.rows - 1),
            at = C.config.tile_n * (place - __shfl_sync(~0u, until - own, row));
  if (!tile.any) return tile;
  tile.head = head;
  tile.row = kEdge<C> * row;
  tile.column = kEdge<C> * s.first(row) + at;
  tile.panels = schedule::min((span_elements(C.config, s, row) - at) / kPanel, panels(C.config));
  tile.multiplied = panels(C.config);
  tile.own = fitted(C.config) ? -1 : own_panel<C>(itself, tile.row, tile.column, tile.multiplied);
  tile.sums_bias = C.shape.bias && at == 0;
  return tile;
}

template <Kernel C>
__device__ __forceinline__ SlicedTile sliced_tile(const StreamK& stream_k, int number, bool itself) {
  if constexpr (one_tile(C.config)) return three_panel_tile<C>(stream_k, number, itself);
  SlicedTile tile{.any = number < stream_k.wide + stream_k.narrow};
  if (!tile.any) return tile;
  const bool narrow = number >= stream_k.wide;
  int place, row, column;
  tile.head = stream_k.copy_of(narrow, narrow ? number - stream_k.wide : number, place);
  stream_k.locate(narrow, place, row, column);
  tile.row = kEdge<C> * row;
  tile.column = kEdge<C> * column;
  tile.panels = narrow ? 1 : panels(C.config);
  tile.own = own_panel<C>(itself, tile.row, tile.column, tile.panels);
  tile.sums_bias = C.shape.bias && column == stream_k.first(row);
  tile.multiplied = tile.sums_bias ? panels(C.config) : tile.panels;
  return tile;
}

}  // namespace trigen::persistent::weight
