// All of one of gram's matrices, or a slice of its depth, in a block (slices.cuh): the rows are loaded once, and of each 64 the
// products stop at the diagonal. Both warpgroups have two of these rows of panels, or one, and as many panels in all where there
// are four of them (three rows: three panels each).
#pragma once

#include "persistent/slice_sums.cuh"

namespace trigen::persistent::weight {

// The loading thread: B's rows of a k block, and A's in the next stage where they are others.
template <Kernel C>
__device__ __forceinline__ void load_whole(const Ring<SliceGeometry<C>>& ring, const SlicedTile& tile,
                                           int depth, int features, int rank, const TensorMap& map_dy,
                                           const TensorMap& map_x) {
  constexpr int kRows = panels(C.config);
  RingPosition<C.config.stages> at;
  const auto load = [&](const TensorMap& map, const BlockBoxes<C>& from) {
    ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
    ptx::mbarrier_arrive_expect(ring.full(at.stage), kRows * kPanelBytes);
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      load_panel<C, kRows>(ring.b(at.stage), i, map, ring.full(at.stage), from, kPanel * i, tile.head);
    at.advance();
  };
  for (int block = rank; block < depth; block += C.config.cluster) {
    const BlockBoxes<C> from(features, block);
    load(map_x, from);
    if (tile.own < 0) load(map_dy, from);
  }
}

// Sums of the rows of panels with kPanels panels in the triangle; none: 0.
template <Kernel C, int kPanels>
struct TriangleRow {
  static constexpr bool kLower = C.shape.fill == Fill::kLower;
  static constexpr int kRow = kLower ? kPanels - 1 : panels(C.config) - kPanels, kFirst = kLower ? 0 : kRow;
  float sum[kPanels > 0 ? 32 * kPanels : 1];

  // A step of a k block. `a`, `b`: of all rows.
  __device__ __forceinline__ void multiply(unsigned long long a, unsigned long long b, int step, int block) {
    constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
    constexpr int kAll = panels(C.config);
    if constexpr (kPanels > 0)
      ptx::wgmma_ss<C.shape.dtype, 64 * kPanels, kTokens, kTokens>(
          sum, a + (kRow * kPanelBytes >> 4) + step_offset<C, kAll>(step),
          b + (kFirst * kPanelBytes >> 4) + step_offset<C, kAll>(step), block | step);
  }
  template <class Output>
  __device__ __forceinline__ void store(const Params& p, Output& output, const TensorMap& map, int head,
                                        int tokens, int diag) const {
#pragma unroll
    for (int i = 0; i < kPanels; ++i)
      store_panel<C>(p, output, sum + 32 * i, map, head, 0, tokens, diag, kPanel * kRow,
                     kPanel * (kFirst + i));
  }
  __device__ __forceinline__ void send(unsigned shared, const SlicedTile& tile, int tokens,
                                       unsigned rank) const {
    if constexpr (kPanels > 0)
      send_sums<C, kPanels>(shared, sum, tile, tokens, kPanel / kSentRows * kRow, rank);
  }
};

template <Kernel C, int kLong, int kShort, int kSteps>
__device__ __forceinline__ void multiply_triangle_steps(TriangleRow<C, kLong>& longer,
                                                        TriangleRow<C, kShort>& shorter, unsigned long long a,
                                                        unsigned long long b, int block) {
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    longer.multiply(a, b, i, block);
    shorter.multiply(a, b, i, block);
  }
  ptx::wgmma_commit();
}

// The products of one warpgroup, of `count` k blocks.
template <Kernel C, int kLong, int kShort>
__device__ __forceinline__ void multiply_triangle(TriangleRow<C, kLong>& longer,
                                                  TriangleRow<C, kShort>& shorter,
                                                  const Ring<SliceGeometry<C>>& ring, int count,
                                                  BatchEnds<C> ends, int own, unsigned lane) {
  RingPosition<C.config.stages> at, released;
  const int stages = own >= 0 ? 1 : 2;  // of a k block
  const auto release = [&] {
    for (int i = 0; i < stages; ++i) {
      ring.release(released.stage, lane);
      released.advance();
    }
  };
  for (int block = 0; block < count; ++block) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned long long b = operand_descriptor<C>(ring.b(at.stage));
    at.advance();
    unsigned long long a = b;
    if (own < 0) {
      ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      a = operand_descriptor<C>(ring.b(at.stage));
      at.advance();
    }
    if (ends.here())
      multiply_triangle_steps<C, kLong, kShort, kLastSteps<C>>(longer, shorter, a, b, block);
    else
      multiply_triangle_steps<C, kLong, kShort, block_steps()>(longer, shorter, a, b, block);
    ptx::wgmma_wait<1>();
    if (block > 0) release();
    ends.advance();
  }
  ptx::wgmma_wait<0>();
  ptx::pin(longer.sum);
  if constexpr (kShort > 0) ptx::pin(shorter.sum);
  if (count > 0) release();
}

}  // namespace trigen::persistent::weight
