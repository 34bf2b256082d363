// grad_weight and gram of T <= 192 (grad_weight.h, holds_triangle): a block sums a whole triangle of 64 x 64 panels from three panels of
// dy and three of x. Its rows of 1 to 3 panels are divided evenly: the longest for one multiplying warpgroup, two for the other one.
// grad_weight's parts lie as those of 256 x 256 do. Where gram's B is A, a stage holds one operand of two k blocks.
#pragma once

#include "persistent/triangle_parts.cuh"

namespace trigen::persistent::weight {

// A row of kLength panels of the triangle, and the first one's column.
template <Kernel C, int kLength>
struct TriangleRow {
  static constexpr bool kLower = C.shape.fill == Fill::kLower;
  static constexpr int kPanels = panels(C.config), kRow = kLower ? kLength - 1 : kPanels - kLength,
                       kColumn = kLower ? 0 : kRow;
  float sum[32 * kLength], bias[4];

  // Step i of a k block.
  __device__ __forceinline__ void multiply(unsigned long long a, unsigned long long b,
                                           unsigned long long ones, int i, int keep) {
    constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
    const unsigned long long own = a + (box_offset<C, kPanels>(kRow, 0) >> 4) + step_offset<C, kPanels>(i);
    ptx::wgmma_ss<C.shape.dtype, kPanel * kLength, kTokens, kTokens>(
        sum, own, b + (box_offset<C, kPanels>(kColumn, 0) >> 4) + step_offset<C, kPanels>(i), keep);
    if constexpr (C.shape.bias) ptx::wgmma_ss_n8<C.shape.dtype, kTokens>(bias, own, ones, keep);
  }
  __device__ __forceinline__ void pin() {
    ptx::pin(sum);
    if constexpr (C.shape.bias) ptx::pin(bias);
  }
  // gram's part.
  __device__ __forceinline__ void store_pieces(float* part) const {
    using Pieces = TrianglePieces<C>;
    const auto lane = static_cast<int>(threadIdx.x % 32),
               row = kPanel / 16 * kRow + static_cast<int>(threadIdx.x / 32 % 4);
    float4* const to =
        reinterpret_cast<float4*>(part) + (Pieces::before(row) - Pieces::first(row)) * 32 + lane;
#pragma unroll
    for (int i = 0; i < 8 * kLength; ++i) {
      const int column = 8 * kColumn + i;
      if (row < Pieces::kRows && column >= Pieces::first(row) && column < Pieces::end(row))
        to[column * 32] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    }
  }
  // A part, as reduce.cuh reads it.
  __device__ __forceinline__ void store(const Params& p, float* part, float* bias_part, int tokens,
                                        int diag) const {
    if constexpr (adds_triangles(C.shape, C.config)) return store_pieces(part);
    const auto thread = static_cast<int>(threadIdx.x % 128), lane = thread % 32;
    const int row = kPanel * kRow + thread / 32 * 16 + lane / 4, column = kPanel * kColumn + lane % 4 * 2;
    float4* const to = reinterpret_cast<float4*>(part) + kRow / 2 * (128 * part_columns(C.config) / 4) +
                       kColumn * (8 * 256) + kRow % 2 * 128 + thread;
#pragma unroll
    for (int i = 0; i < 8 * kLength; ++i)
      if (is_held<C>(p, row, column + 8 * i, tokens, diag))
        to[i * 256] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    if (C.shape.bias && lane % 4 == 0) bias_part[row] = bias[0], bias_part[row + 8] = bias[2];
  }
};
template <Kernel C>
struct TriangleRow<C, 0> {  // none
  __device__ __forceinline__ void multiply(unsigned long long, unsigned long long, unsigned long long, int,
                                           int) {}
  __device__ __forceinline__ void pin() {}
  __device__ __forceinline__ void store(const Params&, float*, float*, int, int) const {}
};

template <Kernel C, int kSteps, int kFirst, int kSecond>
__device__ __forceinline__ void multiply_triangle_steps(TriangleRow<C, kFirst>& first,
                                                        TriangleRow<C, kSecond>& second, unsigned long long a,
                                                        unsigned long long b, unsigned long long ones,
                                                        int block) {
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    first.multiply(a, b, ones, i, block | i);
    second.multiply(a, b, ones, i, block | i);
  }
  ptx::wgmma_commit();
}

// The loading thread, where B is A.
template <Kernel C>
__device__ __forceinline__ void load_triangle_once(const Params& p, const Ring<Geometry<C>>& ring,
                                                   const StreamK& stream_k, int features,
                                                   const TensorMap& map) {
  constexpr int kPanels = panels(C.config);
  RingPosition<C.config.stages> at;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    const MappedMatrix of = mapped<C>(p.x, work.copy);
    BlockBoxes<C> from(features, work.origin + work.begin * work.step);
    const BlockBoxes<C> step(features, work.step);
    for (int block = work.begin; block < work.end; block += 2) {
      const int here = schedule::min(2, work.end - block);
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      ptx::mbarrier_arrive_expect(ring.full(at.stage), here * kPanels * kPanelBytes);
      for (int i = 0; i < here; ++i) {
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          load_panel<C, kPanels>(i == 0 ? ring.a(at.stage) : ring.b(at.stage), panel, map,
                                 ring.full(at.stage), from, kPanel * panel, of);
        from.advance(step);
      }
      at.advance();
    }
  }
}

template <Kernel C>
__device__ __forceinline__ void load_triangle(const Params& p, const Ring<Geometry<C>>& ring,
                                              const StreamK& stream_k, int features, bool itself,
                                              const TensorMap& map_dy, const TensorMap& map_x) {
  if (kFindsRows<C> && itself)
    load_triangle_once<C>(p, ring, stream_k, features, map_x);
  else
    load_grad_weight<C>(p, ring, stream_k, features, 0, false, map_dy, map_x);
}

// One multiplying warpgroup, of two rows.
template <Kernel C, int kFirst, int kSecond>
__device__ __forceinline__ void multiply_triangle_rows(const Params& p, const Ring<Geometry<C>>& ring,
                                                       const StreamK& stream_k, int tokens, int diag,
                                                       bool itself) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned long long ones =
      ptx::descriptor_plain(ring.barriers + kBarrierBytes - kOnesBytes, kOnesBytes / 2);
  RingPosition<C.config.stages> at;
  TriangleRow<C, kFirst> first;
  TriangleRow<C, kSecond> second;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    BatchEnds<C> ends(work.origin + work.begin * work.step, work.step);
    int in_flight = -1;
    bool before = false;  // the stage's first k block has been multiplied
    for (int block = 0; block < work.end - work.begin; ++block) {
      if (!before) ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      const unsigned long long b = operand_descriptor<C>(itself && !before ? ring.a(at.stage)
                                                                           : ring.b(at.stage)),
                               a = itself ? b : operand_descriptor<C>(ring.a(at.stage));
      if (ends.here())
        multiply_triangle_steps<C, kLastSteps<C>>(first, second, a, b, ones, block);
      else
        multiply_triangle_steps<C, block_steps()>(first, second, a, b, ones, block);
      ptx::wgmma_wait<1>();
      ends.advance();
      if (!before && in_flight >= 0) ring.release(in_flight, lane);
      in_flight = at.stage;
      before = itself && !before && block + 1 < work.end - work.begin;
      if (!before) at.advance();
    }
    ptx::wgmma_wait<0>();
    first.pin();
    second.pin();
    if (in_flight >= 0) ring.release(in_flight, lane);
    auto* const workspace = static_cast<float*>(p.workspace);
    float* const part = workspace + stream_k.slot(work.number);
    float* const bias = workspace + stream_k.bias_slot(work.number);
    first.store(p, part, bias, tokens, diag);
    second.store(p, part, bias, tokens, diag);
  }
}

template <Kernel C>
__device__ __forceinline__ void multiply_triangle(const Params& p, const Ring<Geometry<C>>& ring,
                                                  const StreamK& stream_k, int tokens, int diag, bool itself,
                                                  unsigned group) {
  if (group == 0)
    multiply_triangle_rows<C, 3, 0>(p, ring, stream_k, tokens, diag, itself);
  else
    multiply_triangle_rows<C, 2, 1>(p, ring, stream_k, tokens, diag, itself);
}

}  // namespace trigen::persistent::weight
