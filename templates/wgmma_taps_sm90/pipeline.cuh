// Shared memory of a wgmma_taps_sm90 kernel, its barriers, and the work that all of its warps walk alike.
#pragma once

#include "config.h"
#include "pack.h"
#include "pack_activations.h"
#include "persistent/roles.cuh"
#include "wgmma_taps_sm90.h"

namespace trigen::wgmma_taps_sm90 {

template <Config c>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = consumers(c),
                                                    .load_registers = load_registers(c),
                                                    .sum_registers = sum_registers(c),
                                                    .register_threads = threads(c)};

template <Kernel C>
struct Geometry : persistent::Geometry<persistent::ring_config(C.config), kWarpgroups<C.config>> {
  static constexpr Config c = C.config;
  static constexpr Shape s = C.shape;
  using Base = persistent::Geometry<persistent::ring_config(c), kWarpgroups<c>>;
  using Base::kCluster, Base::kConsumers, Base::kStages;
  static constexpr int kPanels = panels(c);
  static constexpr int kBytesA = 0;  // a stage holds weights alone
  static constexpr int kStageBytes = stage_bytes(c);
  static constexpr int kFeatures = features(s, c);
  static constexpr int kInputPanels = input_panels(s, c), kInputPanelBytes = input_panel_bytes(s, c);
  static constexpr int kInputBuffers = input_buffers(s, c).loaded,
                       kTransposedBuffers = input_buffers(s, c).transposed;
  static constexpr int kTransposedBytes = transposed_bytes(s, c);
  static constexpr bool kTokens = contiguous_tokens(s, c);
  static constexpr bool kKeepsWeights = keeps_weights(s, c);
  static constexpr int kStorePanels = store_panels(s, c), kStoreBytes = store_bytes(s);
  static constexpr int kSharedBytes = shared_bytes(s, c);
  static constexpr int kBarrierBytes = wgmma_taps_sm90::kBarrierBytes;
  static constexpr int kOutput = kStages * kStageBytes;  // offsets in shared memory
  static constexpr int kInput = kOutput + kConsumers * kStorePanels * kStoreBytes;
  static constexpr int kTransposed = kInput + kInputBuffers * kInputPanels * kInputPanelBytes;

  static_assert(s.dtype != DType::kF32 &&
                    (s.layout == Layout::kBTD || kTokens || packing::packs_activations(s, c)),
                "16-bit data, rows that TMA takes");
  static_assert(s.op == Op::kForward || s.op == Op::kGradInput, "dW has another shape");
  static_assert(s.T > 0 && s.K > 1, "sizes are compiled in");
  static_assert(c.tile_m % 64 == 0 && c.tile_m >= 64 && c.tile_m <= 256, "panels of 64 tokens, 256 at most");
  static_assert(c.tile_n == 64 || c.tile_n == 128, "one or two warpgroups of 64 features");
  static_assert(kCluster == 1 || kCluster == 2, "column tiles that share the weights");
  static_assert(kStorePanels >= 1, "no shared memory left to stage the output: fewer stages");
  static_assert(!slices(c) || (c.split_k == c.cluster && c.tile_m == 64 && c.raster == 0),
                "a slice for each block, 64 tokens");
  static_assert(8 * (2 * kStages + schedule::max(kInputBuffers, 2) + 2 * kTransposedBuffers +
                     kConsumers * kStorePanels + (slices(c) ? c.cluster - 1 : 0)) <=
                    kBarrierBytes,
                "the barriers fit");
};

// The ring of weight tiles, and the barriers of the input: loaded[i] completes when a block has landed,
// ready[i] when it lies transposed in buffer i, done[i] when every consumer warp has released that; and of the
// output: fetched(group, i) when the epilogue's operands have landed in a warpgroup's staging panel i.
template <Kernel C>
struct Shared : persistent::Ring<Geometry<C>> {
  using G = Geometry<C>;
  static constexpr int kLoaded = schedule::max(G::kInputBuffers, 2), kTransposed = G::kTransposedBuffers;
  __device__ __forceinline__ unsigned input(int buffer, int panel) const {
    return this->base + G::kInput + (buffer * G::kInputPanels + panel) * G::kInputPanelBytes;
  }
  __device__ __forceinline__ unsigned transposed(int buffer) const {
    return this->base + G::kTransposed + buffer * G::kTransposedBytes;
  }
  __device__ __forceinline__ unsigned loaded(int buffer) const {
    return this->barriers + 16 * G::kStages + 8 * buffer;
  }
  __device__ __forceinline__ unsigned ready(int buffer) const { return loaded(kLoaded + buffer); }
  __device__ __forceinline__ unsigned done(int buffer) const { return ready(kTransposed + buffer); }
  __device__ __forceinline__ unsigned fetched(unsigned group, int slot) const {
    return done(kTransposed) + 8 * (group * G::kStorePanels + slot);
  }
  __device__ __forceinline__ unsigned staging(unsigned group, int slot) const {
    return this->base + G::kOutput + (group * G::kStorePanels + slot) * G::kStoreBytes;
  }

  __device__ __forceinline__ void init() const {
    for (int i = 0; i < schedule::max(kLoaded, kTransposed); ++i) {
      if (i < kLoaded) ptx::mbarrier_init(loaded(i), 1);
      if (i >= kTransposed) continue;
      ptx::mbarrier_init(ready(i), 1);
      ptx::mbarrier_init(done(i), 4 * G::kConsumers);
    }
    if constexpr (exchanges(G::s))
      for (int i = 0; i < static_cast<int>(G::kConsumers) * G::kStorePanels; ++i)
        ptx::mbarrier_init(fetched(0, i), 1);
    persistent::Ring<G>::init();
  }
  __device__ __forceinline__ void release_input(int buffer, unsigned lane) const {
    if (lane == 0) ptx::mbarrier_arrive(done(buffer));
  }
};

// Sizes and tile scheduler of a problem, for every warp.
template <Kernel C>
struct Work {
  using G = Geometry<C>;
  static constexpr Fill kFill = persistent::product_fill(C.shape);
  static constexpr bool kFlipped = packing::flips(C.shape);  // a panel's tokens run backwards
  // Tiles may have rows without any weight: such have no sum.
  static constexpr bool kEmptyRows = C.shape.fill == Fill::kLower ? C.shape.diag < 0 : C.shape.diag > 0;
  static constexpr int kTokens = C.shape.T, kBlocks = schedule::ceil_div(kTokens, kPanel);
  // In terms of (row, k): lower keeps k <= row + diag, upper keeps k >= row + diag.
  static constexpr int kDiag = (C.shape.op == Op::kGradInput ? -1 : 1) * C.shape.diag;
  static constexpr int kRows = schedule::ceil_div(kTokens, C.config.tile_m);
  // 64-token panels of the last row tile.
  static constexpr int kLastPanels = kBlocks - (kRows - 1) * G::kPanels;
  static constexpr int kFeatureTiles = schedule::ceil_div(C.shape.D, C.config.tile_n);

  typename persistent::RowWalk<slices(C.config)>::Type walk;
  int head_units, rank;

  __device__ __forceinline__ explicit Work(const Params& p)
      : head_units(column_units(C.config, p.B, C.shape.D)),
        rank(static_cast<int>(persistent::rank_in_cluster<G>())) {
    const int columns = C.shape.H * head_units;
    if constexpr (slices(C.config)) {
      const int cluster = static_cast<int>(blockIdx.x) / C.config.cluster, number = cluster / columns;
      walk = {persistent::RowPair(kFill, number, kRows, kDiag, kBlocks, C.config.cluster, 0),
              cluster - number * columns, static_cast<int>(ptx::cluster_rank())};
    } else {
      walk = persistent::scheduler_of_block<C>(kRows, columns);
    }
  }

  static __device__ __forceinline__ int valid_panels(int row) {
    return kLastPanels < G::kPanels && row == kRows - 1 ? kLastPanels : G::kPanels;
  }
  // A tile's panels are numbered by their k blocks, the one with the most first: place 0 is the last panel of
  // lower and the first one of upper. Those that take part in a step are [0, width) then.
  static __device__ __forceinline__ int panel_at(int row, int place) {
    return kFill == Fill::kLower ? valid_panels(row) - 1 - place : place;
  }
  // Steps of a panel, a block of k each: the first ones in the order of the walk, which ends at the diagonal.
  static __device__ __forceinline__ int panel_steps(int row, int place) {
    return persistent::KRange(kFill, row * C.config.tile_m + panel_at(row, place) * kPanel, kDiag, kBlocks)
        .blocks;
  }
  // Of the whole tile.
  static __device__ __forceinline__ int steps(int row) { return panel_steps(row, 0); }
  static __device__ __forceinline__ int width(int row, int step) {
    int width = valid_panels(row);
    while (width > 0 && panel_steps(row, width - 1) <= step) --width;
    return width;
  }
  // First token of step `step`.
  static __device__ __forceinline__ int token(int step) {
    return kPanel * (kFill == Fill::kLower ? step : kBlocks - 1 - step);
  }
  // Column unit `column` of this block.
  __device__ __forceinline__ void locate(int column, int& head, int& batch, int& feature) const {
    head = column / head_units;
    const int tile = (column - head * head_units) * G::kCluster + rank;
    batch = tile / kFeatureTiles;
    feature = (tile - batch * kFeatureTiles) * C.config.tile_n;
  }
};

}  // namespace trigen::wgmma_taps_sm90
