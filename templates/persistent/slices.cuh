// grad_weight of few tiles in one launch (grad_weight.h, slices): the blocks of a cluster multiply a slice of
// one tile's depth each. Every block owns some of the tile's rows, by eights: the others send it their sums of
// these through distributed shared memory, it adds them in the blocks' order and writes them. A block alone
// turns its sums into whole rows by the same way, or, where TMA can store gram's, stages them in the ring.
#pragma once

#include "persistent/whole.cuh"

namespace trigen::persistent::weight {

// The loading thread, ahead of griddepcontrol.wait: the first k blocks, into the L2. No value is read.
template <Kernel C>
__device__ __forceinline__ void prefetch_slice(const SlicedTile& tile, int depth, int features, int rank,
                                               const TensorMap& map_dy, const TensorMap& map_x) {
  const int end = schedule::min(depth, rank + kFirstBlocks * C.config.cluster);
#pragma unroll 1
  for (int block = rank; block < end; block += C.config.cluster) {
    const BlockBoxes<C> from(features, block);
    for (int i = 0; i < tile.panels; ++i) prefetch_panel<C>(map_x, from, tile.column + kPanel * i, tile.head);
    if (tile.own >= 0) continue;
    for (int i = 0; i < C.config.tile_m / kPanel; ++i)
      prefetch_panel<C>(map_dy, from, tile.row + kPanel * i, tile.head);
  }
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_slice(const Ring<SliceGeometry<C>>& ring, const SlicedTile& tile,
                                           int depth, int features, int rank, const TensorMap& map_dy,
                                           const TensorMap& map_x) {
  constexpr int kRows = C.config.tile_m / kPanel, kColumns = C.config.tile_n / kPanel;  // in panels
  RingPosition<C.config.stages> at;
  for (int block = rank; block < depth; block += C.config.cluster) {
    const BlockBoxes<C> from(features, block);
    ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
    ptx::mbarrier_arrive_expect(ring.full(at.stage),
                                (tile.panels + (tile.own >= 0 ? 0 : kRows)) * kPanelBytes);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (tile.own >= 0) break;
      load_panel<C, kRows>(ring.a(at.stage), i, map_dy, ring.full(at.stage), from, tile.row + kPanel * i,
                           tile.head);
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i >= tile.panels) break;
      load_panel<C, kColumns>(ring.b(at.stage), i, map_x, ring.full(at.stage), from, tile.column + kPanel * i,
                              tile.head);
    }
    at.advance();
  }
}

// What a multiplying warpgroup knows. `count`: k blocks.
template <Kernel C>
struct SliceOfTile {
  const Params& p;
  const Ring<SliceGeometry<C>>& ring;
  const SlicedTile& tile;
  const Extents<C>& z;
  int rank, count;
};

// One multiplying warpgroup of a block with all or a slice of a whole matrix.
template <Kernel C, int kLong, int kShort>
__device__ __forceinline__ void make_whole(const SliceOfTile<C>& slice, const TensorMap& map_dw,
                                           unsigned group, unsigned lane) {
  using G = SliceGeometry<C>;
  const auto& [p, ring, tile, z, rank, count] = slice;
  TriangleRow<C, kLong> longer;
  TriangleRow<C, kShort> shorter;
  if (tile.any)
    multiply_triangle<C>(longer, shorter, ring, count, BatchEnds<C>(rank, C.config.cluster), tile.own, lane);
  if constexpr (kStagesOutput<C>) {
    ptx::named_barrier(G::kConsumers + 1, 128 * G::kConsumers);  // no warp multiplies what lies in the ring
    OutputPanels<G> output(ring, group);
    if (!tile.any) return;
    longer.store(p, output, map_dw, tile.head, z.tokens, z.diag);
    shorter.store(p, output, map_dw, tile.head, z.tokens, z.diag);
    output.finish();
  } else {
    exchange_sums<C>(p, ring, tile, z, static_cast<unsigned>(rank), [&] {
      longer.send(ring.base, tile, z.tokens, static_cast<unsigned>(rank));
      shorter.send(ring.base, tile, z.tokens, static_cast<unsigned>(rank));
    });
  }
}

// And of a block with a tile, or a slice of one.
template <Kernel C>
__device__ __forceinline__ void make_slice(const SliceOfTile<C>& slice, const TensorMap& map_dw,
                                           unsigned group, unsigned lane) {
  using G = SliceGeometry<C>;
  constexpr int kN = C.config.tile_n;
  const auto& [p, ring, tile, z, rank, count] = slice;
  float sum[kN / 2], bias[4];
  if (tile.any) {
    RingPosition<C.config.stages> at;
    const BatchEnds<C> ends(rank, C.config.cluster);
    auto& half = reinterpret_cast<float(&)[32]>(sum);
    if (C.shape.bias && tile.sums_bias)
      multiply_work<C, kN, C.shape.bias>(sum, bias, ring, at, count, ends, tile.own, group, lane);
    else if (kN > C.config.tile_m && tile.panels == 1)
      multiply_work<C, 64, false>(half, bias, ring, at, count, ends, tile.own, group, lane);
    else
      multiply_work<C, kN, false>(sum, bias, ring, at, count, ends, tile.own, group, lane);
  }
  if constexpr (kStagesOutput<C>) {
    if (!tile.any) return;
    ptx::named_barrier(G::kConsumers + 1, 128 * G::kConsumers);  // no warp multiplies what lies in the ring
    OutputPanels<G> output(ring, group);
#pragma unroll
    for (int i = 0; i < kN / kPanel; ++i) {
      if (i >= tile.panels) break;
      store_panel<C>(p, output, sum + 32 * i, map_dw, tile.head, 0, z.tokens, z.diag,
                     tile.row + kPanel * static_cast<int>(group), tile.column + kPanel * i);
    }
    output.finish();
  } else {
    exchange_sums<C>(p, ring, tile, z, static_cast<unsigned>(rank), [&] {
      send_sums<C, kN / kPanel>(ring.base, sum, tile, z.tokens, 8 * group, static_cast<unsigned>(rank));
      if (C.shape.bias && tile.sums_bias) send_bias<C>(ring.base, bias, static_cast<unsigned>(rank));
    });
  }
}

// A cluster for every tile, at least one.
template <Kernel C>
__device__ __forceinline__ void run_slices(const Params& p, const TensorMap& map_dy, const TensorMap& map_x,
                                           const TensorMap& map_dw) {
  using G = SliceGeometry<C>;
  constexpr int kSlices = C.config.cluster;
  const Extents<C> z(p);
  const StreamK stream_k = stream_k_of<C>(p, z, 1);
  constexpr bool kAlone = kSlices == 1;
  const int rank = kAlone ? 0 : static_cast<int>(ptx::cluster_rank());
  const Ring<G> ring = ring_of_block<G>();
  if constexpr (C.shape.bias) {
    if (threadIdx.x < kOnesBytes / 4)
      reinterpret_cast<unsigned*>(shared_memory() + G::kSharedBytes - kOnesBytes)[threadIdx.x] =
          pack<C.shape.dtype>(1.0f, 1.0f);
    ptx::fence_async_shared();
  }
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
  if (C.shape.op == Op::kGram && tile.any && threadIdx.x == 128 * G::kConsumers)
    prefetch_slice<C>(tile, stream_k.depth, features, rank, map_dy, map_x);
  // Every block has begun, and the writes of its first threads are visible.
  if constexpr (kAlone)
    __syncthreads();
  else
    ptx::cluster_wait();
  ptx::wait_for_launches_before();
  const unsigned group = threadIdx.x / 128, lane = threadIdx.x % 32;
  if (group == G::kConsumers) {
    if constexpr (whole(C.config)) ptx::release_registers<G::kLoadRegisters>();
    const int warp = static_cast<int>(threadIdx.x / 32 % 4);
    if (tile.any && threadIdx.x % 128 == 0) {
      if constexpr (whole(C.config))
        load_whole<C>(ring, tile, stream_k.depth, features, rank, map_dy, map_x);
      else
        load_slice<C>(ring, tile, stream_k.depth, features, rank, map_dy, map_x);
    }
    __syncwarp();
    if constexpr (reuses_ring(C.config) && !kStagesOutput<C>) ptx::cluster_sync();
    if constexpr (!kAlone) ptx::cluster_arrive();
    if (C.shape.zero_outside && warp > 0)
      write_zeros<C>(p, stream_k, z.heads, z.tokens, static_cast<int>(blockIdx.x) * 3 + warp - 1,
                     static_cast<int>(gridDim.x) * 3, static_cast<int>(lane));
    if constexpr (!kAlone) ptx::cluster_wait();
    return;
  }
  const SliceOfTile<C> slice{p, ring, tile, z, rank, (stream_k.depth - rank + kSlices - 1) / kSlices};
  if constexpr (whole(C.config)) {
    constexpr int kRows = panels(C.config);
    ptx::claim_registers<G::kSumRegisters>();
    if (group == 0)
      make_whole<C, kRows - 1, kRows - 2>(slice, map_dw, group, lane);
    else
      make_whole<C, kRows, kRows - 3>(slice, map_dw, group, lane);
  } else {
    make_slice<C>(slice, map_dw, group, lane);
  }
}

}  // namespace trigen::persistent::weight
