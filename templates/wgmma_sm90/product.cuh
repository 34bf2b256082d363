// forward and grad_input: one row tile of W (or of its transpose) times column panels of x (or dy).
//
//   forward     y[t, n]  = sum over s in the triangle of W[t, s] x[s, n]
//               A = W, K-major; B = x, MN-major
//   grad_input  dx[s, n] = sum over t in the triangle of W[t, s] dy[t, n]
//               A = W^T, MN-major; B = dy, MN-major
//
// n runs over boxes of 64 (or fewer: box_features) features of one (batch, head); a tile's boxes may come from
// different batches.
// Blocks are persistent. One warp loads, each other warpgroup multiplies 64 rows and stops at its own
// diagonal block, so the one with the shorter rows stores its result while the other still multiplies.
#pragma once

#include "params.h"
#include "persistent/output_panels.cuh"
#include "persistent/panels.cuh"
#include "persistent/sent_sums.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "wgmma_sm90/epilogue.cuh"
#include "wgmma_sm90/epilogue_panels.cuh"
#include "wgmma_sm90/heads.cuh"
#include "wgmma_sm90/pipeline.cuh"
#include "wgmma_sm90/prefetch.cuh"
#include "wgmma_sm90/toeplitz.cuh"
#include "wgmma_sm90/triangle.cuh"
#include "wgmma_sm90/weights_f32.cuh"

namespace trigen::wgmma_sm90 {

// k blocks that only the other warpgroup multiplies: A's rows are not loaded for them and the loading thread
// releases them, where that is safe (skips_blocks). Elsewhere each warpgroup waits for them and releases them
// itself. (In a cluster each block would have to know that the other one's stage is free.)
template <Kernel C>
constexpr bool kSkips = skips_blocks(C.shape, C.config);

// Products of two row tiles that may ask the L2 to keep x until the second one has read it: where the output exceeds the
// L2, 137.6 to 128.6 us at grad_input 240,256,2048 (docs/experiments/wgmma_sm90.md). Others were not timed.
template <Kernel C>
constexpr bool kMayKeep = !Geometry<C>::kTokens && Geometry<C>::kCluster == 1 && C.config.tile_m == 128 &&
                          C.shape.T > 128 && C.shape.T <= 256;

// The loading thread; kBrings: all of its warpgroup, who bring the input.
template <Kernel C, bool kBrings, class Walk>
__device__ __forceinline__ void load_product(const Params& p, const Ring<Geometry<C>>& ring, Walk walk,
                                             const Panels& panels, const Weights<C>& weights, int diag,
                                             int blocks, unsigned rank, const TensorMap& map_w,
                                             const TensorMap& map_in, const TensorMap* map_residual,
                                             int thread) {
  using G = Geometry<C>;
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  constexpr Fill kFill = product_fill(C.shape);
  RingPosition<G::kStages> at;
  for (RowWorkTile work; next_work(walk, work);) {
    int head;
    const int panel = panels.first<G::kCluster, G::kBoxes>(work.column, head, rank);
    const int first = work.row * C.config.tile_m;
    int batch[G::kBoxes], feature[G::kBoxes];
#pragma unroll
    for (int i = 0; i < G::kBoxes; ++i) panels.locate<G::kBoxFeatures>(panel + i, batch[i], feature[i]);
    int head_in = head;  // of the input's map
    if constexpr (kHeads<C> && !kBrings) {
      const HeadPlaces places(input_of<C>(p), p.H, C.shape.D);
      head_in = places.axis(head);
#pragma unroll
      for (int i = 0; i < G::kBoxes; ++i) feature[i] += places.column(head);
    }
    if constexpr (multiplies_residual(C.shape)) {  // a stage for each warpgroup's 64 rows
#pragma unroll 1
      for (int group = 0; group < (work.stores ? G::kConsumers : 0); ++group) {
        ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
        const unsigned full = ring.full(at.stage);
        ptx::mbarrier_arrive_expect(full, G::kPanels * kPanelBytes);
#pragma unroll
        for (int i = 0; i < G::kBoxes; ++i)
          ptx::tma_load(ring.b(at.stage) + i * G::kBoxBytes, *map_residual, full,
                        G::kTokens ? first + 64 * group : feature[i],
                        G::kTokens ? feature[i] : first + 64 * group, head, batch[i]);
        at.advance();
      }
    }
    if constexpr (kBegins<C>) work.begin = weights.begin(first);
    const int end = slices(C.config) ? work.end : longest_k_range<C>(first, diag, blocks).blocks;
    int k_blocks[G::kConsumers];
#pragma unroll
    for (int i = 0; i < G::kConsumers; ++i) k_blocks[i] = KRange(kFill, first + 64 * i, diag, blocks).blocks;
    for (int block = work.begin; block < end; ++block) {
      const int k = kPanel * (kFill == Fill::kLower ? block : blocks - 1 - block);
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      const unsigned full = ring.full(at.stage);
      const auto unread = [&](int group) { return kSkips<C> && block >= k_blocks[group]; };
      int skipped = 0;
#pragma unroll
      for (int i = 0; i < G::kConsumers; ++i) skipped += unread(i) ? 1 : 0;
      if constexpr (kBrings) {
        bring_panels<C>(input_of<C>(p), panels, panel, head, p.B, k, persistent::Extents<C>(p).tokens,
                        ring.b(at.stage), thread);
        if (thread > 0) {
          at.advance();
          continue;
        }
      }
      ptx::mbarrier_arrive_expect(full, G::kStageBytes - skipped * (G::kBytesA / G::kConsumers) -
                                            (kBrings ? G::kPanels * kPanelBytes : 0));
      if (kSkips<C> && skipped > 0) ring.release_unread(at.stage, 4 * skipped);
      if constexpr (G::kNumbers) {
      } else if constexpr (G::kF32Weights) {
#pragma unroll
        for (int i = 0; i < G::kConsumers / G::kCluster; ++i) {
          const int group = i + static_cast<int>(rank);
          if (unread(group)) continue;
          load_f32_weights<C>(ring.a(at.stage) + group * 2 * kPanelBytes, map_w, full, first + 64 * group, k,
                              head);
        }
      } else if constexpr (G::kCluster == 1) {
#pragma unroll
        for (int i = 0; i < G::kConsumers; ++i) {
          if (unread(i)) continue;
          const int m = first + 64 * i, s = kTransposed ? m : k, t = kTransposed ? k : m;
          ptx::tma_load(ring.a(at.stage) + i * kPanelBytes, map_w, full, weights.column(s, t), weights.row(t),
                        0, head);
        }
      } else {
        const int m = first + 64 * static_cast<int>(rank), s = kTransposed ? m : k, t = kTransposed ? k : m;
        ptx::tma_load_multicast(ring.a(at.stage) + rank * kPanelBytes, map_w, full, 3, weights.column(s, t),
                                weights.row(t), 0, head);
      }
#pragma unroll
      for (int i = 0; i < (kBrings ? 0 : G::kBoxes); ++i) {
        const unsigned box = ring.b(at.stage) + i * G::kBoxBytes;
        if constexpr (kMayKeep<C>)
          ptx::tma_load(box, map_in, full, feature[i], k, head_in, batch[i],
                        persistent::output_exceeds_l2<C>(p) && persistent::output_has_whole_sectors<C>(p));
        else
          ptx::tma_load(box, map_in, full, G::kTokens ? k : feature[i], G::kTokens ? feature[i] : k, head_in,
                        batch[i]);
      }
      at.advance();
    }
  }
}

// A 64 x 64 block of A that crosses the diagonal, as fragments of m64k16 steps, with zeros outside the
// triangle. `distance`: the block's first row + diag - its first k, in elements.
template <Kernel C>
__device__ __forceinline__ void load_masked(unsigned (&a)[4][4], unsigned source, int distance, unsigned warp,
                                            unsigned lane) {
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned line = kTransposed ? 16 * i + lane % 8 + lane / 16 * 8 : 16 * warp + lane % 16;
    const unsigned chunk = kTransposed ? 2 * warp + lane / 8 % 2 : 2 * i + lane / 16;
    const unsigned address = source + line * 128 + ((chunk ^ (line & 7)) << 4);
    if constexpr (kTransposed)
      ptx::ldmatrix_x4_trans(a[i], address);
    else
      ptx::ldmatrix_x4(a[i], address);
  }
  mask_fragments<product_fill(C.shape)>(a, distance + static_cast<int>(16 * warp + lane / 4 - lane % 4 * 2));
}

// Products of one row tile by one warpgroup, k blocks [begin, range.blocks) of `blocks` in all. On return
// they are complete and their stages released. `diagonal`: the warpgroup's first row + diag, the k at which
// that row crosses the diagonal; `accumulate`: 1 where `sum` has sums already; `in_flight`: the stage that
// the newest unfinished products read, or -1.
template <Kernel C>
__device__ __forceinline__ void multiply_weights(float (&sum)[C.config.tile_n / 2],
                                                 const Ring<Geometry<C>>& ring,
                                                 RingPosition<C.config.stages>& at, int begin,
                                                 const KRange& range, int diagonal, int blocks,
                                                 unsigned group, unsigned warp, unsigned lane, int accumulate,
                                                 int in_flight) {
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  constexpr Fill kFill = product_fill(C.shape);
  constexpr DType kType = C.shape.dtype;
  constexpr int kN = C.config.tile_n;
  constexpr int kStepA = kTransposed ? 2048 >> 4 : 32 >> 4;  // 16 elements of k, in units of the descriptor
  constexpr int kStepB = Geometry<C>::kStepB, kMajorB = Geometry<C>::kMajorB;
  for (int block = begin; block < range.unmasked_blocks; ++block) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned long long a = ptx::descriptor(ring.a(at.stage) + group * kPanelBytes, kPanelBytes);
    const unsigned long long b = Geometry<C>::descriptor_b(ring.b(at.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ptx::wgmma_ss<kType, kN, kTransposed, kMajorB>(sum, a + i * kStepA, b + i * kStepB,
                                                     accumulate | (block - begin) | i);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (in_flight >= 0) ring.release(in_flight, lane);
    in_flight = at.stage;
    at.advance();
  }
  const int masked =
      slices(C.config) || kBegins<C> ? schedule::max(begin, range.unmasked_blocks) : range.unmasked_blocks;
  for (int block = masked; block < range.blocks; ++block) {
    const int k = kPanel * (kFill == Fill::kLower ? block : blocks - 1 - block);
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    unsigned a[4][4];
    load_masked<C>(a, ring.a(at.stage) + group * kPanelBytes, diagonal - k, warp, lane);
    const unsigned long long b = Geometry<C>::descriptor_b(ring.b(at.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ptx::wgmma_rs<kType, kN, kMajorB>(sum, a[i], b + i * kStepB, accumulate | (block - begin) | i);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (in_flight >= 0) ring.release(in_flight, lane);
    in_flight = -1;
    ptx::wgmma_wait<0>();  // the next block overwrites A's registers
    ring.release(at.stage, lane);
    at.advance();
  }
  ptx::wgmma_wait<0>();
  if (in_flight >= 0) ring.release(in_flight, lane);
}

// The residual's 64 rows of each multiplying warpgroup, a stage each: the warpgroup's own ones become its
// sums, as the product of the identity and them. The stage that this unfinished product reads.
template <Kernel C>
__device__ __forceinline__ int multiply_residual(float (&sum)[C.config.tile_n / 2],
                                                 const Ring<Geometry<C>>& ring,
                                                 RingPosition<C.config.stages>& at, unsigned group,
                                                 unsigned warp, unsigned lane) {
  constexpr DType kType = C.shape.dtype;
  constexpr unsigned kOne = kType == DType::kBF16 ? 0x3F80 : 0x3C00;
  const unsigned row = lane / 4, k = lane % 4 * 2;
  const unsigned diagonal = row == k ? kOne : row == k + 1 ? kOne << 16 : 0;
  int in_flight = -1;
#pragma unroll
  for (unsigned owner = 0; owner < Geometry<C>::kConsumers; ++owner) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    if (owner == group) {
      const unsigned long long b = Geometry<C>::descriptor_b(ring.b(at.stage));
      unsigned a[4][4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {  // rows and k of 16 i to 16 i + 15: warp i's
        a[i][0] = a[i][3] = warp == i ? diagonal : 0;
        a[i][1] = a[i][2] = 0;
        ptx::pin(a[i]);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ptx::wgmma_rs<kType, C.config.tile_n, Geometry<C>::kMajorB>(sum, a[i], b + i * Geometry<C>::kStepB,
                                                                    i);
      ptx::wgmma_commit();
      in_flight = at.stage;
    } else {
      persistent::stay_together<Geometry<C>>();
      ring.release(at.stage, lane);
    }
    // The other warpgroups' stages and the first one of weights come before this one is released.
    if (Geometry<C>::kStages <= Geometry<C>::kConsumers && in_flight >= 0) {
      ptx::wgmma_wait<0>();
      ring.release(in_flight, lane);
      in_flight = -1;
    }
    at.advance();
  }
  return in_flight;
}

// One multiplying warpgroup.
template <Kernel C, class Walk>
__device__ __forceinline__ void multiply_product(const Params& p, const Ring<Geometry<C>>& ring, Walk walk,
                                                 const Panels& panels, const Weights<C>& weights, int tokens,
                                                 int diag, int blocks, unsigned rank, unsigned group,
                                                 const TensorMap& map_out) {
  using G = Geometry<C>;
  constexpr Fill kFill = product_fill(C.shape);
  constexpr int kN = C.config.tile_n;
  // Known at compile time for the usual triangles: every row has a weight.
  constexpr bool kEmptyRows =
      C.shape.T == 0 || (C.shape.fill == Fill::kLower ? C.shape.diag < 0 : C.shape.diag > 0);
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  RingPosition<G::kStages> at;
  constexpr bool kExchanges = exchanges(C.shape);
  auto output = [&] {
    if constexpr (kHeads<C>)
      return HeadOutput<C>(ring, C.shape.op == Op::kGradInput ? p.x : p.y, p.B, p.H, tokens, group);
    else if constexpr (kExchanges)
      return ExchangedPanels<C>(ring, group);
    else
      return persistent::OutputPanels<G>(ring, group);
  }();
  if constexpr (G::kNumbers) Numbers<C>(ring).load(p, tokens);
  float sum[kN / 2];

  for (RowWorkTile work; next_work(walk, work);) {
    const int first = work.row * C.config.tile_m + 64 * static_cast<int>(group);
    if constexpr (kBegins<C>) work.begin = weights.begin(work.row * C.config.tile_m);
    const int total = longest_k_range<C>(work.row * C.config.tile_m, diag, blocks).blocks;
    KRange range(kFill, first, diag, blocks);
    const bool any = range.blocks > 0;
    if constexpr (slices(C.config)) range.end_at(work.end);
    const int accumulate = multiplies_residual(C.shape) && work.stores;
    int in_flight = -1;
    if constexpr (multiplies_residual(C.shape))
      if (work.stores) in_flight = multiply_residual<C>(sum, ring, at, group, warp, lane);
    int head;
    const int panel = panels.first<G::kCluster, G::kBoxes>(work.column, head, rank);
    if constexpr (G::kNumbers) {
      multiply_numbers<C>(sum, ring, at, Numbers<C>(ring).of_head(head), work.begin, range, first, blocks,
                          warp, lane, accumulate, in_flight);
    } else if constexpr (G::kF32Weights)
      multiply_f32_weights<C>(sum, ring, at, work.begin, range, first + diag, blocks, group, warp, lane,
                              accumulate, in_flight);
    else
      multiply_weights<C>(sum, ring, at, work.begin, range, first + diag, blocks, group, warp, lane,
                          accumulate, in_flight);
    if constexpr (slices(C.config)) {
      const persistent::SentSums<G, kN / 2> sent(ring);
      if (!work.stores) {
        sent.send(sum, work, ptx::cluster_rank());
        continue;
      }
      sent.add(sum, work);
    } else {
      for (int block = range.blocks; block < total; ++block) {  // only the other warpgroup multiplies these
        if constexpr (!kSkips<C>) {
          ptx::mbarrier_wait(ring.full(at.stage), at.parity);
          persistent::stay_together<G>();
          ring.release(at.stage, lane);
        }
        at.advance();
      }
    }

    // Rows without any weight have no sum. (Zeros written into `sum` would make the compiler keep it twice.)
    const RowEpilogue<C> finish(p, head, tokens, first + static_cast<int>(16 * warp + lane / 4),
                                !kEmptyRows || multiplies_residual(C.shape) || any);
#pragma unroll
    for (int i = 0; i < G::kPanels; ++i) {
      if constexpr (kHeads<C>) {
        output.store(
            sum + 32 * i, [&](const float* v, unsigned(&r)[2]) { finish(v, nullptr, nullptr, r, nullptr); },
            panels, panel + i * G::kParts, head, HeadPlaces(input_of<C>(p), p.H, C.shape.D).skew(head),
            first + static_cast<int>(16 * warp));
      } else if constexpr (kExchanges) {
        output.store(sum + 32 * i, finish);
      } else {
        output.store(
            sum + 32 * i,
            [&](const float* v, int, unsigned(&r)[2]) { finish(v, nullptr, nullptr, r, nullptr); },
            [&](int part, unsigned box) {
              int batch, feature;
              panels.locate<G::kBoxFeatures>(panel + i * G::kParts + part, batch, feature);
              ptx::tma_store(map_out, box, G::kTokens ? first : feature, G::kTokens ? feature : first, head,
                             batch, persistent::output_eviction<C>(p));
            });
      }
    }
  }
  if constexpr (!kExchanges && !kHeads<C>) output.finish();
}

template <Kernel C>
__device__ __forceinline__ auto walk_of_block(int rows, int columns, int diag, int blocks) {
  if constexpr (slices(C.config)) {
    const int cluster = static_cast<int>(blockIdx.x) / C.config.cluster, number = cluster / columns;
    return persistent::Slices(RowPair(product_fill(C.shape), number, rows, diag, blocks, C.config.cluster,
                                      sending(C.shape, C.config)),
                              cluster - number * columns, static_cast<int>(ptx::cluster_rank()));
  } else {
    return persistent::scheduler_of_block<C>(rows, columns);
  }
}

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p, const TensorMap& map_w, const TensorMap& map_in,
                                            const OutputMaps& maps) {
  using G = Geometry<C>;
  const persistent::Extents<C> z(p);
  const int blocks = (z.tokens + kPanel - 1) / kPanel;
  const Panels panels{schedule::ceil_div(persistent::reached_features(C.config, z.features), G::kBoxFeatures),
                      column_units(C.config, p.B, z.features), persistent::heads_in_turn(z.heads, z.tokens)};
  const Weights<C> weights(z, blocks);
  const unsigned rank = persistent::rank_in_cluster<G>();
  const auto walk = walk_of_block<C>(persistent::row_tiles(C.config, z.tokens), z.heads * panels.head_units,
                                     z.diag, blocks);
  const Ring<G> ring = persistent::ring_of_block<G>();
  persistent::prepare<G>(
      [&] {
        if constexpr (exchanges(C.shape))
          for (unsigned group = 0; group < G::kConsumers; ++group) PanelBarriers<C>(ring, group).init();
        if constexpr (slices(C.config)) persistent::SentSums<G, C.config.tile_n / 2>(ring).init();
        ring.init();
      },
      map_w, map_in, *maps.output);
  if constexpr (slices(C.config))
    ptx::cluster_sync();  // the other blocks have begun, and their barriers are ready
  // Each thread that reads operands or writes outputs waits, for the launch that packs W and for what the
  // stream ran before. Only then may the next launch start: it knows of this one's wait for those before.
  persistent::split_roles<G>(
      [&](unsigned thread) {
        if constexpr (kHeads<C>) {
          if (!HeadPlaces(input_of<C>(p), p.H, C.shape.D).alike) {
            ptx::wait_for_launches_before();
            load_product<C, true>(p, ring, walk, panels, weights, z.diag, blocks, rank, map_w, map_in,
                                  maps.residual, static_cast<int>(thread));
            return;
          }
        }
        if (thread == 0) {
          prefetch_first<C>(p, walk, panels, weights, z.diag, blocks, rank, map_w, map_in);
          ptx::wait_for_launches_before();
          load_product<C, false>(p, ring, walk, panels, weights, z.diag, blocks, rank, map_w, map_in,
                                 maps.residual, 0);
        }
        if constexpr (exchanges(C.shape)) {  // one of the next warps for each multiplying warpgroup
          if (thread % 32 == 0 && thread > 0 && thread <= 32 * G::kConsumers) {
            ptx::wait_for_launches_before();
            move_panels<C>(ring, walk, panels, rank, thread / 32 - 1, maps);
          }
        }
      },
      [&](unsigned group) {
        ptx::wait_for_launches_before();
        ptx::let_next_launch_start();
        multiply_product<C>(p, ring, walk, panels, weights, z.tokens, z.diag, blocks, rank, group,
                            *maps.output);
      });
  if constexpr (slices(C.config)) ptx::cluster_sync();  // no block may leave while the other one sends to it
}

}  // namespace trigen::wgmma_sm90
