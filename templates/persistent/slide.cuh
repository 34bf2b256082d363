// grad_weight of a Toeplitz matrix by tile diagonals (diagonal_stream.h). x slides past dy: a stage has dy's and x's 128 tokens of one
// step, and x's are multiplied twice, by dy's of their own step and of the next one. So a step of 128 x 256 loads 32 KB, and a
// block's sums leave once for each pair of tile diagonals that it works on.
#pragma once

#include "diagonals.cuh"
#include "persistent/diagonal_stream.h"
#include "persistent/diagonals.cuh"
#include "persistent/grad_weight.cuh"

namespace trigen::persistent::weight {

template <Kernel C>
__device__ __forceinline__ DiagonalStream diagonal_stream(const Params& p, const Extents<C>& z, int grid) {
  const packing::Rows rows = depth_rows<C>(p, z.features);
  return {z.tokens, depth_of<C>(rows.batches, rows.features), z.heads, grid};
}

// Where a run is: its k block, and its row of tiles from the pair's first one on.
struct SlidePlace {
  int k, row, rows;
  __device__ __forceinline__ SlidePlace(const DiagonalStream& s, const DiagonalRun& run)
      : k(static_cast<int>(run.begin / s.pair_rows(run.pair))),
        row(static_cast<int>(run.begin - static_cast<long long>(k) * s.pair_rows(run.pair))),
        rows(s.pair_rows(run.pair)) {}
  __device__ __forceinline__ void advance() {
    if (++row == rows) row = 0, ++k;
  }
};

// The loading thread. A run that begins inside a k block takes x's tokens before its own first, in a stage of their own.
template <Kernel C>
__device__ __forceinline__ void load_slide(const Ring<Geometry<C>>& ring, const DiagonalStream& stream,
                                           int features, const TensorMap& map_dy, const TensorMap& map_x) {
  RingPosition<C.config.stages> at;
  DiagonalWalk walk(stream, static_cast<int>(blockIdx.x));
  for (DiagonalRun run; walk.next(run);) {
    SlidePlace place(stream, run);
    const auto load_x = [&](int row) {
      const BlockBoxes<C> from(features, place.k);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_panel<C, 2>(ring.b(at.stage), i, map_x, ring.full(at.stage), from, 128 * row + 64 * i, run.copy);
    };
    if (place.row > 0) {
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      ptx::mbarrier_arrive_expect(ring.full(at.stage), 2 * kPanelBytes);
      load_x(place.row - 1);
      at.advance();
    }
    for (long long step = run.begin; step < run.end; ++step) {
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      ptx::mbarrier_arrive_expect(ring.full(at.stage), 4 * kPanelBytes);
      const BlockBoxes<C> from(features, place.k);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_panel<C, 2>(ring.a(at.stage), i, map_dy, ring.full(at.stage), from,
                         128 * (2 * run.pair + place.row) + 64 * i, run.copy);
      load_x(place.row);
      at.advance();
      place.advance();
    }
  }
}

// A step: dy's rows by x's tokens of the same stage, and with kFar by those of the stage before. A group of products whole in one
// branch: ptxas runs those that a branch cuts one after the other (C7520).
template <Kernel C, bool kFar>
__device__ __forceinline__ void multiply_slide(float (&near)[64], float (&far)[64], unsigned long long a,
                                               unsigned long long b, unsigned long long before) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < block_steps(); ++i) {
    const unsigned long long own = a + step_offset<C, 2>(i);
    ptx::wgmma_ss<C.shape.dtype, 128, kTokens, kTokens>(near, own, b + step_offset<C, 2>(i), 1);
    if constexpr (kFar)
      ptx::wgmma_ss<C.shape.dtype, 128, kTokens, kTokens>(far, own, before + step_offset<C, 2>(i), 1);
  }
  ptx::wgmma_commit();
}

// One multiplying warpgroup. A stage is let go of when the products of the step after it are done.
template <Kernel C>
__device__ __forceinline__ void multiply_diagonals(const Params& p, const Ring<Geometry<C>>& ring,
                                                   const DiagonalStream& stream, unsigned group) {
  const unsigned lane = threadIdx.x % 32;
  RingPosition<C.config.stages> at;
  DiagonalWalk walk(stream, static_cast<int>(blockIdx.x));
  float near[64], far[64];
  for (DiagonalRun run; walk.next(run);) {
#pragma unroll
    for (int i = 0; i < 64; ++i) near[i] = far[i] = 0.0f;
    ptx::pin(near);
    ptx::pin(far);
    SlidePlace place(stream, run);
    int before = -1,
        older =
            -1;  // stages that are held: of the last step, which may be read once more, and of the one before
    if (place.row > 0) {
      ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      before = at.stage;
      at.advance();
    }
    for (long long step = run.begin; step < run.end; ++step) {
      ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      const unsigned long long a = operand_descriptor<C>(ring.a(at.stage) + box_offset<C, 2>(group, 0)),
                               b = operand_descriptor<C>(ring.b(at.stage));
      if (place.row > 0)
        multiply_slide<C, true>(near, far, a, b, operand_descriptor<C>(ring.b(before)));
      else
        multiply_slide<C, false>(near, far, a, b, b);
      ptx::wgmma_wait<1>();
      if (older >= 0) ring.release(older, lane);
      older = before;
      before = at.stage;
      at.advance();
      place.advance();
    }
    ptx::wgmma_wait<0>();
    ptx::pin(near);
    ptx::pin(far);
    if (older >= 0) ring.release(older, lane);
    ring.release(before, lane);
    float* const to = static_cast<float*>(p.workspace) +
                      (2 * run.number * kConsumers + static_cast<int>(group)) * group_diagonals(C.config);
    store_diagonals<C, 128>(ring, to, near, group);
    store_diagonals<C, 128>(ring, to + kConsumers * group_diagonals(C.config), far, group);
  }
}

template <Kernel C>
__device__ __forceinline__ void run_slide(const Params& p, const TensorMap& map_dy, const TensorMap& map_x) {
  using G = Geometry<C>;
  const Extents<C> z(p);
  const DiagonalStream stream = diagonal_stream<C>(p, z, static_cast<int>(gridDim.x));
  const Ring<G> ring = ring_of_block<G>();
  prepare<G>([&] { ring.init(); }, map_dy, map_x);
  ptx::let_next_launch_start();
  ptx::wait_for_launches_before();
  if (static_cast<int>(blockIdx.x) >= stream.blocks) return;
  split_roles<G>(
      [&](unsigned thread) {
        if (thread == 0) load_slide<C>(ring, stream, depth_rows<C>(p, z.features).features, map_dy, map_x);
      },
      [&](unsigned group) { multiply_diagonals<C>(p, ring, stream, group); });
}

// The launch behind it, as reduce_diagonals (reduce.cuh); a lane has every kDiagonalLanes-th run of a pair.
template <Kernel C>
__device__ __forceinline__ void reduce_slide(const Params& p) {
  constexpr int kHere = schedule::kReduceDiagonals, kOwn = group_diagonals(C.config);
  ptx::let_next_launch_start();  // it waits for the end of this one, which waits for the product's
  auto* const partial = reinterpret_cast<float*>(shared_memory());
  const Extents<C> z(p);
  const DiagonalStream stream =
      diagonal_stream<C>(p, z, static_cast<int>(gridDim.x) / reduce_blocks(C.config));
  const int thread = static_cast<int>(threadIdx.x), place = thread % kHere, lane = thread / kHere;
  const int items = schedule::ceil_div(z.tokens, kHere);
  const auto* const workspace = static_cast<const float*>(p.workspace);
  ptx::wait_for_launches_before();
  for (int all = static_cast<int>(blockIdx.x); all < z.heads * items; all += static_cast<int>(gridDim.x)) {
    const int head = all / items, distance = (all - head * items) * kHere + place;
    float sum = 0;
    for (int tile = distance / 128; tile <= distance / 128 + 1 && tile < stream.rows; ++tile) {
      const int pair = tile / 2;
      const long long segment = static_cast<long long>(head) * stream.pairs() + pair;
      const int first = stream.first_owner(head, pair), last = stream.last_owner(head, pair);
      const int from_corner = distance - 128 * tile;  // row - column in the tiles
#pragma unroll
      for (int group = 0; group < kConsumers; ++group) {
        const int at = from_corner - kPanel * group + C.config.tile_n - 1;
        if (at < 0 || at >= kOwn - 1) continue;
        const float* const from = workspace + ((tile % 2) * kConsumers + group) * kOwn + at;
#pragma unroll 4
        for (int b = first + lane; b <= last; b += kDiagonalLanes)
          sum += from[(b + segment) * (2 * kConsumers * kOwn)];
      }
    }
    write_diagonal<C>(p, partial, head, distance, z.tokens, sum);
    __syncthreads();
  }
}

}  // namespace trigen::persistent::weight
