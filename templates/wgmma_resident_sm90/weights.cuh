// W's triangle of one head on its way to the registers: blocks of 64 x 64 in shared memory, then fragments.
//
// TMA brings 16-bit W in rows of 16 bytes. The warps that multiply can bring any other: f32, rows that begin
// anywhere; nothing outside the triangle, and rounded to x's type as a launch that packs W does.
#pragma once

#include "params.h"
#include "types.cuh"
#include "wgmma_resident_sm90/geometry.cuh"
#include "wgmma_sm90/product.cuh"

namespace trigen::wgmma_resident_sm90 {

// W's blocks in the order of the fragments: move(unit, m, k of the first element).
template <Kernel C, class Move>
__device__ __forceinline__ void each_unit(const Move& move) {
  constexpr Shape s = C.shape;
#pragma unroll
  for (int row = 0; row < rows(s); ++row) {
#pragma unroll
    for (int n = 0; n < k_range(s, row).blocks; ++n)
      move(first_unit(s, row) + n, kPanel * row, kPanel * block_of_k(s, n));
  }
}

// W's blocks of one head, and their two barriers behind the ring's: they have landed (each warp that brings its share
// arrives), every warp that multiplies has read them.
template <Kernel C>
struct WeightBlocks {
  using G = Geometry<C>;
  unsigned base, barriers;
  __device__ __forceinline__ explicit WeightBlocks(const Ring<G>& ring)
      : base(ring.base + G::kWeights), barriers(ring.empty(G::kStages)) {}
  __device__ __forceinline__ unsigned block(int unit) const { return base + unit * kPanelBytes; }
  __device__ __forceinline__ unsigned full() const { return barriers; }
  __device__ __forceinline__ unsigned empty() const { return barriers + 8; }
  __device__ __forceinline__ void init() const {
    ptx::mbarrier_init(full(), G::kStagesWeights ? 4 * G::kConsumers : 1);
    ptx::mbarrier_init(empty(), 4 * G::kConsumers);
  }
};

// The bits of a weight as x's type has it.
template <Kernel C>
__device__ __forceinline__ unsigned rounded_weight(unsigned bits) {
  if constexpr (C.shape.wdtype == C.shape.dtype) return bits;
  return from_float<C.shape.dtype>(__uint_as_float(bits));
}

// W of one head into the L2 for all blocks that want it: of its lines every count-th from the index-th on. No value is read.
template <Kernel C>
__device__ __forceinline__ void prefetch_weights(const Params& p, int head, int index, int count) {
  constexpr Shape s = C.shape;
  const auto* w = static_cast<const Storage<s.wdtype>*>(p.w) + head * p.w_head;
#pragma unroll 1
  for (int line = index; line < s.T; line += count) {
    const schedule::Range own = schedule::weight_row(s.fill, s.diag, line, s.T);
#pragma unroll 1
    for (int column = own.begin; column < own.end; column += 128 / kBytes<s.wdtype>)
      ptx::prefetch_l2(w + line * p.w_row + column);
    if (own.begin < own.end) ptx::prefetch_l2(w + line * p.w_row + own.end - 1);
  }
}

// W's blocks by the warps that multiply: of a block lines warp, warp + kWarps, ... by a warp, elements lane and lane + 32 by a
// lane: whole lines of f32. The loads of kGroup blocks are under way at once.
template <Kernel C>
__device__ __forceinline__ void stage_weights(const Params& p, const WeightBlocks<C>& blocks, int head,
                                              int warp, int lane) {
  constexpr Shape s = C.shape;
  constexpr bool kTransposed = s.op == Op::kGradInput;
  constexpr int kUnits = Geometry<C>::kUnits, kSize = kBytes<s.wdtype>, kWarps = 4 * Geometry<C>::kConsumers;
  constexpr int kLines = schedule::ceil_div(kPanel, kWarps);
  constexpr int kGroup = schedule::max(1, schedule::min(kUnits, kLoadsOfWeights / (2 * kLines)));
  const auto* w = static_cast<const Storage<s.wdtype>*>(p.w) + head * p.w_head;
  unsigned raw[kGroup][kLines][2];
#pragma unroll
  for (int first = 0; first < kUnits; first += kGroup) {
    each_unit<C>([&](int unit, int m, int k) {
      if (unit < first || unit >= first + kGroup) return;
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const int line = warp + kWarps * i, row = (kTransposed ? k : m) + line;
        schedule::Range own = schedule::weight_row(s.fill, s.diag, row, s.T);
        if (line >= kPanel || row >= s.T) own.end = 0;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int column = (kTransposed ? m : k) + lane + 32 * j;
          raw[unit - first][i][j] = 0;
          if (column >= own.begin && column < own.end)
            ptx::load_global<kSize>(&raw[unit - first][i][j], w + row * p.w_row + column);
        }
      }
    });
    each_unit<C>([&](int unit, int, int) {
      if (unit < first || unit >= first + kGroup) return;
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const int line = warp + kWarps * i;
        if (line >= kPanel) continue;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int column = lane + 32 * j;
          const unsigned value = rounded_weight<C>(raw[unit - first][i][j]);
          // 128-byte swizzle: 16-byte chunk ^ row % 8.
          ptx::store_shared<2>(
              blocks.block(unit) + line * 128 + ((column / 8 ^ line % 8) << 4) + column % 8 * 2, &value);
        }
      }
    });
  }
}

// W of one head as fragments, [block][m64k16 step], with zeros outside the triangle: of a team those of its member.
template <Kernel C>
struct Weights {
  using G = Geometry<C>;
  static constexpr int kHeld =
      schedule::max(held(C.shape, C.config, 0), held(C.shape, C.config, G::kTeam - 1));
  unsigned a[kHeld > 0 ? kHeld : 1][4][4];
  unsigned parity = 0;

  __device__ __forceinline__ void load(const Params& p, const WeightBlocks<C>& blocks, int head,
                                       unsigned of_team, unsigned warp, unsigned lane) {
    if constexpr (G::kStagesWeights) {
      ptx::named_barrier(G::kAllGroups, 128 * G::kConsumers);  // every warp has read the head before
      stage_weights<C>(p, blocks, head, static_cast<int>(threadIdx.x / 32), static_cast<int>(lane));
      if (lane == 0) ptx::mbarrier_arrive(blocks.full());
      ptx::named_barrier(G::kAllGroups, 128 * G::kConsumers);
    } else {
      ptx::mbarrier_wait(blocks.full(), parity);
      parity ^= 1;
    }
    each_unit<C>([&](int unit, int m, int k) {
      constexpr Shape s = C.shape;
      const int row = m / kPanel, own = first_held(s, C.config, row) + unit - first_unit(s, row);
      if (G::kTeam > 1 && member(C.config, nth_row(s, row)) != static_cast<int>(of_team)) return;
      wgmma_sm90::load_masked<C>(a[own], blocks.block(unit), m + product_diag(s) - k, warp, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::pin(a[own][i]);
    });
    if constexpr (!G::kStagesWeights) {
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(blocks.empty());
    }
  }
};

}  // namespace trigen::wgmma_resident_sm90
