// The stream-K schedule of grad_weight's kernels (stream_k.h).
#pragma once

#include "persistent/roles.cuh"
#include "persistent/weight_store.cuh"

namespace trigen::persistent::weight {

// Rows of the depth: batches, and features of each.
template <Kernel C>
__device__ __forceinline__ packing::Rows depth_rows(const Params& p, int features) {
  constexpr bool kJoined =
      packing::packs_activations(C.shape, C.config) && packing::joins_batches(C.shape.op, C.shape.K);
  return {kJoined, stacks(C.config) ? schedule::ceil_div(p.B, kConsumers * stacked(C.shape, C.config)) : p.B,
          features};
}

template <Kernel C>
inline constexpr int kDepth = block_depth(C.shape.dtype);

// Boxes of a panel, and elements of k in one.
template <Kernel C>
inline constexpr int kParts = parts(C.config);
template <Kernel C>
inline constexpr int kBox = kDepth<C> / kParts<C>;
// k blocks of so many batches.
template <Kernel C>
__device__ __forceinline__ int depth_of(int batches, int features) {
  return schedule::ceil_div(batches * schedule::ceil_div(features, kBox<C>), kParts<C>);
}

// The last k block of a batch may have fewer steps than the others, all of those that a batch has.
template <Kernel C>
inline constexpr int kLastSteps = last_steps(C.shape, C.config);
template <Kernel C>
inline constexpr int kBatchBlocks = schedule::ceil_div(C.shape.D, kDepth<C>);

// Position among a batch's k blocks, from block `first` of a tile on, in steps of `every`; here(): a batch's
// last block.
template <Kernel C>
struct BatchEnds {
  int block = 0, step = 0;  // of a batch
  __device__ __forceinline__ BatchEnds(int first, int every) {
    if constexpr (counts()) {
      block = first % kBatchBlocks<C>;
      step = every % kBatchBlocks<C>;
    }
  }
  __device__ __forceinline__ bool here() const {
    return kLastSteps<C> < block_steps() && block == kBatchBlocks<C> - 1;
  }
  __device__ __forceinline__ void advance() {
    if constexpr (counts()) {
      block += step;
      if (block >= kBatchBlocks<C>) block -= kBatchBlocks<C>;
    }
  }
  __device__ __forceinline__ static constexpr bool counts() {
    return kLastSteps<C> < block_steps() && kBatchBlocks<C> > 1;
  }
};

template <Kernel C>
__device__ __forceinline__ StreamK stream_k_of(const Params& p, const Extents<C>& z, int blocks) {
  constexpr int kScale = stream_k_scale(C.config);
  const packing::Rows rows = depth_rows<C>(p, z.features);
  return StreamK(StreamKArguments{.T = kScale * z.tokens,
                                  .diag = kScale * z.diag,
                                  .lower = C.shape.fill == Fill::kLower,
                                  .depth = depth_of<C>(rows.batches, rows.features),
                                  .split = C.config.split_k,
                                  .blocks = blocks,
                                  .tile_n = stream_k_columns(C.config),
                                  .edge = kScale * kEdge<C>,
                                  .copies = z.heads * kTaps<C>,
                                  .every_row = C.shape.bias,
                                  .interleaves = kTaps<C> == 1,
                                  .parts_alone = parts_alone(C.config),
                                  .taps = kTaps<C>,
                                  .width = stream_k_width(C.config, z.width),
                                  .diagonals = work_diagonals(C.shape, C.config)});
}

}  // namespace trigen::persistent::weight
