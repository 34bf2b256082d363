// The product: one warp loads the weights' tiles, each multiplying warpgroup sums 64 features by tile_m
// tokens and stores them.
#pragma once

#include "params.h"
#include "persistent/sent_sums.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_widths.cuh"
#include "wgmma_taps_sm90/output.cuh"
#include "wgmma_taps_sm90/pipeline.cuh"
#include "wgmma_taps_sm90/transpose.cuh"

namespace trigen::wgmma_taps_sm90 {

// The tap whose input rows begin `place` after those of the tap furthest to the left.
template <Kernel C>
__device__ __forceinline__ int tap_at(int place) {
  return C.shape.op == Op::kGradInput ? C.shape.K - 1 - place : place;
}

// What touches memory beside the weights takes it that the launch which packs them has waited for all before it. A run
// without that launch gives the product no W, and it waits by itself.
__device__ __forceinline__ void wait_where_alone(const Params& p) {
  if (p.w == nullptr) ptx::wait_for_launches_before();
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_weights(const Shared<C>& shared, const Work<C>& work,
                                             const TensorMap& map_w) {
  using G = Geometry<C>;
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  ptx::wait_for_launches_before();  // the weights are being packed
  if constexpr (G::kKeepsWeights) {
    if (!Steps<C>(work).next()) return;
    for (int place = 0; place < C.shape.K; ++place) {
      ptx::mbarrier_arrive_expect(shared.full(place), kPanelBytes);
      ptx::tma_load(shared.b(place), map_w, shared.full(place), 0, 0, tap_at<C>(place), 0);
    }
    return;
  }
  persistent::RingPosition<G::kStages> at;
  for (Steps<C> now(work); now.next();) {
    int head, batch, feature;
    work.locate(now.tile.column, head, batch, feature);
    const int width = work.width(now.tile.row, now.step), k = work.token(now.step),
              row = now.tile.row * C.config.tile_m;
    for (int place = 0; place < C.shape.K; ++place) {
      const int tap = tap_at<C>(place);
      ptx::mbarrier_wait(shared.empty(at.stage), at.parity ^ 1);
      const unsigned full = shared.full(at.stage);
      ptx::mbarrier_arrive_expect(full, width * kPanelBytes);
#pragma unroll
      for (int i = 0; i < G::kPanels; ++i) {
        if (i >= width) continue;
        const int m = row + kPanel * work.panel_at(now.tile.row, i);
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

// Position of a multiplying warpgroup in the ring, and the number of input blocks that it has used.
template <Kernel C>
struct Position {
  persistent::RingPosition<C.config.stages> at;
  unsigned inputs = 0;
  int accumulate = 0;  // 0: the next product starts the sums
  // The buffer of the block before the next one.
  __device__ __forceinline__ int input_before() const {
    constexpr unsigned kBuffers = Geometry<C>::kTransposedBuffers;
    return static_cast<int>((inputs + kBuffers - 1) % kBuffers);
  }
};

// The input's block as the product's A: 16 bytes from a feature to the next, without a swizzle, or, contiguous
// tokens, 128 bytes with one.
template <Kernel C>
struct InputOperand {
  using G = Geometry<C>;
  static constexpr int kRowBytes = G::kTokens ? 128 : 16;
  static constexpr int kNext = kRowBytes >> 4,
                       kStep = G::kTokens ? 32 >> 4 : 2 * G::kFeatures;  // of descriptors
  static __device__ __forceinline__ ptx::Descriptor first(unsigned block, unsigned group) {
    const unsigned start = block + (64 * group + extra_left(C.shape, C.config)) * kRowBytes;
    return ptx::Descriptor(G::kTokens ? ptx::descriptor(start, 0)
                                      : ptx::descriptor_plain(start, 16 * G::kFeatures));
  }
};

// What a block has along k, in pieces of 16 tokens, and the columns of the panel with the fewest: a context of at most 64 tokens has
// fewer, the last ones of a panel whose tokens run backwards.
template <Kernel C>
struct Pieces {
  static constexpr int kTransposed = C.shape.op == Op::kGradInput;
  static constexpr int kCount = token_pieces(C.shape), kColumns = 16 * kCount;
  static constexpr int kFirst = Work<C>::kFlipped ? kPanel - kColumns : 0;
  // Of descriptors: from piece to piece, and to the first column.
  static constexpr int kStepA = InputOperand<C>::kStep, kStepB = kTransposed ? 2048 >> 4 : 32 >> 4;
  static constexpr int kStartB = kFirst * (kTransposed ? 2 : 128) >> 4;
};

// Products of 16 tokens along k, number `kPart` in the order of the walk, with all columns but `kLess`.
template <Kernel C, int kCount, int kPart, int kLess>
__device__ __forceinline__ void multiply_part(float (&sum)[32 * kCount], const ptx::Descriptor& a,
                                              const ptx::Descriptor& b, int accumulate) {
  using P = Pieces<C>;
  constexpr int kAt = Work<C>::kFill == Fill::kLower ? kPart : P::kCount - 1 - kPart;
  auto& own = reinterpret_cast<float(&)[32 * kCount - P::kFirst / 2]>(sum[P::kFirst / 2]);
  ptx::wgmma_fence();
  ptx::wgmma_ss_width<C.shape.dtype, 64 * (kCount - 1) + P::kColumns - kLess, P::kTransposed>(
      own, (a + kAt * P::kStepA).bits(), (b + P::kStartB + kAt * P::kStepB).bits(),
      kPart == 0 ? accumulate : 1);
}

// The products of one tap in one step. kDiagonal: the last panel's block crosses the diagonal, and of every
// 16 tokens along k only the columns with weights for them are multiplied. Panels are packed so that these
// come first.
template <Kernel C, int kCount, bool kDiagonal>
__device__ __forceinline__ void multiply_tap(float (&all)[C.config.tile_m / 2], const ptx::Descriptor& a,
                                             const ptx::Descriptor& b, int accumulate) {
  using P = Pieces<C>;
  constexpr int kLess = kDiagonal ? 16 : 0;
  auto& sum = reinterpret_cast<float(&)[32 * kCount]>(all);
  if constexpr (kDiagonal || P::kCount < 4) {
    multiply_part<C, kCount, 0, 0>(sum, a, b, accumulate);
    if constexpr (P::kCount > 1) multiply_part<C, kCount, 1, kLess>(sum, a, b, accumulate);
    if constexpr (P::kCount > 2) multiply_part<C, kCount, 2, 2 * kLess>(sum, a, b, accumulate);
    if constexpr (P::kCount > 3) multiply_part<C, kCount, 3, 3 * kLess>(sum, a, b, accumulate);
  } else {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ptx::wgmma_ss<C.shape.dtype, 64 * kCount, 0, P::kTransposed>(
          sum, (a + i * P::kStepA).bits(), (b + i * P::kStepB).bits(), accumulate | i);
  }
  ptx::wgmma_commit();
}

// One step, all taps. begin(): behind the first products of the tile.
template <Kernel C, int kCount, bool kDiagonal, class Begin>
__device__ __forceinline__ void multiply_step(float (&sum)[C.config.tile_m / 2], const Shared<C>& shared,
                                              Position<C>& now, unsigned group, unsigned lane,
                                              const Begin& begin) {
  using G = Geometry<C>;
  // Unrolled, or of weights that stay, the stages of a step are one behind the other.
  constexpr bool kUnrolled = unrolls(C.shape, C.config), kInRow = kUnrolled || G::kKeepsWeights;
  constexpr int kAtOnce = kUnrolled ? C.shape.K : 1;
  constexpr unsigned kBuffers = G::kTransposedBuffers;
  const bool follows = now.accumulate != 0;  // the tile's products before are under way
  const unsigned input = now.inputs % kBuffers;
  const auto same = [](const ptx::Descriptor& of) { return kUnrolled ? of.uniform() : of; };
  const auto weights_at = [&](int stage) {
    return ptx::Descriptor(ptx::descriptor(shared.b(stage), kPanelBytes));
  };
  const int first = G::kKeepsWeights ? 0 : now.at.stage;
  const ptx::Descriptor a = same(InputOperand<C>::first(shared.transposed(input), group)),
                        b = same(weights_at(first));
  ptx::mbarrier_wait(shared.ready(input), now.inputs / kBuffers % 2);
#pragma unroll kAtOnce
  for (int place = 0; place < C.shape.K; ++place) {
    const int stage = kInRow ? first + place : now.at.stage;
    ptx::mbarrier_wait(shared.full(stage), G::kKeepsWeights ? 0 : now.at.parity);
    multiply_tap<C, kCount, kDiagonal>(sum, a + place * InputOperand<C>::kNext,
                                       kInRow ? b + place * (G::kStageBytes >> 4) : weights_at(stage),
                                       place > 0 ? 1 : now.accumulate);
    ptx::wgmma_wait<1>();
    // What the group of products before this one read is free.
    if (!G::kKeepsWeights && (follows || place > 0))
      shared.release((kUnrolled && place > 0) || stage > 0 ? stage - 1 : G::kStages - 1, lane);
    if (place == 0 && follows) shared.release_input(now.input_before(), lane);
    if (place == 0 && !follows) begin();
    if constexpr (!kUnrolled) now.at.advance();
  }
  if constexpr (kUnrolled && !G::kKeepsWeights) now.at.advance(C.shape.K);
  now.accumulate = 1;
  ++now.inputs;
}

// All steps of a work tile from `done` on, kCount panels or fewer wide. wgmma's fence orders products of one
// width behind those of another on the same sums: nothing is waited for in between.
template <Kernel C, int kCount, class Begin>
__device__ __forceinline__ void multiply_tile(float (&sum)[C.config.tile_m / 2], const Shared<C>& shared,
                                              Position<C>& now, const persistent::RowWorkTile& work, int done,
                                              unsigned group, unsigned lane, const Begin& begin) {
  using G = Geometry<C>;
  if constexpr (kCount > 0) {
    const int all = Work<C>::valid_panels(work.row) < kCount
                        ? 0
                        : schedule::max(Work<C>::panel_steps(work.row, kCount - 1), done);
    const int until = slices(C.config) ? schedule::min(all, work.end) : all;
    // The last of them is then the last panel's own block.
    constexpr bool kDiagonal = C.shape.diag == 0;
    if (done < until) {
      const bool crosses = kDiagonal && (!slices(C.config) || until == all);
#pragma unroll 1
      for (int step = done; step < until - crosses; ++step)
        multiply_step<C, kCount, false>(sum, shared, now, group, lane, begin);
      if constexpr (kDiagonal)
        if (crosses) multiply_step<C, kCount, true>(sum, shared, now, group, lane, begin);
    }
    multiply_tile<C, kCount - 1>(sum, shared, now, work, until, group, lane, begin);
  } else {
    ptx::wgmma_wait<0>();
    if (now.accumulate == 0) return;
    if (!G::kKeepsWeights) shared.release(now.at.stage == 0 ? G::kStages - 1 : now.at.stage - 1, lane);
    shared.release_input(now.input_before(), lane);
  }
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply(const Params& p, const Shared<C>& shared, const Work<C>& work,
                                         unsigned group, const OutputMaps& maps) {
  using G = Geometry<C>;
  const unsigned lane = threadIdx.x % 32;
  auto walk = work.walk;
  Position<C> now;
  auto output = [&] {
    if constexpr (exchanges(C.shape))
      return ExchangedPanels<C>(shared, maps, group);
    else
      return OutputPanels<C>(shared, maps, group);
  }();
  float sum[C.config.tile_m / 2];
  for (persistent::RowWorkTile part; next_work(walk, part);) {
    const OutputTile<C> tile(work, part.row, part.column, group);
    now.accumulate = 0;
    multiply_tile<C, G::kPanels>(sum, shared, now, part, part.begin, group, lane, [&] {
      if (part.stores) output.begin(tile);
    });
    if (Work<C>::kEmptyRows && now.accumulate == 0) output.begin(tile);
    ptx::pin(sum);
    if constexpr (slices(C.config)) {
      const persistent::SentSums<G, C.config.tile_m / 2> sent(shared);
      if (!part.stores) {
        sent.send(sum, part, ptx::cluster_rank());
        continue;
      }
      sent.add(sum, part);
    }
#pragma unroll
    for (int i = 0; i < G::kPanels; ++i) {
      if (i >= tile.panels) continue;
      output.store(reinterpret_cast<const float(&)[32]>(sum[32 * i]), tile, i, PanelEpilogue<C>(p, tile, i));
    }
  }
  output.finish();
}

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p, const TensorMap& map_w, const TensorMap& map_in,
                                            const OutputMaps& maps) {
  using G = Geometry<C>;
  const Shared<C> shared{persistent::ring_of_block<G>()};
  persistent::prepare<G>(
      [&] {
        if constexpr (slices(C.config)) persistent::SentSums<G, C.config.tile_m / 2>(shared).init();
        shared.init();
      },
      map_w, map_in, *maps.output);
  if constexpr (slices(C.config))
    ptx::cluster_sync();  // the other blocks have begun, and their barriers are ready
  const Work<C> work(p);
  persistent::split_roles<G>(
      [&](unsigned) {
        const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        if (warp > 0) {
          wait_where_alone(p);
          if constexpr (!G::kTokens)
            transpose_input<C>(shared, work, warp - 1, lane, map_in);
          else if (warp == 1 && lane == 0)
            load_tokens<C>(shared, work, map_in);
        } else if (lane == 0) {
          load_weights<C>(shared, work, map_w);
        }
      },
      [&](unsigned group) {
        wait_where_alone(p);
        ptx::let_next_launch_start();  // which knows of load_weights' wait
        multiply<C>(p, shared, work, group, maps);
      });
  if constexpr (slices(C.config)) ptx::cluster_sync();  // no block may leave while another one sends to it
}

}  // namespace trigen::wgmma_taps_sm90
