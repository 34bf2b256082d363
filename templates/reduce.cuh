// The second launch of grad_weight with split_k > 1: adds the partial sums in the order of the splits, so
// that the bits do not depend on timing, and writes dW and grad_bias. Grid {T, H}, kReduceThreads threads:
// one row of dW per block. Of a Toeplitz matrix it adds what tiles and splits have of each diagonal, in an order as fixed:
// grid {T / kReduceDiagonals, H}.
#pragma once

#include "diagonals.cuh"
#include "epilogue.cuh"

namespace trigen {

template <Kernel C>
__device__ __forceinline__ void reduce_bias(const Params& p, const float* parts, const Sizes& z, int head,
                                            int t) {
  constexpr Config c = C.config;
  float sum = 0.0f;
  for (int split = 0; split < c.split_k; ++split)
    sum += parts[schedule::workspace_bias(C.shape, c, z) +
                 (static_cast<long long>(split) * z.H + head) * z.T + t];
  store_bias<C>(p, z, head, t, sum);
}

template <Kernel C>
__device__ __forceinline__ void reduce_diagonals(const Params& p) {
  constexpr Config c = C.config;
  constexpr int kHere = schedule::kReduceDiagonals;
  constexpr int kSplits = c.split_k > 1 ? c.split_k : 1;
  const Sizes z = sizes_of<C>(p);
  const int place = static_cast<int>(threadIdx.x) % kHere, lane = static_cast<int>(threadIdx.x) / kHere;
  const int distance = static_cast<int>(blockIdx.x) * kHere + place, head = static_cast<int>(blockIdx.y);
  const int row_tiles = schedule::ceil_div(z.T, c.tile_m);
  const long long tiles = schedule::tiles_before(c, row_tiles);
  const float* const parts = static_cast<const float*>(p.workspace);
  // Lane by lane the splits of a row of tiles, one row after the other.
  float sum = 0.0f;
  const int first_row = distance / c.tile_m;
  for (int part = lane; distance < z.T && part < (row_tiles - first_row) * kSplits; part += kDiagonalLanes) {
    const int row = first_row + part / kSplits, split = part % kSplits, t0 = row * c.tile_m;
    const float* const own =
        parts + ((static_cast<long long>(split) * z.H + head) * tiles + schedule::tiles_before(c, row)) *
                    schedule::tile_diagonals(c);
    const int first = max(t0 - distance, 0) / c.tile_n,
              last = (min(t0 + c.tile_m, z.T) - 1 - distance) / c.tile_n;
    for (int column = first; column <= last; ++column)
      sum += own[column * schedule::tile_diagonals(c) + distance - t0 + (column + 1) * c.tile_n - 1];
  }
  __shared__ float sums[schedule::kReduceThreads];
  if (!write_diagonal<C>(p, sums, head, distance, z.T, sum)) return;
  if constexpr (C.shape.bias && c.split_k > 1) reduce_bias<C>(p, parts, z, head, distance);
}

template <Kernel C>
__device__ __forceinline__ void reduce_rows(const Params& p) {
  constexpr Config c = C.config;
  constexpr int kVec = c.vec_c;
  constexpr bool kZeros = C.shape.zero_outside && kDense<C>;  // those of a band are store_weights' own
  const Sizes z = sizes_of<C>(p);
  const int t = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int pitch = schedule::workspace_pitch(z);
  const Range r = schedule::weight_row(C.shape.fill, z, t);
  const float* const parts = static_cast<const float*>(p.workspace);
  const auto& own = at_head<C>(p, head);
  // Whole vectors that touch the triangle, or the whole row when its rest is to be zeroed.
  const int begin = kZeros ? 0 : r.begin * z.K / kVec * kVec;
  const int end = kZeros ? z.T * z.K : r.end * z.K;
  for (int column = begin + static_cast<int>(threadIdx.x) * kVec; column < end;
       column += schedule::kReduceThreads * kVec) {
    float sum[kVec];
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] = 0.0f;
    if (column < r.end * z.K && column + kVec > r.begin * z.K) {
#pragma unroll 4
      for (int split = 0; split < c.split_k; ++split) {
        float v[kVec];
        read_floats(v, parts + ((static_cast<long long>(split) * z.H + head) * z.T + t) * pitch + column +
                           (kBand<C> ? z.width - 1 - t : 0));
#pragma unroll
        for (int i = 0; i < kVec; ++i) sum[i] += v[i];
      }
    }
    store_weights<C>(own, z, head, t, column, sum);
    if constexpr (C.shape.mirror) {
#pragma unroll
      for (int i = 0; i < kVec; ++i)
        if (column + i < z.T) gram::mirror<C>(own, head, t, column + i, sum[i]);
    }
  }
  if constexpr (C.shape.bias) {
    if (threadIdx.x == 0) reduce_bias<C>(p, parts, z, head, t);
  }
}

template <Kernel C>
__device__ __forceinline__ void reduce_splits(const Params& p) {
  static_assert(schedule::adds_parts(C.shape, C.config), "only parts need a reduction");
  if constexpr (schedule::sums_diagonals(C.shape))
    reduce_diagonals<C>(p);
  else
    reduce_rows<C>(p);
}

}  // namespace trigen
