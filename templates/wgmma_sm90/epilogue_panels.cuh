// Epilogues with tensors of the output's shape (but a residual alone: product.cuh): a panel's residual and
// gate come into its staging buffers while the tile is still multiplied, the multiplying warpgroup combines
// them in place with its sums, and the output and pre leave from the same buffers. One thread for each
// multiplying warpgroup moves its panels, so that no warp that multiplies waits for TMA's reads.
#pragma once

#include "persistent/panels.cuh"
#include "persistent/staging.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/stmatrix.cuh"
#include "wgmma_sm90/pipeline.cuh"

namespace trigen::wgmma_sm90 {

using persistent::OutputMaps;
using persistent::Panels;

// Buffers of one multiplying warpgroup's panels, used in turn.
template <Kernel C>
struct ExchangeBuffers {
  using G = Geometry<C>;
  static constexpr int kBytes = G::kPanelBuffers * kPanelBytes;
  unsigned base;
  __device__ __forceinline__ ExchangeBuffers(const Ring<G>& ring, unsigned group)
      : base(ring.base + G::kStages * G::kStageBytes + group * G::kStorePanels * kBytes) {}
  // The residual and the output. Behind it gate and pre, but where only one operand comes in it is here.
  __device__ __forceinline__ unsigned panel(int slot) const { return base + slot * kBytes; }
};

// Of 64 columns: the first of their boxes.
struct PanelPlace {
  int box, row, head;
};

// The panels of one multiplying warpgroup in the order in which it stores them.
template <Kernel C, class Walk>
struct PanelWalk {
  using G = Geometry<C>;
  Walk walk;
  const Panels& panels;
  unsigned rank, group;
  RowWorkTile work;
  int index = G::kPanels;  // of the tile's panels

  __device__ __forceinline__ PanelWalk(const Walk& w, const Panels& p, unsigned r, unsigned g)
      : walk(w), panels(p), rank(r), group(g) {}
  __device__ __forceinline__ bool next(PanelPlace& place) {
    if (index == G::kPanels) {
      do {
        if (!next_work(walk, work)) return false;
      } while (!work.stores);
      index = 0;
    }
    place.box = panels.first<G::kCluster, G::kBoxes>(work.column, place.head, rank) + G::kParts * index++;
    place.row = work.row * C.config.tile_m + 64 * static_cast<int>(group);
    return true;
  }
};

// copy(offset in the buffer, feature, row, head, batch) for each box of a panel.
template <Kernel C, class Copy>
__device__ __forceinline__ void each_box(const Panels& panels, const PanelPlace& at, const Copy& copy) {
  using G = Geometry<C>;
#pragma unroll
  for (int i = 0; i < G::kParts; ++i) {
    int batch, feature;
    panels.locate<G::kBoxFeatures>(at.box + i, batch, feature);
    copy(i * G::kBoxBytes, feature, at.row, at.head, batch);
  }
}

// The moving thread of multiplying warpgroup `group`.
template <Kernel C, class Walk>
__device__ __forceinline__ void move_panels(const Ring<Geometry<C>>& ring, const Walk& walk,
                                            const Panels& panels, unsigned rank, unsigned group,
                                            const OutputMaps& maps) {
  using G = Geometry<C>;
  constexpr int kSlots = G::kStorePanels, kOperands = C.shape.residual + C.shape.gate;
  constexpr int kGateOffset = C.shape.residual ? kPanelBytes : 0;
  const ExchangeBuffers<C> buffers(ring, group);
  const PanelBarriers<C> barriers(ring, group);
  PanelWalk<C, Walk> incoming(walk, panels, rank, group), outgoing(walk, panels, rank, group);
  PanelPlace at;
  const auto fetch = [&](int slot) {
    if (!incoming.next(at)) return;
    const unsigned to = buffers.panel(slot), fetched = barriers.fetched(slot);
    if constexpr (kOperands == 0) {
      ptx::mbarrier_arrive(fetched);
    } else {
      ptx::mbarrier_arrive_expect(fetched, kOperands * kPanelBytes);
      each_box<C>(panels, at, [&](int offset, int feature, int row, int head, int batch) {
        if constexpr (C.shape.residual)
          ptx::tma_load(to + offset, *maps.residual, fetched, feature, row, head, batch);
        if constexpr (C.shape.gate)
          ptx::tma_load(to + kGateOffset + offset, *maps.gate, fetched, feature, row, head, batch);
      });
    }
  };
#pragma unroll 1
  for (int slot = 0; slot < kSlots; ++slot) fetch(slot);
  unsigned parity = 0;
  for (bool more = true; more; parity ^= 1) {
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) {
      more = outgoing.next(at);
      if (!more) break;
      ptx::mbarrier_wait(barriers.staged(slot), parity);
      each_box<C>(panels, at, [&](int offset, int feature, int row, int head, int batch) {
        const unsigned from = buffers.panel(slot) + offset;
        ptx::tma_store(*maps.output, from, feature, row, head, batch);
        if constexpr (C.shape.pre) ptx::tma_store(*maps.pre, from + kPanelBytes, feature, row, head, batch);
      });
      ptx::tma_store_commit();
    }
    if (!more) break;
    ptx::tma_store_wait_read<kSlots / 2>();
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) {
      if (slot == kSlots - kSlots / 2) ptx::tma_store_wait_read<0>();
      fetch(slot);
    }
  }
  ptx::tma_store_wait();  // the last stores read shared memory
}

// The multiplying warpgroup's side.
template <Kernel C>
struct ExchangedPanels {
  using G = Geometry<C>;
  ExchangeBuffers<C> buffers;
  PanelBarriers<C> barriers;
  RingPosition<G::kStorePanels> at;

  __device__ __forceinline__ ExchangedPanels(const Ring<G>& ring, unsigned group)
      : buffers(ring, group), barriers(ring, group) {}

  // The next 64 columns, whose 32 sums a thread begin at `sum`. finish: RowEpilogue.
  template <class Finish>
  __device__ __forceinline__ void store(const float* sum, const Finish& finish) {
    constexpr Shape s = C.shape;
    const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, line = 16 * warp + lane % 16;
    const unsigned panel = buffers.panel(at.stage);
    ptx::mbarrier_wait(barriers.fetched(at.stage), at.parity);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // What ldmatrix and stmatrix give a thread are its own sums' places.
      const unsigned place = panel + persistent::panel_offset<G::kParts>(line, 2 * j + lane / 16);
      unsigned residual[4], gate[4], out[4], pre[4];
      if constexpr (s.residual) ptx::ldmatrix_x4(residual, place);
      if constexpr (s.gate) ptx::ldmatrix_x4(gate, place + (s.residual ? kPanelBytes : 0));
      finish(sum + 8 * j, residual, gate, out, pre);
      finish(sum + 8 * j + 4, residual + 2, gate + 2, out + 2, pre + 2);
      ptx::stmatrix_x4(place, out[0], out[1], out[2], out[3]);
      if constexpr (s.pre) ptx::stmatrix_x4(place + kPanelBytes, pre[0], pre[1], pre[2], pre[3]);
    }
    ptx::fence_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barriers.staged(at.stage));
    at.advance();
  }
};

}  // namespace trigen::wgmma_sm90
