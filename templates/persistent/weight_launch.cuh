// grad_weight's launch that multiplies, of operands that TMA loads.
#pragma once

#include "persistent/slices.cuh"
#include "persistent/triangle_cluster.cuh"
#include "persistent/whole_triangle.cuh"

namespace trigen::persistent::weight {

template <Kernel C>
__device__ __forceinline__ void run_tiles(const Params& p, const TensorMap& map_dy, const TensorMap& map_x,
                                          const TensorMap& map_dw) {
  using G = Geometry<C>;
  const Extents<C> z(p);
  const StreamK stream_k = stream_k_of<C>(p, z, static_cast<int>(gridDim.x) / C.config.cluster);
  const auto rank = static_cast<int>(rank_in_cluster<G>());
  const bool itself = multiplies_itself<C>(p);
  if constexpr (C.shape.bias) write_ones<C, G>();
  const Ring<G> ring = ring_of_block<G>();
  if constexpr (stacks(C.config)) clear_unfilled<C>(ring.base);
  prepare<G>([&] { ring.init(); }, map_dy, map_x, map_dw);
  if constexpr (lets_next_start(C.shape, C.config)) ptx::let_next_launch_start();
  if constexpr (C.shape.op == Op::kGram && !C.shape.pointers && C.shape.dtype != DType::kF32 &&
                C.config.cluster == 1)
    if (threadIdx.x == 128 * kConsumers)
      prefetch_gram<C>(stream_k, depth_rows<C>(p, z.features).features, itself, map_dy, map_x);
  ptx::wait_for_launches_before();
  split_roles<G>(
      [&](unsigned thread) {
        const int warp = static_cast<int>(thread / 32);
        if (thread == 0) {
          const int features = depth_rows<C>(p, z.features).features;
          if constexpr (shares_triangle(C.config))
            load_triangle_cluster<C>(p, ring, stream_k, features, rank, itself, map_dy, map_x);
          else if constexpr (holds_triangle(C.config))
            load_triangle<C>(p, ring, stream_k, features, itself, map_dy, map_x);
          else
            load_grad_weight<C>(p, ring, stream_k, features, rank, itself, map_dy, map_x);
        }
        // The warps that have nothing to load write zeros to the columns without a tile.
        if (C.shape.zero_outside && !schedule::sums_diagonals(C.shape) && warp > 0)
          write_zeros<C>(p, stream_k, z.heads, z.tokens, static_cast<int>(blockIdx.x) * 3 + warp - 1,
                         static_cast<int>(gridDim.x) * 3, static_cast<int>(threadIdx.x % 32),
                         pause_of_zeros<C>(stream_k, z.heads, static_cast<int>(gridDim.x)));
      },
      [&](unsigned group) {
        if constexpr (holds_triangle(C.config))
          multiply_triangle<C>(p, ring, stream_k, z.tokens, z.diag, itself, group);
        else if constexpr (takes_turns(C.config))
          multiply_in_turn<C>(p, ring, stream_k, z.tokens, z.features, z.diag, rank, itself, group, map_dw);
        else
          multiply_grad_weight<C>(p, ring, stream_k, z.tokens, z.features, z.diag, rank, itself, group,
                                  map_dw);
      });
}

// The launch that multiplies.
template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& map_dy, const TensorMap& map_x,
                                    const TensorMap& map_dw) {
  if constexpr (slices(C.config))
    run_slices<C>(p, map_dy, map_x, map_dw);
  else
    run_tiles<C>(p, map_dy, map_x, map_dw);
}

}  // namespace trigen::persistent::weight
