// The shared memory of a wgmma_sm90 kernel and the rules that its config obeys.
#pragma once

#include "config.h"
#include "pack_activations.h"
#include "persistent/heads.h"
#include "persistent/roles.cuh"
#include "strips.h"
#include "wgmma_sm90.h"

namespace trigen::wgmma_sm90 {

using persistent::KRange;
using persistent::product_fill;
using persistent::Ring;
using persistent::RingPosition;

template <Config c>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = consumers(c),
                                                    .load_registers = load_registers(c),
                                                    .sum_registers = sum_registers(c),
                                                    .register_threads = threads(c)};

template <Kernel C>
struct Geometry : persistent::Geometry<persistent::ring_config(C.config), kWarpgroups<C.config>> {
  static constexpr Config c = C.config;
  using Base = persistent::Geometry<persistent::ring_config(c), kWarpgroups<c>>;
  using Base::kCluster, Base::kConsumers, Base::kStages;
  static constexpr int kPanels = panels(c);
  static constexpr int kBoxFeatures = box_features(c), kParts = kPanel / kBoxFeatures,
                       kBoxes = kPanels * kParts, kBoxBytes = kPanelBytes / kParts;  // of B
  static constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
  static constexpr int kMajorB = kTokens ? 0 : 1;  // 0 is K-major
  static constexpr int kStepB =
      kTokens ? 32 >> 4 : 2 * kBoxFeatures;  // 16 elements of k, in units of the descriptor
  // Of B in the stage at `shared`. K-major, the boxes' rows run on as those of a panel.
  __device__ __forceinline__ static unsigned long long descriptor_b(unsigned shared) {
    return ptx::descriptor < kTokens ? 128 : 2 * kBoxFeatures > (shared, kBoxBytes);
  }
  static constexpr int kBytesA = rows_bytes(C.shape, c);
  static constexpr int kStageBytes = stage_bytes(C.shape, c);
  static constexpr bool kF32Weights = reads_f32_weights(C.shape, c), kNumbers = keeps_numbers(C.shape, c);
  static constexpr int kStorePanels = store_panels(C.shape, c), kPanelBuffers = panel_buffers(C.shape);
  static constexpr int kSharedBytes = shared_bytes(C.shape, c);
  static constexpr int kBarrierBytes = wgmma_sm90::kBarrierBytes;

  static_assert(C.shape.layout == Layout::kBTD || packing::packs_activations(C.shape, C.config) ||
                    !exchanges(C.shape),
                "features contiguous, or tokens without other tensors than the output");
  static_assert(C.shape.dtype != DType::kF32, "16-bit data");
  static_assert(!persistent::reads_heads(C.shape, c) ||
                    (C.shape.D >= persistent::kPiece && C.shape.D % c.vec_c == 0 && !exchanges(C.shape) &&
                     !C.shape.residual),
                "a piece of a head's ends alone, and no other tensors, whose heads begin elsewhere");
  static_assert(C.shape.K <= 1 && C.shape.pad == 0, "one tap: TMA cannot shift by single elements");
  static_assert(c.tile_m == 64 || c.tile_m == 128, "one or two warpgroups of 64 rows");
  static_assert(c.tile_n == 64 || c.tile_n == 128 || c.tile_n == 192 || c.tile_n == 256,
                "panels of 64 columns, 256 at most");
  static_assert(c.tile_k == 64, "one 128-byte swizzled row");
  static_assert(c.warps_m == 4 * kConsumers && c.warps_n == 1, "a warpgroup is 4 warps along m");
  static_assert(kStages <= 12, "the barriers fit");
  static_assert(kCluster == 1 || kCluster == 2, "column tiles that share the row tile of W");
  static_assert(!slices(c) || (c.split_k == c.cluster && c.tile_m == 64 && c.raster == 0),
                "a slice for each block of a cluster, 64 rows");
  static_assert(!kNumbers || (C.shape.T > 0 && kCluster == 1),
                "room for all numbers; no loads of W to share");
  static_assert(kConsumers >= kCluster, "each block of a cluster loads its share of W's row tile");
  static_assert(kStorePanels >= 1, "no shared memory left to stage the output: fewer stages");
};

// Row tiles begin at a band, which slices do not know.
template <Kernel C>
inline constexpr bool kBegins = C.shape.w == WeightForm::kBand;

// W in memory, as the product finds it.
template <Kernel C>
struct Weights : strips::Place<C.shape.w> {
  int width, blocks;  // of a band, or 0; of k in all
  __device__ __forceinline__ Weights(const persistent::Extents<C>& z, int blocks)
      : strips::Place<C.shape.w>{C.shape.w == WeightForm::kDense
                                     ? 0
                                     : strips::reach(C.shape.w, z.tokens, z.width)},
        width(z.width),
        blocks(blocks) {}
  // The first block of k of the row tile that begins at `first`.
  __device__ __forceinline__ int begin(int first) const {
    return persistent::blocks_before_band(product_fill(C.shape), first, C.config.tile_m, width, blocks);
  }
};

// Barriers of the staging panels of a warpgroup, behind the ring's: the epilogue's operands have landed in
// one (or it is free), its output is in it.
template <Kernel C>
struct PanelBarriers {
  using G = Geometry<C>;
  unsigned barriers;
  __device__ __forceinline__ PanelBarriers(const Ring<G>& ring, unsigned group)
      : barriers(ring.empty(G::kStages) + 16 * G::kStorePanels * group) {}
  __device__ __forceinline__ unsigned fetched(int slot) const { return barriers + 16 * slot; }
  __device__ __forceinline__ unsigned staged(int slot) const { return barriers + 16 * slot + 8; }
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < G::kStorePanels; ++slot) {
      ptx::mbarrier_init(fetched(slot), 1);
      ptx::mbarrier_init(staged(slot), 4);  // warps
    }
  }
};

}  // namespace trigen::wgmma_sm90
