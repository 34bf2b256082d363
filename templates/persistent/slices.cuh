// grad_weight of few tiles in one launch (grad_weight.h, slices): the blocks of a cluster multiply a slice of
// one tile's depth each. Every block owns some of the tile's rows, by eights: the others send it their sums of
// these through distributed shared memory, it adds them in the blocks' order and writes them. A block alone
// turns its sums into whole rows by the same way, or, where TMA can store them, stages them in the ring.
#pragma once

#include "persistent/added_rows.cuh"
#include "persistent/fitted_store.cuh"
#include "persistent/slice_sums.cuh"

namespace trigen::persistent::weight {

// The loading thread, ahead of griddepcontrol.wait: the first k blocks, into the L2. No value is read.
template <Kernel C>
__device__ __forceinline__ void prefetch_slice(const SlicedTile& tile, int depth, int features, int rank,
                                               const TensorMap& map_dy, const TensorMap& map_x) {
  const int end = schedule::min(depth, rank + kFirstBlocks * C.config.cluster);
  const MappedMatrix of_head{tile.head, 0};
#pragma unroll 1
  for (int block = rank; block < end; block += C.config.cluster) {
    const BlockBoxes<C> from(features, block);
    for (int i = 0; i < (fitted(C.config) ? 1 : tile.multiplied); ++i)  // a fitted tile's box has all columns
      prefetch_panel<C>(map_x, from, tile.column + kPanel * i, of_head);
    if (tile.own >= 0) continue;
    for (int i = 0; i < C.config.tile_m / kPanel; ++i)
      prefetch_panel<C>(map_dy, from, tile.row + kPanel * i, of_head);
  }
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_slice(const Params& p, const Ring<SliceGeometry<C>>& ring,
                                           const SlicedTile& tile, int depth, int features, int rank,
                                           const TensorMap& map_dy, const TensorMap& map_x) {
  constexpr int kRows = C.config.tile_m / kPanel, kColumns = C.config.tile_n / kPanel;  // in panels
  const MappedMatrix dy = mapped<C>(p.y, tile.head), x = mapped<C>(p.x, tile.head);
  RingPosition<C.config.stages> at;
  for (int block = rank; block < depth; block += C.config.cluster) {
    const BlockBoxes<C> from(features, block);
    ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
    ptx::mbarrier_arrive_expect(ring.full(at.stage),
                                fitted(C.config)
                                    ? stage_bytes(C.config)
                                    : (tile.multiplied + (tile.own >= 0 ? 0 : kRows)) * kPanelBytes);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (tile.own >= 0) break;
      load_panel<C, kRows>(ring.a(at.stage), i, map_dy, ring.full(at.stage), from, tile.row + kPanel * i, dy);
    }
#pragma unroll
    for (int i = 0; i < (fitted(C.config) ? 1 : kColumns); ++i) {
      if (i >= tile.multiplied) break;
      load_panel<C, kColumns>(ring.b(at.stage), i, map_x, ring.full(at.stage), from, tile.column + kPanel * i,
                              x);
    }
    at.advance();
  }
}

// A cluster for every tile, at least one.
template <Kernel C>
__device__ __forceinline__ void run_slices(const Params& p, const TensorMap& map_dy, const TensorMap& map_x,
                                           const TensorMap& map_dw) {
  using G = SliceGeometry<C>;
  constexpr int kSlices = C.config.cluster, kN = C.config.tile_n;
  const Extents<C> z(p);
  const StreamK stream_k = stream_k_of<C>(p, z, 1);
  constexpr bool kAlone = kSlices == 1;
  const int rank = kAlone ? 0 : static_cast<int>(ptx::cluster_rank());
  const Ring<G> ring = ring_of_block<G>();
  if constexpr (C.shape.bias && !kAddsRows<C>) write_ones<C, G>();
  if (threadIdx.x == 0) {
    ring.init();
    ptx::tma_prefetch(map_dy);
    ptx::tma_prefetch(map_x);
  }
  if constexpr (!kAlone) ptx::cluster_arrive();
  ptx::let_next_launch_start();
  const SlicedTile tile =
      sliced_tile<C>(stream_k, static_cast<int>(blockIdx.x) / kSlices, multiplies_itself<C>(p));
  const int features = depth_rows<C>(p, z.features).features;
  // What grad_weight's clusters ask for twice takes longer than the latency that it hides (docs/experiments/wgmma_sm90-grad_weight.md).
  if ((kAlone || C.shape.op == Op::kGram) && !C.shape.pointers && tile.any &&
      threadIdx.x == 128 * G::kConsumers)
    prefetch_slice<C>(tile, stream_k.depth, features, rank, map_dy, map_x);
  // Every block has begun, and the writes of its first threads are visible.
  if constexpr (kAlone)
    __syncthreads();
  else
    ptx::cluster_wait();
  ptx::wait_for_launches_before();
  const unsigned group = threadIdx.x / 128, lane = threadIdx.x % 32;
  if (group == G::kConsumers) {
    const int warp = static_cast<int>(threadIdx.x / 32 % 4);
    if (tile.any && threadIdx.x % 128 == 0)
      load_slice<C>(p, ring, tile, stream_k.depth, features, rank, map_dy, map_x);
    __syncwarp();
    if constexpr (reuses_ring(C.config) && !kStagesOutput<C>) ptx::cluster_sync();
    if constexpr (!kAlone) ptx::cluster_arrive();
    if (C.shape.zero_outside && warp > 0)
      write_zeros<C>(p, stream_k, z.heads, z.tokens, static_cast<int>(blockIdx.x) * 3 + warp - 1,
                     static_cast<int>(gridDim.x) * 3, static_cast<int>(lane));
    if constexpr (!kAlone) ptx::cluster_wait();
    return;
  }
  float sum[kN / 2], bias[4];
  if (tile.any) {
    RingPosition<C.config.stages> at;
    const int count = (stream_k.depth - rank + kSlices - 1) / kSlices;
    const BatchEnds<C> ends(rank, kSlices);
    auto& half = reinterpret_cast<float(&)[32]>(sum);
    if (C.shape.bias && tile.sums_bias) {
      if constexpr (kAddsRows<C>)
        multiply_and_add<C, kN>(sum, bias, ring, at, count, ends, group, lane);
      else
        multiply_work<C, kN, C.shape.bias>(sum, bias, ring, at, count, ends, tile.own, group, lane);
    } else if (kN == 2 * kPanel && C.config.tile_m == kPanel && tile.multiplied == 1) {
      multiply_work<C, 64, false>(half, bias, ring, at, count, ends, tile.own, group, lane);
    } else {
      multiply_work<C, kN, false>(sum, bias, ring, at, count, ends, tile.own, group, lane);
    }
  }
  if constexpr (kStagesOutput<C>) {
    if (!tile.any) return;
    ptx::named_barrier(G::kConsumers + 1, 128 * G::kConsumers);  // no warp multiplies what lies in the ring
    if (C.shape.bias && tile.sums_bias && lane % 4 == 0) {
      const int row = tile.row + static_cast<int>(threadIdx.x / 32 * 16 + lane / 4);
      write_bias<C>(p, tile.head, z.tokens, row, bias[0]);
      write_bias<C>(p, tile.head, z.tokens, row + 8, bias[2]);
    }
    if constexpr (fitted(C.config)) {
      store_fitted<C>(p, ring.base, sum, tile, z.tokens);
    } else {
      OutputPanels<G> output(ring, group);
#pragma unroll
      for (int i = 0; i < kN / kPanel; ++i) {
        if (i >= tile.panels) break;
        store_panel<C>(p, output, sum + 32 * i, map_dw, tile.head, 0, z.tokens, z.diag,
                       tile.row + kPanel * static_cast<int>(group), tile.column + kPanel * i);
      }
      output.finish();
    }
  } else {
    if constexpr (reuses_ring(C.config)) ptx::cluster_sync();
    if (tile.any) {
      send_sums<C>(ring.base, sum, tile.panels, static_cast<unsigned>(rank));
      if (C.shape.bias && tile.sums_bias) send_bias<C>(ring.base, bias, static_cast<unsigned>(rank));
    }
    // All sums have come.
    if constexpr (kAlone)
      ptx::named_barrier(1, 128 * G::kConsumers);
    else
      ptx::cluster_sync();
    if (tile.any) add_sent<C>(p, ring.base, tile, z.tokens, z.diag, static_cast<unsigned>(rank));
  }
}

}  // namespace trigen::persistent::weight
