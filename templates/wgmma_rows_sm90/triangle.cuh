// W as it lies: once TMA has brought a block that crosses the diagonal, threads that do nothing else write zeros outside the
// triangle.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "wgmma_rows_sm90/pipeline.cuh"

namespace trigen::wgmma_rows_sm90 {

// Zeros in a panel of 64 x 64 that crosses the diagonal. `distance`: its first token + diag - k.
template <Kernel C>
__device__ __forceinline__ void mask_panel(unsigned panel, int distance, int thread) {
  constexpr bool kTransposed = Geometry<C>::kTransposed;
  constexpr bool kFirst =
      (product_fill(C.shape) == Fill::kLower) != kTransposed;  // a line keeps its first elements
  constexpr int kChunk = 8, kLines = kMaskers / (kPanel / kChunk);
  const int chunk = thread % (kPanel / kChunk);
#pragma unroll 1
  for (int line = thread / (kPanel / kChunk); line < kPanel; line += kLines) {
    const int edge =
        line + (kTransposed ? -distance : distance) - kChunk * chunk;  // the last, or first, one that stays
    if (kFirst ? edge >= kChunk - 1 : edge <= 0) continue;
    const unsigned at = panel + line * 128 + ((chunk ^ (line & 7)) << 4);
    unsigned word[4];
    ptx::load_shared<16>(word, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool low = kFirst ? 2 * i <= edge : 2 * i >= edge,
                 high = kFirst ? 2 * i + 1 <= edge : 2 * i + 1 >= edge;
      word[i] &= (low ? 0xFFFFu : 0) | (high ? 0xFFFF0000u : 0);
    }
    ptx::store_shared<16>(at, word);
  }
}

// The masking threads: of every block that crosses the diagonal, when it has landed.
template <Kernel C>
__device__ __forceinline__ void mask_weights(const Ring<Geometry<C>>& ring, TileScheduler walk,
                                             const persistent::Extents<C>& z, int blocks, int thread) {
  using G = Geometry<C>;
  RingPosition<G::kStages> at;
  unsigned phases = 0;  // bit n: parity of the next such block in stage n
  for (int row = 0, column = 0; walk.next(row, column);) {
    const int first = row * C.config.tile_m, end = blocks_reached<C>(first, 0, z.diag, blocks);
    for (int block = 0; block < end; ++block, at.advance()) {
      const int count = panels_reached<C>(first, block, z.diag, blocks);
      if (!crosses_diagonal<C>(first, count, block, z.diag, blocks)) continue;
      ptx::mbarrier_wait(G::landed(ring, at.stage), phases >> at.stage & 1);
      phases ^= 1u << at.stage;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const int distance = panel_token<C>(first, i) + z.diag - first_k<C>(block, blocks);
        if (product_fill(C.shape) == Fill::kLower ? distance < kPanel - 1 : distance > 1 - kPanel)
          mask_panel<C>(ring.a(at.stage) + i * kPanelBytes, distance, thread);
      }
      ptx::fence_async_shared();
      ptx::named_barrier(1 + G::kConsumers, kMaskers);
      if (thread == 0) ptx::mbarrier_arrive(ring.full(at.stage));
    }
  }
}

}  // namespace trigen::wgmma_rows_sm90
