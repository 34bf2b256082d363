// W as it lies, blocks of it that cross the diagonal: once TMA has brought one, the loading warpgroup writes zeros outside
// the triangle, two blocks of k later, so that it need not wait.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "wgmma_rows_sm90/pipeline.cuh"

namespace trigen::wgmma_rows_sm90 {

// A stage whose panels of W are not masked yet; count 0: none.
struct Unmasked {
  int stage = 0, count = 0, distance = 0;  // panels; the tile's first token + diag - k
  unsigned parity = 0;
};

// Zeros in a panel of 64 x 64 that crosses the diagonal. `distance`: its first token + diag - k.
template <Kernel C>
__device__ __forceinline__ void mask_panel(unsigned panel, int distance, int thread) {
  constexpr bool kTransposed = Geometry<C>::kTransposed;
  constexpr bool kFirst =
      (product_fill(C.shape) == Fill::kLower) != kTransposed;  // a line keeps its first elements
  constexpr int kChunk = 8, kLines = kLoaders / (kPanel / kChunk);
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

// Every thread of the loading warpgroup: masks a stage and hands it on.
template <Kernel C>
__device__ __forceinline__ void finish_masked(const Ring<Geometry<C>>& ring, const Unmasked& own,
                                              int thread) {
  using G = Geometry<C>;
  if (own.count == 0) return;
  ptx::mbarrier_wait(G::landed(ring, own.stage), own.parity);
#pragma unroll 1
  for (int i = 0; i < own.count; ++i) {
    const int distance = panel_token<C>(own.distance, i);
    if (product_fill(C.shape) == Fill::kLower ? distance < kPanel - 1 : distance > 1 - kPanel)
      mask_panel<C>(ring.a(own.stage) + i * kPanelBytes, distance, thread);
  }
  ptx::fence_async_shared();
  ptx::named_barrier(1 + G::kConsumers, kLoaders);
  if (thread == 0) ptx::mbarrier_arrive(ring.full(own.stage));
}

}  // namespace trigen::wgmma_rows_sm90
