// Who sums which part of grad_weight, as its kernels see it (shares.h).
#pragma once

#include "pack_activations.h"
#include "persistent/roles.cuh"
#include "persistent/weight_store.cuh"

namespace trigen::persistent::weight {

// What the depth is cut from: batches, and features of each.
template <Kernel C>
__device__ __forceinline__ packing::Rows depth_rows(const Params& p, int features) {
  constexpr bool kJoined =
      packing::packs_activations(C.shape, C.config) && packing::joins_batches(C.shape.op, C.shape.K);
  return {kJoined, stacks(C.config) ? schedule::ceil_div(p.B, kConsumers * stacked(C.shape.T)) : p.B,
          features};
}

// Elements of k in a block: a 128-byte swizzled row.
template <Kernel C>
inline constexpr int kDepth = 128 / kBytes<C.shape.dtype>;

template <Kernel C>
__device__ __forceinline__ Shares shares_of(const Params& p, const Extents<C>& z, int blocks) {
  constexpr int kScale = shares_scale(C.config);
  const packing::Rows rows = depth_rows<C>(p, z.features);
  return Shares(Cut{.T = kScale * z.tokens,
                    .diag = kScale * z.diag,
                    .lower = C.shape.fill == Fill::kLower,
                    .depth = rows.batches * schedule::ceil_div(rows.features, kDepth<C>),
                    .split = C.config.split_k,
                    .blocks = blocks,
                    .tile_n = C.config.tile_n,
                    .edge = kScale * kEdge<C>,
                    .copies = z.heads * kTaps<C>,
                    .every_row = C.shape.bias,
                    .interleaves = kTaps<C> == 1,
                    .parts_alone = stacks(C.config)});
}

}  // namespace trigen::persistent::weight
