// The shared memory of a wgmma_rows_sm90 kernel and the rules that its config obeys.
#pragma once

#include "config.h"
#include "persistent/panels.cuh"
#include "persistent/roles.cuh"
#include "wgmma_rows_sm90.h"

namespace trigen::wgmma_rows_sm90 {

using persistent::KRange;
using persistent::Panels;
using persistent::product_fill;
using persistent::Ring;
using persistent::RingPosition;
using persistent::TileScheduler;

template <Config c>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = consumers(c),
                                                    .load_registers = load_registers(c),
                                                    .sum_registers = sum_registers(c),
                                                    .register_threads = threads(c)};

// A stage: W's panels of 64 tokens of the tile by 64 of k, as TMA swizzles them, then each warpgroup's 64 rows of x.
template <Kernel C>
struct Geometry : persistent::Geometry<C.config, kWarpgroups<C.config>> {
  static constexpr Config c = C.config;
  using Base = persistent::Geometry<c, kWarpgroups<c>>;
  using Base::kConsumers, Base::kStages;
  static constexpr int kPanels = token_panels(c);
  static constexpr int kBytesA = kPanels * kPanelBytes, kStageBytes = stage_bytes(c);
  static constexpr int kSharedBytes = shared_bytes(c), kBarrierBytes = wgmma_rows_sm90::kBarrierBytes;
  static constexpr bool kTransposed = C.shape.op == Op::kGradInput;  // W is read along the output's tokens
  static constexpr int kStepW = kTransposed ? 2048 >> 4 : 32 >> 4;   // 16 of k, in units of the descriptor
  // A launch has packed W, with zeros outside the triangle, or blocks of W are masked in shared memory (triangle.cuh).
  static constexpr bool kMasks = c.weights == Access::kDirect;
  static constexpr bool kPairs = c.vec_b == 2;  // two features are a word of memory
  // The barrier of the bytes of a block that is masked once they are there; full[stage] waits for the mask.
  __device__ __forceinline__ static unsigned landed(const Ring<Geometry>& ring, int stage) {
    return ring.empty(kStages) + 8 * stage;
  }

  static_assert(C.shape.op == Op::kForward || C.shape.op == Op::kGradInput, "products of rows");
  static_assert(C.shape.dtype != DType::kF32 && C.shape.layout == Layout::kBTD,
                "16-bit features, contiguous");
  static_assert(C.shape.K <= 1 && C.shape.pad == 0 && C.shape.w == WeightForm::kDense, "one tap of a matrix");
  static_assert(!kMasks || (C.shape.wdtype == C.shape.dtype && kStages > 3),
                "16-bit W, masked two stages later; a stage is released once products of the next one run");
  static_assert(c.tile_m % kPanel == 0 && c.tile_m <= 256, "tokens, by wgmma's widths");
  static_assert(c.tile_n == 64 || c.tile_n == 128, "one or two warpgroups of 64 features");
  static_assert(c.tile_k == kPanel && c.cluster == 1, "one 128-byte swizzled row of W; blocks share nothing");
  static_assert(c.warps_m == 4 * kConsumers && c.warps_n == 1, "a warpgroup is 4 warps along the features");
  static_assert(kStages <= kMostStages, "the barriers fit");
  static_assert(kSharedBytes <= kSharedLimit, "fewer stages");
};

// The first token of panel `panel` of the tile that begins at `first`. The panels of W lie in a stage, and their sums in
// registers, in the order of their k ranges, longest first: blocks of k that few panels reach then belong to the first sums.
// (ptxas serialises products whose sums begin in the middle of those of wider ones, C7511.)
template <Kernel C>
__device__ __forceinline__ int panel_token(int first, int panel) {
  return first + kPanel * (product_fill(C.shape) == Fill::kLower ? Geometry<C>::kPanels - 1 - panel : panel);
}
// The blocks of k, in the order of the walk, that reach panel `panel`: none of the later ones reaches more.
template <Kernel C>
__device__ __forceinline__ int blocks_reached(int first, int panel, int diag, int blocks) {
  return KRange(product_fill(C.shape), panel_token<C>(first, panel), diag, blocks).blocks;
}
// How many panels a block reaches, and whether the triangle's edge runs through it and its W is not masked yet.
template <Kernel C>
__device__ __forceinline__ int panels_reached(int first, int block, int diag, int blocks) {
  int count = 1;
  while (count < Geometry<C>::kPanels && block < blocks_reached<C>(first, count, diag, blocks)) ++count;
  return count;
}
template <Kernel C>
__device__ __forceinline__ bool crosses_diagonal(int first, int count, int block, int diag, int blocks) {
  return Geometry<C>::kMasks &&
         block >=
             KRange(product_fill(C.shape), panel_token<C>(first, count - 1), diag, blocks).unmasked_blocks;
}
// The first k of a block.
template <Kernel C>
__device__ __forceinline__ int first_k(int block, int blocks) {
  return kPanel * (product_fill(C.shape) == Fill::kLower ? block : blocks - 1 - block);
}

}  // namespace trigen::wgmma_rows_sm90
