// The shared memory of forward and grad_input, the rules that their configs obey, and which panels of tokens
// take part in which steps along k.
#pragma once

#include "config.h"
#include "pack_activations.h"
#include "persistent/roles.cuh"
#include "wgmma_tf32_sm90.h"

namespace trigen::wgmma_tf32_sm90 {

using persistent::product_fill;
using persistent::Ring;
using persistent::RingPosition;
using persistent::TileScheduler;

template <Config c>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = consumers(c),
                                                    .load_registers = load_registers(c),
                                                    .sum_registers = sum_registers(c),
                                                    .register_threads = threads(c)};

// A stage holds a step of x (32 tokens by 64 features for each multiplying warpgroup, in two boxes of 32
// features), then one of W (32 columns of 64 rows for each panel of tokens). Where features are shifted, it holds W of
// one tap, and a slot behind the ring three boxes of x for each warpgroup.
template <Kernel C>
struct Geometry : persistent::Geometry<C.config, kWarpgroups<C.config>> {
  static constexpr Config c = C.config;
  using Base = persistent::Geometry<c, kWarpgroups<c>>;
  using Base::kCluster, Base::kConsumers, Base::kStages;
  static constexpr int kPanels = token_panels(c);
  static constexpr int kTaps = schedule::max(1, C.shape.K);
  static constexpr bool kShifts = shifts(kTaps);
  static constexpr int kBoxes = feature_boxes(c, kShifts);
  static constexpr int kFeatureBytes = feature_bytes(c, kShifts);
  static constexpr int kBytesA = kShifts ? 0 : kFeatureBytes;
  static constexpr int kStageBytes = stage_bytes(c, kShifts);
  static constexpr int kInputBytes = input_bytes(c, kShifts);
  static constexpr int kStorePanels = store_panels(c, kShifts);
  static constexpr int kSharedBytes = shared_bytes(c, kShifts);
  static constexpr int kBarrierBytes = wgmma_tf32_sm90::kBarrierBytes;
  // A packed W comes with zeros in it; the other triangle of W itself may hold anything.
  static constexpr bool kMasks = !packs(C.shape.op, c);
  static constexpr int kReleasingWarps = 4 * kConsumers + (kMasks ? kMaskingWarps : 0);

  static_assert(C.shape.dtype == DType::kF32 && C.shape.math == Math::kTF32 &&
                    C.shape.wdtype == DType::kF32 &&
                    (C.shape.layout == Layout::kBTD || packing::packs_activations(C.shape, C.config)),
                "f32 data multiplied as tf32, features contiguous");
  static_assert(kTaps <= kMostTaps, "a slot has 29 features to spare");
  static_assert(!kShifts || !kMasks, "W of taps is packed");
  static_assert(c.tile_n == 64 || c.tile_n == 128, "one or two warpgroups of 64 features");
  static_assert(c.tile_m == 64 || c.tile_m == 128 || c.tile_m == 192 || c.tile_m == 256,
                "panels of 64 tokens, 256 at most");
  static_assert(c.tile_k == kStep, "one 128-byte swizzled row of f32");
  static_assert(c.warps_m == 1 && c.warps_n == 4 * kConsumers, "a warpgroup is 4 warps along the features");
  static_assert(kCluster == 1 || kCluster == 2, "feature tiles that share the row tile of W");
  static_assert(kStorePanels >= 1, "no shared memory left to stage the output: fewer stages");
  static_assert(8 * (3 * kStages + 2 * kSlots) <= kBarrierBytes, "three barriers a stage, two a slot");
};

// One tile's tokens: `steps` along k in all, taps behind each other, the first `unmasked_steps` with all panels and nothing
// of the other triangle. Panel 0 is the one with the longest rows, the last one for lower: a step takes the first
// few panels. (Products of the last few sums make ptxas run out of registers, C7511.)
template <Kernel C>
struct TokenTile {
  static constexpr Fill kFill = product_fill(C.shape);
  static constexpr int kPanels = token_panels(C.config), kTaps = schedule::max(1, C.shape.K);
  int first, diag, all;  // first token; the product's diagonal; steps of the whole of k, of one tap
  int steps, unmasked_steps;

  __device__ __forceinline__ TokenTile(int row, int product_diag, int all_steps)
      : first(row * C.config.tile_m), diag(product_diag), all(all_steps) {
    steps = range(0).steps * kTaps;
    unmasked_steps = range(kPanels - 1).unmasked_steps * kTaps;
  }
  // The first token of panel `panel`, and its part of k.
  __device__ __forceinline__ int token(int panel) const {
    return first + kPanelTokens * (kFill == Fill::kLower ? kPanels - 1 - panel : panel);
  }
  __device__ __forceinline__ KStepRange range(int panel) const {
    return KStepRange(kFill, token(panel), diag, all);
  }
  // The element of k with which step `step` begins.
  __device__ __forceinline__ int k(int step) const {
    return kStep * (kFill == Fill::kLower ? step / kTaps : all - 1 - step / kTaps);
  }
  // Number of panels that take part in `step`.
  __device__ __forceinline__ int panels(int step) const {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kPanels; ++i) count += step < range(i).steps * kTaps ? 1 : 0;
    return count;
  }
};

// Features that tap `tap` of y's reads further on, and the least of all taps.
template <Kernel C>
__device__ __forceinline__ int shift_of(int tap) {
  return C.shape.op == Op::kForward ? tap - C.shape.pad : C.shape.pad - tap;
}
template <Kernel C>
inline constexpr int kFirstShift = C.shape.op == Op::kForward ? -C.shape.pad
                                                              : C.shape.pad - schedule::max(1, C.shape.K) + 1;
// With which feature of a tile a slot's boxes begin: 16 bytes are a box's unit.
template <Kernel C>
inline constexpr int kBoxStart = kFirstShift<C> & ~3;

}  // namespace trigen::wgmma_tf32_sm90
