// The first stages of forward's and grad_input's first tile, asked for in the L2 while what the stream ran
// before this launch ends.
#pragma once

#include "persistent/panels.cuh"
#include "ptx/tma.cuh"
#include "wgmma_sm90/heads.cuh"
#include "wgmma_sm90/pipeline.cuh"
#include "wgmma_sm90/triangle.cuh"

namespace trigen::wgmma_sm90 {

using persistent::Panels;

// Blocks of k. Short products gain by the whole ring (T=256: 20.5 us without, 20.1 with one block, 19.8 with
// four); at T=1024 four cost 2 % and one nothing, for the launch before still needs the memory (H200,
// 2026-11-21).
template <Kernel C>
constexpr int kFirstBlocks = C.shape.T > 0 && C.shape.T <= 512 ? C.config.stages : 1;

// The loading thread, ahead of griddepcontrol.wait: no value is read. `walk` is a copy.
template <Kernel C, class Walk>
__device__ __forceinline__ void prefetch_first(const Params& p, Walk walk, const Panels& panels,
                                               const Weights<C>& weights, int diag, int blocks, unsigned rank,
                                               const TensorMap& map_w, const TensorMap& map_in) {
  using G = Geometry<C>;
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  RowWorkTile work;
  if (!next_work(walk, work)) return;
  int head;
  const int panel = panels.first<G::kCluster, G::kBoxes>(work.column, head, rank);
  const int first = work.row * C.config.tile_m;
  int column = 0, head_in = head;
  if constexpr (kHeads<C>) {
    const HeadPlaces places(input_of<C>(p), p.H, C.shape.D);
    column = places.column(head), head_in = places.axis(head);
  }
  if constexpr (kBegins<C>) work.begin = weights.begin(first);
  const int end = slices(C.config) ? work.end : longest_k_range<C>(first, diag, blocks).blocks;
#pragma unroll 1
  for (int block = work.begin; block < schedule::min(work.begin + kFirstBlocks<C>, end); ++block) {
    const int k = kPanel * (product_fill(C.shape) == Fill::kLower ? block : blocks - 1 - block);
#pragma unroll
    for (int i = 0; i < G::kBoxes; ++i) {
      int batch, feature;
      panels.locate<G::kBoxFeatures>(panel + i, batch, feature);
      ptx::tma_prefetch_box(map_in, G::kTokens ? k : feature + column, G::kTokens ? feature : k, head_in,
                            batch);
    }
    if constexpr (!G::kF32Weights && !G::kNumbers) {
#pragma unroll
      for (int i = 0; i < G::kConsumers / G::kCluster; ++i) {  // one part for each of the cluster's blocks
        const int m = first + 64 * (i + static_cast<int>(rank));
        const int s = kTransposed ? m : k, t = kTransposed ? k : m;
        ptx::tma_prefetch_box(map_w, weights.column(s, t), weights.row(t), 0, head);
      }
    }
  }
}

}  // namespace trigen::wgmma_sm90
