// The input: a block of 64 or 32 tokens by the features of a tile and its halo, through TMA; contiguous features are then
// transposed by three warps.
#pragma once

#include "params.h"
#include "ptx/ldmatrix.cuh"
#include "ptx/stmatrix.cuh"
#include "wgmma_taps_sm90/pipeline.cuh"

namespace trigen::wgmma_taps_sm90 {

// The steps of a block's tiles, one after the other.
template <Kernel C>
struct Steps {
  decltype(Work<C>::walk) walk;
  persistent::RowWorkTile tile;
  int step = -1, steps = 0;
  __device__ __forceinline__ explicit Steps(const Work<C>& work) : walk(work.walk) {}
  __device__ __forceinline__ bool next() {
    while (++step >= steps) {
      if (!next_work(walk, tile)) return false;
      steps = slices(C.config) ? tile.end : Work<C>::steps(tile.row);
      step = (slices(C.config) ? tile.begin : 0) - 1;
    }
    return true;
  }
};

// Contiguous tokens, loaded by one thread: no transposition, all features in one box.
template <Kernel C>
__device__ __forceinline__ void load_tokens(const Shared<C>& shared, const Work<C>& work,
                                            const TensorMap& map_in) {
  using G = Geometry<C>;
  persistent::RingPosition<G::kTransposedBuffers> to;
  for (Steps<C> now(work); now.next();) {
    int head, batch, feature;
    work.locate(now.tile.column, head, batch, feature);
    ptx::mbarrier_wait(shared.done(to.stage), to.parity ^ 1);
    ptx::mbarrier_arrive_expect(shared.ready(to.stage), G::kTransposedBytes);
    ptx::tma_load(shared.transposed(to.stage), map_in, shared.ready(to.stage), work.token(now.step),
                  feature - left_halo(C.shape), head, batch);
    to.advance();
  }
}

// One thread.
template <Kernel C>
__device__ __forceinline__ void load_input(const Shared<C>& shared, const Work<C>& work, const Steps<C>& at,
                                           int buffer, const TensorMap& map_in) {
  using G = Geometry<C>;
  int head, batch, feature;
  work.locate(at.tile.column, head, batch, feature);
  const int first = feature - left_halo(C.shape) - extra_left(C.shape, C.config), token = work.token(at.step);
  ptx::mbarrier_arrive_expect(shared.loaded(buffer), G::kInputPanels * G::kInputPanelBytes);
#pragma unroll
  for (int i = 0; i < G::kInputPanels; ++i)
    ptx::tma_load(shared.input(buffer, i), map_in, shared.loaded(buffer), first + i * kPanel, token, head,
                  batch);
}

// Three warps, `warp` 0 to 2.
template <Kernel C>
__device__ __forceinline__ void transpose_input(const Shared<C>& shared, const Work<C>& work, unsigned warp,
                                                unsigned lane, const TensorMap& map_in) {
  using G = Geometry<C>;
  constexpr int kChunks = G::kFeatures / 8, kHalves = block_tokens(C.shape, C.config) / 32,
                kUnits = kHalves * kChunks;  // of 8 features by 32 tokens
  const bool leader = warp == 0 && lane == 0;
  Steps<C> now(work), ahead(work);
  if (leader)
    for (int i = 0; i < G::kInputBuffers && ahead.next(); ++i) load_input<C>(shared, work, ahead, i, map_in);
  persistent::RingPosition<G::kInputBuffers> from;
  persistent::RingPosition<G::kTransposedBuffers> into;
  while (now.next()) {
    ptx::mbarrier_wait(shared.loaded(from.stage), from.parity);
    ptx::mbarrier_wait(shared.done(into.stage), into.parity ^ 1);
    const unsigned to = shared.transposed(into.stage);
#pragma unroll 4
    for (unsigned unit = warp; unit < kUnits; unit += 3) {
      const unsigned chunk = unit / kHalves, half = unit % kHalves;
      unsigned word[4];
      // 128-byte swizzle: 16-byte chunk ^ row % 8.
      ptx::ldmatrix_x4_trans(word, shared.input(from.stage, chunk / 8) + (32 * half + lane) * 128 +
                                       (((chunk % 8) ^ (lane % 8)) << 4));
      ptx::stmatrix_x4(to + ((4 * half + lane / 8) * G::kFeatures + 8 * chunk + lane % 8) * 16, word[0],
                       word[1], word[2], word[3]);
    }
    ptx::fence_async_shared();
    ptx::named_barrier(3, 96);
    if (leader) {
      ptx::mbarrier_arrive(shared.ready(into.stage));
      if (ahead.next()) load_input<C>(shared, work, ahead, from.stage, map_in);
    }
    from.advance();
    into.advance();
  }
}

}  // namespace trigen::wgmma_taps_sm90
