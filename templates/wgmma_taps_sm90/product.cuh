// The product: one warp loads the weights' tiles, each multiplying warpgroup sums 64 features by tile_m
// tokens and stores them.
#pragma once

#include "activation.cuh"
#include "params.h"
#include "persistent/staging.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_widths.cuh"
#include "types.cuh"
#include "wgmma_taps_sm90/pipeline.cuh"
#include "wgmma_taps_sm90/transpose.cuh"

namespace trigen::wgmma_taps_sm90 {

// The tap whose input rows begin `place` after those of the tap furthest to the left.
template <Kernel C>
__device__ __forceinline__ int tap_at(int place) {
  return C.shape.op == Op::kGradInput ? C.shape.K - 1 - place : place;
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_weights(const Shared<C>& shared, const Work<C>& work,
                                             const TensorMap& map_w) {
  using G = Geometry<C>;
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  ptx::wait_for_launches_before();  // the weights are being packed
  persistent::RingPosition<G::kStages> at;
  for (Steps<C> now(work); now.next();) {
    int head, batch, feature;
    work.locate(now.column, head, batch, feature);
    const int width = work.width(now.row, now.step), k = work.token(now.step),
              row = now.row * C.config.tile_m;
    for (int place = 0; place < C.shape.K; ++place) {
      const int tap = tap_at<C>(place);
      ptx::mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);
      const unsigned full = shared.full(at.stage);
      ptx::mbarrier_arrive_expect(full, width * kPanelBytes);
#pragma unroll
      for (int i = 0; i < G::kPanels; ++i) {
        if (i >= width) continue;
        const int m = row + kPanel * work.panel_at(now.row, i);
        const unsigned to = shared.b(at.stage) + i * kPanelBytes;
        if constexpr (G::kCluster == 1)
          ptx::tma_load(to, map_w, full, kTransposed ? m : k, kTransposed ? k : m, tap, head);
        else if (i % 2 == work.rank)  // each block loads half of the panels for both
          ptx::tma_load_multicast(to, map_w, full, 3, kTransposed ? m : k, kTransposed ? k : m, tap, head);
      }
      at.advance();
    }
  }
}

// Where a multiplying warpgroup stands: in the ring, and how many blocks of the input it has used.
template <Kernel C>
struct Position {
  persistent::RingPosition<C.config.stages> at;
  unsigned inputs = 0;
  int keep = 0;  // 0: the next product starts the sums
};

// A diagonal block's 16 tokens along k number `kPart` in the order of the walk, and the columns they reach.
template <Kernel C, int kCount, int kPart>
__device__ __forceinline__ void multiply_part(float (&sum)[32 * kCount], unsigned long long a,
                                              unsigned long long b, int keep) {
  constexpr int kTransposed = C.shape.op == Op::kGradInput, kStepA = 2 * Geometry<C>::kFeatures,
                kStepB = kTransposed ? 2048 >> 4 : 32 >> 4;  // of 16 tokens
  constexpr int kAt = Work<C>::kFill == Fill::kLower ? kPart : 3 - kPart;
  ptx::wgmma_fence();
  ptx::wgmma_ss_width<C.shape.dtype, 64 * kCount - 16 * kPart, kTransposed>(
      sum, a + kAt * kStepA, b + kAt * kStepB, kPart == 0 ? keep : 1);
}

// The products of one tap in one step. kDiagonal: the last panel's block crosses the diagonal, and of every
// 16 tokens along k only the columns that they reach are multiplied. Panels are packed so that these come
// first.
template <Kernel C, int kCount, bool kDiagonal>
__device__ __forceinline__ void multiply_tap(float (&all)[C.config.tile_m / 2], unsigned long long a,
                                             unsigned long long b, int keep) {
  constexpr int kTransposed = C.shape.op == Op::kGradInput, kStepA = 2 * Geometry<C>::kFeatures,
                kStepB = kTransposed ? 2048 >> 4 : 32 >> 4;
  auto& sum = reinterpret_cast<float(&)[32 * kCount]>(all);
  if constexpr (kDiagonal) {
    multiply_part<C, kCount, 0>(sum, a, b, keep);
    multiply_part<C, kCount, 1>(sum, a, b, keep);
    multiply_part<C, kCount, 2>(sum, a, b, keep);
    multiply_part<C, kCount, 3>(sum, a, b, keep);
  } else {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ptx::wgmma_ss<C.shape.dtype, 64 * kCount, 0, kTransposed>(sum, a + i * kStepA, b + i * kStepB,
                                                                keep | i);
  }
  ptx::wgmma_commit();
}

// One step, all taps.
template <Kernel C, int kCount, bool kDiagonal>
__device__ __forceinline__ void multiply_step(float (&sum)[C.config.tile_m / 2], const Shared<C>& shared,
                                              Position<C>& now, unsigned group, unsigned lane) {
  using G = Geometry<C>;
  const bool follows = now.keep != 0;  // the tile's products before are under way
  ptx::mbarrier_wait(shared.ready(now.inputs % 2), now.inputs / 2 % 2);
  unsigned long long a = ptx::descriptor_plain(
      shared.transposed(now.inputs % 2) + (64 * group + extra_left(C.shape)) * 16, 16 * G::kFeatures);
#pragma unroll 1
  for (int place = 0; place < C.shape.K; ++place) {
    ptx::mbarrier_wait(shared.full(now.at.stage), now.at.parity);
    multiply_tap<C, kCount, kDiagonal>(sum, a, ptx::descriptor(shared.b(now.at.stage), kPanelBytes),
                                       now.keep);
    ptx::wgmma_wait<1>();
    // What the group before this one read is free.
    if (follows || place > 0) shared.release(now.at.stage == 0 ? G::kStages - 1 : now.at.stage - 1, lane);
    if (follows && place == 0) shared.release_input((now.inputs + 1) % 2, lane);
    now.at.advance();
    now.keep = 1;
    ++a;  // one feature further
  }
  ++now.inputs;
}

// All steps of a row tile from `done` on, kCount panels or fewer wide. wgmma's fence orders products of one
// width behind those of another on the same sums: nothing is waited for in between.
template <Kernel C, int kCount>
__device__ __forceinline__ void multiply_tile(float (&sum)[C.config.tile_m / 2], const Shared<C>& shared,
                                              Position<C>& now, int row, int done, unsigned group,
                                              unsigned lane) {
  using G = Geometry<C>;
  if constexpr (kCount > 0) {
    const int until =
        Work<C>::valid_panels(row) < kCount ? 0 : schedule::max(Work<C>::active(row, kCount - 1), done);
    // The last of them is then the last panel's own block.
    constexpr bool kDiagonal = C.shape.diag == 0;
    if (done < until) {
#pragma unroll 1
      for (int step = done; step < until - kDiagonal; ++step)
        multiply_step<C, kCount, false>(sum, shared, now, group, lane);
      if constexpr (kDiagonal) multiply_step<C, kCount, true>(sum, shared, now, group, lane);
    }
    multiply_tile<C, kCount - 1>(sum, shared, now, row, until, group, lane);
  } else {
    ptx::wgmma_wait<0>();
    if (now.keep == 0) return;
    shared.release(now.at.stage == 0 ? G::kStages - 1 : now.at.stage - 1, lane);
    shared.release_input((now.inputs + 1) % 2, lane);
  }
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply(const Params& p, const Shared<C>& shared, const Work<C>& work,
                                         unsigned group, const TensorMap& map_out) {
  using G = Geometry<C>;
  using W = Work<C>;
  constexpr Shape s = C.shape;
  constexpr bool kEmptyRows = s.fill == Fill::kLower ? s.diag < 0 : s.diag > 0;
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  persistent::Deal deal = work.deal;
  Position<C> now;
  persistent::Staging<G::kStorePanels, 128> staging(
      shared.base + G::kOutput + group * G::kStorePanels * kPanelBytes, 1 + group);
  float sum[C.config.tile_m / 2];
  for (int row, column; deal.next(row, column);) {
    now.keep = 0;
    multiply_tile<C, G::kPanels>(sum, shared, now, row, 0, group, lane);
    ptx::pin(sum);
    int head, batch, feature;
    work.locate(column, head, batch, feature);
    feature += 64 * static_cast<int>(group);
    const int valid = W::valid_panels(row);
    if (feature >= s.D) continue;
#pragma unroll
    for (int i = 0; i < G::kPanels; ++i) {
      if (i >= valid) continue;
      const int first = row * C.config.tile_m + kPanel * W::panel_at(row, i);
      // Rows without any weight have no sum.
      const bool any = !kEmptyRows || W::active(row, i) > 0;
      unsigned word[16];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float bias[2] = {};
        if constexpr (s.bias) {
          const auto* from =
              static_cast<const Storage<s.wdtype>*>(p.bias) + static_cast<long long>(head) * s.T;
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int own = 8 * j + static_cast<int>(lane % 4 * 2) + e,
                      token = first + (W::kFlipped ? 63 - own : own);
            if (token < s.T) bias[e] = to_float<s.wdtype>(from[token]);
          }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {  // rows + 8 * r
          float v[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) v[e] = (any ? sum[32 * i + 4 * j + 2 * r + e] : 0.0f) + bias[e];
          activate_pair<s.act, s.dtype>(v[0], v[1]);
          word[2 * j + r] = pack<s.dtype>(v[0], v[1]);
        }
      }
      const unsigned target = staging.claim();
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // 16 tokens; a warp has 16 of the panel's features
        const unsigned own = 16 * j + lane / 16 * 8 + lane % 8, line = W::kFlipped ? 63 - own : own;
        const unsigned chunk = 2 * warp + lane / 8 % 2;
        ptx::stmatrix_x4_trans(target + line * 128 + ((chunk ^ (line & 7)) << 4), word[4 * j],
                               word[4 * j + 1], word[4 * j + 2], word[4 * j + 3]);
      }
      staging.send(map_out, target, feature, first, head, batch);
    }
  }
  staging.finish();
}

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p, const TensorMap& map_w, const TensorMap& map_in,
                                            const TensorMap& map_out) {
  using G = Geometry<C>;
  const Shared<C> shared{persistent::ring_of_block<G>()};
  persistent::prepare<G>([&] { shared.init(); }, map_w, map_in, map_out);
  const Work<C> work(p);
  persistent::split_roles<G>(
      [&](unsigned) {
        const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        if (warp > 0)
          transpose_input<C>(shared, work, warp - 1, lane, map_in);
        else if (lane == 0)
          load_weights<C>(shared, work, map_w);
      },
      [&](unsigned group) { multiply<C>(p, shared, work, group, map_out); });
}

}  // namespace trigen::wgmma_taps_sm90
