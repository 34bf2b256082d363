// grad_weight with several taps: dW[t, s, j] = sum over (b, d) of dy[b, t, d] x[b, s, d + j - pad].
//
// A thread block sums 64 or 128 t by 64 s and a group of taps (wgmma_taps_sm90.h): A = dy, read into registers once
// for all taps, B = x^T, transposed once in shared memory as in transpose.cuh and read MN-major: k is the
// feature, a row of 16 bytes, so that a tap is a shift of the descriptor's start by a row. f32 data: weight_tf32.cuh.
#pragma once

#include "pack_activations.h"
#include "ptx/ldmatrix.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "wgmma_taps_sm90/weight_tf32.cuh"

namespace trigen::wgmma_taps_sm90::weight {

// Three warps, `warp` 0 to 2.
template <Kernel C>
__device__ __forceinline__ void transpose(const Shared<C>& shared, const StreamK& stream_k, unsigned warp,
                                          unsigned lane) {
  constexpr int kStages = C.config.stages, kUnits = 2 * kFeatures / 8;  // of 8 features by 32 tokens
  RingPosition<kStages> at;
  RingPosition<kTransposed> to;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    for (int step = work.begin; step < work.end; ++step) {
      RingPosition<kStages> next = at;
      next.advance();
      ptx::mbarrier_wait(shared.x_full(at.stage), at.parity);
      ptx::mbarrier_wait(shared.x_full(next.stage), next.parity);
      ptx::mbarrier_wait(shared.done(to.stage), to.parity ^ 1);
      const unsigned from = shared.x(at.stage), after = shared.x(next.stage),
                     target = shared.transposed(to.stage);
#pragma unroll
      for (unsigned i = 0; i < (kUnits + 2) / 3; ++i) {
        const unsigned unit = 3 * i + warp;
        if (unit >= kUnits) break;
        const unsigned chunk = unit / 2, half = unit % 2;
        unsigned word[4];
        // 128-byte swizzle: 16-byte chunk ^ row % 8.
        ptx::ldmatrix_x4_trans(
            word, (chunk < 8 ? from : after) + (32 * half + lane) * 128 + (((chunk % 8) ^ (lane % 8)) << 4));
        ptx::stmatrix_x4(target + ((4 * half + lane / 8) * kFeatures + 8 * chunk + lane % 8) * 16, word[0],
                         word[1], word[2], word[3]);
      }
      ptx::fence_async_shared();
      ptx::named_barrier(3, 96);
      const bool last = ends<C>(work, step);
      if (warp == 0 && lane == 0) {
        ptx::mbarrier_arrive(shared.ready(to.stage));
        ptx::mbarrier_arrive(shared.x_empty(at.stage));
        if (last) ptx::mbarrier_arrive(shared.x_empty(next.stage));
      }
      at = next;
      if (last) at.advance();
      to.advance();
    }
  }
}

// Adds a thread's elements of a 64 x 64 panel of dy: rows lane / 4 and lane / 4 + 8 of its warp.
template <DType kType>
__device__ __forceinline__ void add_rows(float (&bias)[2], const unsigned (&a)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      bias[j % 2] += to_float<kType>(static_cast<unsigned short>(a[i][j])) +
                     to_float<kType>(static_cast<unsigned short>(a[i][j] >> 16));
}

// All taps of the first 16 * kPieces features of a step. A's registers are free afterwards; the other warpgroup
// multiplies while this one reads.
template <DType kType, int kPieces, int kTaps>
__device__ __forceinline__ void multiply_step(float (&sum)[kTaps][32], const unsigned (&a)[4][4],
                                              unsigned long long b, int keep) {
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      ptx::wgmma_rs<kType, 64, 1>(sum[tap], a[i], b + 16 * i + tap, keep | i);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply(const Params& p, const Shared<C>& shared, const StreamK& stream_k,
                                         unsigned group) {
  using W = Work<C>;
  constexpr DType kType = C.shape.dtype;
  constexpr bool kDividesTaps = !few(C.shape.K);
  constexpr int kTaps = warpgroup_taps(C.shape.K);
  const unsigned lane = threadIdx.x % 32;
  // Row lane % 16 of the warp's, 16-byte chunk 2 i + lane / 16 of 16 features.
  const unsigned line = (first_row<C>() + lane % 16) * 128;
  RingPosition<C.config.stages> at;
  RingPosition<kTransposed> from;
  float sum[kTaps][32];
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    Block block(stream_k, work);
    const bool with_bias = C.shape.bias && (!kDividesTaps || group == 0) &&
                           stream_k.sums_bias(block.row, block.column, block.group);
    float bias[2] = {};
    for (int step = work.begin; step < work.end; ++step) {
      ptx::mbarrier_wait(shared.dy_full(at.stage), at.parity);
      unsigned a[4][4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        ptx::ldmatrix_x4(a[i], shared.dy(at.stage) + line + (((2 * i + lane / 16) ^ (lane % 8)) << 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::pin(a[i]);
      if constexpr (C.shape.bias)
        if (with_bias) add_rows<kType>(bias, a);
      ptx::mbarrier_wait(shared.ready(from.stage), from.parity);
      const unsigned long long b = ptx::descriptor_plain_mn(
          shared.transposed(from.stage) + (W::kAhead + (kDividesTaps ? kTaps * group : 0)) * 16,
          16 * kFeatures);
      if (W::kLast < 4 && (step + 1) % W::kSteps == 0)
        multiply_step<kType, W::kLast>(sum, a, b, step > work.begin);
      else
        multiply_step<kType, 4>(sum, a, b, step > work.begin);
      __syncwarp();  // one lane lets go of what all have read
      if (lane == 0) {
        ptx::mbarrier_arrive(shared.dy_empty(at.stage));
        ptx::mbarrier_arrive(shared.done(from.stage));
      }
      at.advance();
      from.advance();
    }
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
    if (with_bias) store_bias<C>(p, stream_k, block, bias);
    store<C>(p, shared.store(), stream_k, block, sum);
  }
}

template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& map_dy, const TensorMap& map_x) {
  const unsigned base = ptx::shared_address(persistent::shared_memory());
  const Shared<C> shared{base, base + static_cast<unsigned>(shared_bytes(C.shape, C.config)) - kBarrierBytes};
  persistent::prepare<Geometry<C>>([&] { shared.init(); }, map_dy, map_x);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();  // the reduction waits for what is written here
  const StreamK stream_k(C.shape, C.config, p.B, static_cast<int>(gridDim.x));
  persistent::split_roles<Geometry<C>>(
      [&](unsigned) {
        const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        if (warp == 0 && lane == 0) load<C>(shared, stream_k, map_dy, map_x);
        if constexpr (!kShiftsDy<C>) {
          if (warp > 0) transpose<C>(shared, stream_k, warp - 1, lane);
        }
      },
      [&](unsigned group) {
        if constexpr (C.shape.zero_outside)
          write_zeros<C>(p, stream_k);  // while the first panels are on their way
        if constexpr (kShiftsDy<C>)
          multiply_tf32<C>(p, shared, stream_k, group);
        else
          multiply<C>(p, shared, stream_k, group);
      });
}

// The second kernel: adds the parts of every shared item, 8 columns of 16 rows at a time: a warp, or where an item has many parts the
// warps of a block.
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  constexpr int kTaps = warpgroup_taps(C.shape.K), kUnits = kBlockColumns<C> / 8 * kSumWarps;
  constexpr int kStoreBytes = reduce_store_bytes(C.shape.K);
  const StreamK stream_k(C.shape, C.config, p.B, static_cast<int>(gridDim.x) / kReduceBlocks);
  if (stream_k.rest() == 0) return;
  const bool together = stream_k.adds_together();
  const int lane = static_cast<int>(threadIdx.x % 32), own_warp = static_cast<int>(threadIdx.x / 32),
            warps = together ? kReduceWarps : 1, adders = static_cast<int>(gridDim.x) * kReduceWarps / warps;
  unsigned char* const shared = persistent::shared_memory();
  auto* const added = reinterpret_cast<float4(*)[kTaps][32]>(shared + kReduceWarps * kStoreBytes);
  auto* const added_bias = reinterpret_cast<float(*)[16]>(added + kReduceWarps);
  ptx::wait_for_launches_before();
  for (int all = static_cast<int>(blockIdx.x) + (together ? 0 : own_warp * static_cast<int>(gridDim.x));
       all < stream_k.rest() * kUnits; all += adders) {
    const int index = all / kUnits, slice = all % kUnits / kSumWarps, warp = all % kSumWarps;
    const int first = stream_k.owner(index * stream_k.depth),
              last = stream_k.owner((index + 1) * stream_k.depth - 1);
    if (first == last) continue;
    int head, row, column, group;
    stream_k.locate(stream_k.whole_items + index, head, row, column, group);
    const int top = C.config.tile_m * row + 16 * warp % C.config.tile_m,
              first_column = kBlockColumns<C> * column + 8 * slice;
    const int from = first + (together ? own_warp : 0);
    float4 sum[kTaps] = {};
    if (reaches(C.shape, top, first_column)) {
#pragma unroll(kTaps == 2 ? 6 : 16 / kTaps)  // eight spill
      for (int block = from; block <= last; block += warps)
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          const float4 v = reinterpret_cast<const float4*>(
              static_cast<const float*>(p.workspace) +
              stream_k.slot(block, block == first))[((kTaps * slice + tap) * kSumWarps + warp) * 32 + lane];
          sum[tap].x += v.x, sum[tap].y += v.y, sum[tap].z += v.z, sum[tap].w += v.w;
        }
    }
    const bool with_bias = C.shape.bias && slice == 0 && lane < 16 && warp < C.config.tile_m / 16 &&
                           stream_k.sums_bias(row, column, group);
    float bias = 0;
    if (with_bias)
      for (int block = from; block <= last; block += warps)
        bias += static_cast<const float*>(
            p.workspace)[stream_k.bias_slot(block, block == first) + 16 * warp + lane];
    if (together) {
      __syncthreads();  // the unit before has been read
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) added[own_warp][tap][lane] = sum[tap];
      if (with_bias) added_bias[own_warp][lane] = bias;
      __syncthreads();
      if (own_warp > 0) continue;
#pragma unroll(2)
      for (int other = 1; other < kReduceWarps; ++other) {
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          const float4 v = added[other][tap][lane];
          sum[tap].x += v.x, sum[tap].y += v.y, sum[tap].z += v.z, sum[tap].w += v.w;
        }
        if (with_bias) bias += added_bias[other][lane];
      }
    }
    if constexpr (C.shape.bias)
      if (with_bias) write_bias<C>(p, head, C.shape.T, top + lane, bias);
    const auto own = [&](int tap, int e) {
      return e == 0 ? sum[tap].x : e == 1 ? sum[tap].y : e == 2 ? sum[tap].z : sum[tap].w;
    };
    if constexpr (few(C.shape.K)) {
      store_rows<C, 8>(p, ptx::shared_address(shared) + own_warp * kStoreBytes, head, top, first_column, lane,
                       [&](int, int tap, int e) { return own(tap, e); });
    } else {
      write_slice<C>(p, head, row, column, group, slice, 32 * warp + lane, own);
    }
  }
}

}  // namespace trigen::wgmma_taps_sm90::weight
