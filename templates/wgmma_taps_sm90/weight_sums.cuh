// From the sums of grad_weight to dW, to grad_bias or, where other thread blocks have parts of them, to the workspace.
#pragma once

#include "params.h"
#include "persistent/weight_store.cuh"
#include "types.cuh"
#include "wgmma_taps_sm90.h"
#include "wgmma_taps_sm90/weight_rows.cuh"

namespace trigen::wgmma_taps_sm90::weight {

using persistent::weight::fill_zeros;
using persistent::weight::write_bias;

// Columns of a block.
template <Kernel C>
inline constexpr int kBlockColumns = kPanel* column_panels(C.config, C.shape.K);

// A block's row that this warp's 16 begin with.
template <Kernel C>
__device__ __forceinline__ unsigned first_row() {
  return threadIdx.x / 32 % (C.config.tile_m / 16) * 16;
}

// dW[row, column, tap .. tap + 3].
template <Kernel C>
__device__ __forceinline__ void write_taps(const Params& p, int head, int row, int column, int tap,
                                           float (&v)[4]) {
  constexpr Shape s = C.shape;
  constexpr DType kW = s.wdtype;
  constexpr int kVec = C.config.vec_c;
  static_assert(s.K % kVec == 0 && 4 % kVec == 0, "vectors of an element's taps");
  if (row >= s.T || column >= s.T || tap >= s.K) return;
  const bool inside = s.fill == Fill::kLower ? column <= row + s.diag : column >= row + s.diag;
  if (!inside && !s.zero_outside) return;
  auto* const to = static_cast<Storage<kW>*>(p.w) +
                   (head * p.w_head + row * p.w_row + static_cast<long long>(column) * s.K + tap);
  if constexpr (s.accumulate) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (tap + i < s.K) v[i] += to_float<kW>(to[i]);
  }
  if (!inside) v[0] = v[1] = v[2] = v[3] = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i += kVec) {
    if (tap + i >= s.K) continue;
    float taps[kVec];
#pragma unroll
    for (int j = 0; j < kVec; ++j) taps[j] = v[i + j];
    Raw<kW, kVec> out;
    out.from_floats(taps);
    ptx::store_global<Raw<kW, kVec>::kSize>(to + i, out.w);
  }
}

// Writes a thread's sums of columns [8 * slice, 8 * slice + 8): sum[tap][4] in the order of wgmma.cuh.
template <Kernel C, class Sum>
__device__ __forceinline__ void write_slice(const Params& p, int head, int row, int column, int group,
                                            int slice, int thread, const Sum& sum) {
  const int lane = thread % 32, tap = kManyTaps * group + 4 * (thread / 128);
  row = kPanel * row + thread / 32 % 4 * 16 + lane / 4;
  column = kPanel * column + 8 * slice + lane % 4 * 2;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    float v[4] = {sum(0, e), sum(1, e), sum(2, e), sum(3, e)};
    write_taps<C>(p, head, row + e / 2 * 8, column + e % 2, tap, v);
  }
}

// Zeros into the blocks outside every row's span.
template <Kernel C>
__device__ __forceinline__ void write_zeros(const Params& p, const StreamK& stream_k) {
  constexpr Shape s = C.shape;
  const int lane = static_cast<int>(threadIdx.x % 32), blocks = static_cast<int>(gridDim.x);
  for (int all = static_cast<int>(blockIdx.x * kSumWarps + threadIdx.x / 32); all < s.H * s.T;
       all += kSumWarps * blocks) {
    const int head = all / s.T, row = all - head * s.T, item = row / C.config.tile_m;
    const int begin = s.fill == Fill::kLower ? kBlockColumns<C> * stream_k.span(item) : 0;
    const int end =
        s.fill == Fill::kLower ? s.T : schedule::min(kBlockColumns<C> * stream_k.first(item), s.T);
    if (begin < end)
      fill_zeros<s.wdtype>(static_cast<Storage<s.wdtype>*>(p.w) +
                               (head * p.w_head + row * p.w_row + static_cast<long long>(begin) * s.K),
                           (end - begin) * s.K, lane);
  }
}

// The block of dW that a work tile sums.
struct Block {
  int head, row, column, group;
  bool part, begins;  // an incomplete sum; its first part
  __device__ __forceinline__ Block(const StreamK& stream_k, const WorkTile& work)
      : part(work.end - work.begin < stream_k.depth), begins(work.begin == 0) {
    stream_k.locate(work.item, head, row, column, group);
  }
};

// Rows lane / 4 and lane / 4 + 8 of a warp, of which four lanes have a part each.
template <Kernel C>
__device__ __forceinline__ void store_bias(const Params& p, const StreamK& stream_k, const Block& block,
                                           float (&bias)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    bias[r] += __shfl_xor_sync(~0u, bias[r], 1);
    bias[r] += __shfl_xor_sync(~0u, bias[r], 2);
  }
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = static_cast<int>(first_row<C>() + threadIdx.x % 32 / 4) + 8 * r;
    if (block.part)
      static_cast<float*>(p.workspace)[stream_k.bias_slot(static_cast<int>(blockIdx.x), block.begins) + own] =
          bias[r];
    else
      write_bias<C>(p, block.head, C.shape.T, C.config.tile_m * block.row + own, bias[r]);
  }
}

// The sums go to the workspace or to dW.
template <Kernel C, int kTaps, int kSums>
__device__ __forceinline__ void store(const Params& p, unsigned staged, const StreamK& stream_k,
                                      const Block& block, const float (&sum)[kTaps][kSums]) {
  constexpr int kLanes = 32 * kSumWarps, kAtOnce = kStoreColumns / 8, kUnits = kSums / 4;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  if (block.part) {
    // 16 bytes a thread, one thread after the other, as `reduce` reads them.
    auto* const to = reinterpret_cast<float4*>(static_cast<float*>(p.workspace) +
                                               stream_k.slot(static_cast<int>(blockIdx.x), block.begins)) +
                     thread;
    const int row = C.config.tile_m * block.row + static_cast<int>(first_row<C>());
#pragma unroll
    for (int slice = 0; slice < kUnits; ++slice) {
      if (!reaches(C.shape, row, kBlockColumns<C> * block.column + 8 * slice)) continue;
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap)
        to[(kTaps * slice + tap) * kLanes] = make_float4(sum[tap][4 * slice], sum[tap][4 * slice + 1],
                                                         sum[tap][4 * slice + 2], sum[tap][4 * slice + 3]);
    }
    return;
  }
  if constexpr (few(C.shape.K)) {
    staged += thread / 32 * 16 * store_pitch(kTaps, kStoreColumns);
#pragma unroll
    for (int slice = 0; slice < kUnits; slice += kAtOnce)
      store_rows<C, kStoreColumns>(p, staged, block.head,
                                   C.config.tile_m * block.row + static_cast<int>(first_row<C>()),
                                   kBlockColumns<C> * block.column + 8 * slice, lane,
                                   [&](int i, int tap, int e) { return sum[tap][4 * (slice + i) + e]; });
  } else {
#pragma unroll
    for (int slice = 0; slice < kUnits; ++slice)
      write_slice<C>(p, block.head, block.row, block.column, block.group, slice, thread,
                     [&](int tap, int e) { return sum[tap][4 * slice + e]; });
  }
}

}  // namespace trigen::wgmma_taps_sm90::weight
