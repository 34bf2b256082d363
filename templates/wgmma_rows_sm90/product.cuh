// forward and grad_input, turned: features are the rows of wgmma's product, tokens its columns.
//
//   forward     y[n, t]  = sum over s in the triangle of x[s, n] W[t, s]
//               A = x, cut out of rows as they lie; B = W, K-major
//   grad_input  dx[n, s] = sum over t in the triangle of dy[t, n] W[t, s]
//               A = dy; B = W, MN-major
//
// So x passes through registers, where a row may begin anywhere, and what TMA brings is packed W. Each block of k is
// multiplied by those panels of 64 tokens that reach it, one instruction for all of them.
#pragma once

#include "ptx/wgmma.cuh"
#include "wgmma_rows_sm90/output.cuh"
#include "wgmma_rows_sm90/triangle.cuh"

namespace trigen::wgmma_rows_sm90 {

// The loading warpgroup. Each thread has a piece of the same rows of every block of k; the ninth pieces are one for each thread.
template <Kernel C>
__device__ __forceinline__ void load_product(const Ring<Geometry<C>>& ring, TileScheduler walk,
                                             const Panels& panels, const Activations& in, int B,
                                             const persistent::Extents<C>& z, int blocks,
                                             const TensorMap& weights, int thread) {
  using G = Geometry<C>;
  constexpr int kOthers = kRowPieces - 1,
                kLines = kLoaders / kOthers;  // rows that the loaders bring at a time
  const int line = thread / kOthers, ninth_line = thread % kPanel;
  const unsigned to = line * kRowBytes + thread % kOthers * kPieceBytes,
                 ninth_to = thread * kRowBytes + kOthers * kPieceBytes;
  RingPosition<G::kStages> at;
  Unmasked before[2];          // the last two stages
  unsigned landed_phases = 0;  // bit n: parity of stage n's next masked block
  for (int row = 0, column = 0; walk.next(row, column);) {
    int head;
    const int panel = panels.first<1, G::kConsumers>(column, head, 0), first = row * C.config.tile_m;
    const auto piece = [&](int group, int own_line, int number) {
      return Piece(RowPanel(in, panels, panel + group, head, B, z.features), own_line, number);
    };
    const Piece own[2] = {piece(0, line, thread % kOthers), piece(G::kConsumers - 1, line, thread % kOthers)};
    const Piece ninth = piece(thread / kPanel % G::kConsumers, ninth_line, kOthers);
    const int end = blocks_reached<C>(first, 0, z.diag, blocks);
    for (int block = 0; block < end; ++block) {
      const int k = first_k<C>(block, blocks), count = panels_reached<C>(first, block, z.diag, blocks);
      const bool masks = crosses_diagonal<C>(first, count, block, z.diag, blocks);
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      const unsigned full = ring.full(at.stage);
      if (thread == 0) {
        const unsigned landed = masks ? G::landed(ring, at.stage) : full;
        ptx::mbarrier_arrive_expect(landed, count * kPanelBytes);
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          const int m = panel_token<C>(first, i);
          ptx::tma_load(ring.a(at.stage) + i * kPanelBytes, weights, landed, G::kTransposed ? m : k,
                        G::kTransposed ? k : m, 0, head);
        }
      }
      const int left = z.tokens - k;
#pragma unroll
      for (int group = 0; group < G::kConsumers; ++group) {
        const unsigned rows = ring.b(at.stage) + group * kRowsBytes + to;
        const char* from = own[group].from + 2 * k * in.row;
#pragma unroll
        for (int i = 0; i < kPanel; i += kLines) {
          ptx::cp_async<kPieceBytes>(rows + i * kRowBytes, from, i + line < left ? own[group].valid : 0);
          from += 2 * kLines * in.row;
        }
      }
      if (thread < kPanel * G::kConsumers)
        ptx::cp_async<kPieceBytes>(ring.b(at.stage) + ninth_to, ninth.from + 2 * k * in.row,
                                   ninth_line < left ? ninth.valid : 0);
      ptx::cp_async_arrive(full);
      if constexpr (G::kMasks) {
        finish_masked<C>(ring, before[0], thread);
        before[0] = before[1];
        before[1] = {at.stage, masks ? count : 0, first + z.diag - k, landed_phases >> at.stage & 1};
        if (masks) landed_phases ^= 1u << at.stage;
      }
      at.advance();
    }
  }
  if constexpr (G::kMasks) {
    finish_masked<C>(ring, before[0], thread);
    finish_masked<C>(ring, before[1], thread);
  }
}

// The products of those blocks of k that the first `kCount` panels of 64 tokens reach and that are not multiplied yet, then of those
// that fewer reach. On return they are complete and their stages released.
template <Kernel C, int kCount>
__device__ __forceinline__ void multiply_reached(float (&all)[C.config.tile_m / 2],
                                                 const Ring<Geometry<C>>& ring,
                                                 RingPosition<C.config.stages>& at,
                                                 const RowFragments<C>& fragments, int begin, int first,
                                                 int diag, int blocks, unsigned group, unsigned lane) {
  using G = Geometry<C>;
  constexpr int kN = kCount * kPanel;
  auto& sum = reinterpret_cast<float(&)[kN / 2]>(all);
  const int end = blocks_reached<C>(first, kCount - 1, diag, blocks);
  int in_flight = -1;
  unsigned a[2][2][4];
  for (int block = begin; block < end; ++block) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned source = ring.b(at.stage) + group * kRowsBytes;
    const unsigned long long b = ptx::descriptor(ring.a(at.stage), kPanelBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      fragments.load(a[half], source, half);
      ptx::pin(a[half][0]);
      ptx::pin(a[half][1]);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < 2; ++i)
        ptx::wgmma_rs<C.shape.dtype, kN, G::kTransposed>(sum, a[half][i], b + (2 * half + i) * G::kStepW,
                                                         block | half | i);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the half before: its registers are written next
      if (half == 0 && in_flight >= 0) ring.release(in_flight, lane);
    }
    in_flight = at.stage;
    at.advance();
  }
  ptx::wgmma_wait<0>();
  if (in_flight >= 0) ring.release(in_flight, lane);
  if constexpr (kCount > 1)
    multiply_reached<C, kCount - 1>(all, ring, at, fragments, schedule::max(begin, end), first, diag, blocks,
                                    group, lane);
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_product(const Params& p, const Ring<Geometry<C>>& ring,
                                                 TileScheduler walk, const Panels& panels,
                                                 const persistent::Extents<C>& z, int blocks,
                                                 unsigned group) {
  using G = Geometry<C>;
  constexpr bool kGradInput = C.shape.op == Op::kGradInput;
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const RowOutput<C> output(ring, group, warp, lane);
  RingPosition<G::kStages> at;
  float sum[C.config.tile_m / 2];
  for (int row = 0, column = 0; walk.next(row, column);) {
    int head;
    const int panel = panels.first<1, G::kConsumers>(column, head, 0) + static_cast<int>(group),
              first = row * C.config.tile_m;
    const auto rows = [&](const Activations& t) { return RowPanel(t, panels, panel, head, p.B, z.features); };
    const RowFragments<C> fragments(rows(kGradInput ? p.y : p.x), warp, lane);
    typename RowOutput<C>::Bias bias[G::kPanels];
#pragma unroll
    for (int i = 0; i < (RowOutput<C>::kEarlyBias ? G::kPanels : 0); ++i)
      bias[i].load(p, head, panel_token<C>(first, i), z.tokens, static_cast<int>(lane));
    multiply_reached<C, G::kPanels>(sum, ring, at, fragments, 0, first, z.diag, blocks, group, lane);
    const typename RowOutput<C>::Tensors tensors{rows(kGradInput ? p.x : p.y), rows(p.pre), rows(p.gate),
                                                 rows(p.residual)};
#pragma unroll
    for (int i = 0; i < G::kPanels; ++i) {
      const int token = panel_token<C>(first, i);
      if (token >= z.tokens) continue;
      output.store(p, tensors, sum + 32 * i, bias[i], head, token, z.tokens,
                   KRange(product_fill(C.shape), token, z.diag, blocks).blocks > 0);
    }
  }
}

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p, const TensorMap& weights) {
  using G = Geometry<C>;
  const persistent::Extents<C> z(p);
  const int blocks = schedule::ceil_div(z.tokens, kPanel);
  const Panels panels{schedule::ceil_div(z.features, kPanel), column_units(C.config, p.B, z.features),
                      persistent::heads_in_turn(z.heads, z.tokens)};
  const auto walk = persistent::scheduler_of_block<C>(persistent::row_tiles(C.config, z.tokens),
                                                      z.heads * panels.head_units);
  const Ring<G> ring = persistent::ring_of_block<G>();
  persistent::prepare<G>(
      [&] {
        for (int stage = 0; G::kMasks && stage < G::kStages; ++stage)
          ptx::mbarrier_init(G::landed(ring, stage), 1);
        ring.init(1 + kLoaders);
      },
      weights);
  persistent::split_roles<G>(
      [&](unsigned thread) {
        ptx::wait_for_launches_before();
        load_product<C>(ring, walk, panels, C.shape.op == Op::kGradInput ? p.y : p.x, p.B, z, blocks, weights,
                        static_cast<int>(thread));
      },
      [&](unsigned group) {
        ptx::wait_for_launches_before();
        ptx::let_next_launch_start();
        multiply_product<C>(p, ring, walk, panels, z, blocks, group);
      });
}

}  // namespace trigen::wgmma_rows_sm90
