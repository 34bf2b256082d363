// grad_weight: dW[t, s] = sum over (b, d) of dy[b, t, d] x[b, s, d], for (t, s) in the triangle. Both
// operands are K-major. wgmma_sm90.h (Shares) says which block works on what.
#pragma once

#include "params.h"
#include "ptx/wgmma.cuh"
#include "types.cuh"
#include "wgmma_sm90/pipeline.cuh"
#include "wgmma_sm90/store.cuh"
#include "wgmma_sm90/triangle.cuh"

namespace trigen::wgmma_sm90 {

// Writes dW[row, column] and dW[row, column + 1] where they lie in the triangle and in the matrix. `column`
// is even.
template <Kernel C>
__device__ __forceinline__ void write_pair(const Params& p, int head, int tokens, int diag, int row,
                                           int column, float v0, float v1) {
  constexpr Shape s = C.shape;
  constexpr DType kW = s.wdtype;
  constexpr bool kLower = s.fill == Fill::kLower;
  const bool in0 = row < tokens && column < tokens && (kLower ? column <= row + diag : column >= row + diag);
  const bool in1 =
      row < tokens && column + 1 < tokens && (kLower ? column + 1 <= row + diag : column + 1 >= row + diag);
  if (!in0 && !in1) return;
  auto* const to = static_cast<Storage<kW>*>(p.w) + (head * p.w_head + row * p.w_row + column);
  if constexpr (s.accumulate) {
    if (in0) v0 += to_float<kW>(to[0]);
    if (in1) v1 += to_float<kW>(to[1]);
  }
  if (in0 && in1) {
    if constexpr (kW == DType::kF32)
      *reinterpret_cast<float2*>(to) = make_float2(v0, v1);
    else
      *reinterpret_cast<unsigned*>(to) = pack<kW>(v0, v1);
  } else if (in0) {
    to[0] = from_float<kW>(v0);
  } else {
    to[1] = from_float<kW>(v1);
  }
}

template <Kernel C>
__device__ __forceinline__ Shares shares_of(const Params& p, int tokens, int features, int diag, int blocks) {
  return Shares(tokens, diag, C.shape.fill == Fill::kLower, p.B * ((features + kPanel - 1) / kPanel),
                C.config.split_k, blocks, C.config.tile_n);
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_grad_weight(const Ring<Geometry<C>>& ring, const Shares& shares,
                                                 int heads, int features, const TensorMap& map_dy,
                                                 const TensorMap& map_x) {
  const int batch_blocks = (features + kPanel - 1) / kPanel;
  RingPosition<C.config.stages> at;
  for (int head = 0; head < heads; ++head) {
    Pieces pieces(shares, static_cast<int>(blockIdx.x));
    for (Piece piece; pieces.next(piece);) {
      const int panels = piece.narrow ? 2 : C.config.tile_n / kPanel;
      int batch = piece.begin / batch_blocks;
      int feature = (piece.begin - batch * batch_blocks) * kPanel;
      for (int block = piece.begin; block < piece.end; ++block) {
        ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
        const unsigned full = ring.full(at.stage);
        ptx::mbarrier_arrive_expect(full, (2 + panels) * kPanelBytes);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          ptx::tma_load(ring.a(at.stage) + i * kPanelBytes, map_dy, full, feature, 128 * piece.row + 64 * i,
                        head, batch);
#pragma unroll
        for (int i = 0; i < C.config.tile_n / kPanel; ++i)
          if (i < panels)
            ptx::tma_load(ring.b(at.stage) + i * kPanelBytes, map_x, full, feature,
                          128 * piece.column + 64 * i, head, batch);
        at.advance();
        feature += kPanel;
        if (feature >= features) {
          feature = 0;
          ++batch;
        }
      }
    }
  }
}

// The k blocks of one piece: 64 rows by kN columns.
template <Kernel C, int kN>
__device__ __forceinline__ void multiply_piece(float (&sum)[kN / 2], const Ring<Geometry<C>>& ring,
                                               RingPosition<C.config.stages>& at, int count, unsigned group,
                                               unsigned lane) {
  int held = -1;
  for (int block = 0; block < count; ++block) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned long long a = ptx::descriptor(ring.a(at.stage) + group * kPanelBytes, kPanelBytes);
    const unsigned long long b = ptx::descriptor(ring.b(at.stage), kPanelBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::wgmma_ss<C.shape.dtype, kN, 0, 0>(sum, a + 2 * i, b + 2 * i, block | i);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (held >= 0) ring.release(held, lane);
    held = at.stage;
    at.advance();
  }
  ptx::wgmma_wait<0>();
  if (held >= 0) ring.release(held, lane);
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_grad_weight(const Params& p, const Ring<Geometry<C>>& ring,
                                                     const Shares& shares, int heads, int tokens, int diag,
                                                     unsigned group, const TensorMap& map_dw) {
  constexpr Shape s = C.shape;
  // A whole tile inside the triangle needs no mask: it goes out through shared memory and the copy engine.
  constexpr bool kStaged = s.wdtype == s.dtype && !s.accumulate;
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  RingPosition<C.config.stages> at;
  OutputPanels<C> output(ring, group);
  constexpr int kN = C.config.tile_n;
  float sum[kN / 2];
  for (int head = 0; head < heads; ++head) {
    Pieces pieces(shares, static_cast<int>(blockIdx.x));
    for (Piece piece; pieces.next(piece);) {
      if (kN == 256 && piece.narrow)
        multiply_piece<C, 128>(reinterpret_cast<float(&)[64]>(sum), ring, at, piece.end - piece.begin, group,
                               lane);
      else
        multiply_piece<C, kN>(sum, ring, at, piece.end - piece.begin, group, lane);

      const bool inside = s.fill == Fill::kLower ? 128 * piece.column + kN - 1 <= 128 * piece.row + diag
                                                 : 128 * piece.column >= 128 * piece.row + 127 + diag;
      if (piece.slot >= 0) {
        // 16 bytes a thread, one thread after the other, as reduce_grad_weight reads them.
        float4* to = reinterpret_cast<float4*>(static_cast<float*>(p.workspace) + head * shares.workspace() +
                                               piece.slot) +
                     threadIdx.x;
#pragma unroll
        for (int i = 0; i < kN / 8; ++i)
          if (i < 16 || !piece.narrow)
            to[i * 256] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
      } else if (kStaged && inside) {
        const auto words = [](const float* v, int, unsigned(&r)[2]) {
          r[0] = pack<s.dtype>(v[0], v[1]);
          r[1] = pack<s.dtype>(v[2], v[3]);
        };
#pragma unroll
        for (int i = 0; i < kN / 64; ++i)
          if (i < 2 || !piece.narrow)
            output.store(sum + 32 * i, map_dw, 128 * piece.column + 64 * i,
                         128 * piece.row + 64 * static_cast<int>(group), 0, head, words);
      } else {
        const int row = 128 * piece.row + static_cast<int>(64 * group + 16 * warp + lane / 4);
        const int column = 128 * piece.column + static_cast<int>(lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < kN / 8; ++i) {
          if (i < 16 || !piece.narrow) {
            write_pair<C>(p, head, tokens, diag, row, column + 8 * i, sum[4 * i], sum[4 * i + 1]);
            write_pair<C>(p, head, tokens, diag, row + 8, column + 8 * i, sum[4 * i + 2], sum[4 * i + 3]);
          }
        }
      }
    }
  }
  output.finish();
}

template <Kernel C>
__device__ __forceinline__ void run_grad_weight(const Params& p, const TensorMap& map_dy,
                                                const TensorMap& map_x, const TensorMap& map_dw) {
  using G = Geometry<C>;
  static_assert(
      C.config.tile_m == 128 && (C.config.tile_n == 128 || C.config.tile_n == 256) && G::kCluster == 1,
      "the tiles that Shares cuts");
  static_assert(C.config.split_k >= 1, "1: no tile is shared but the narrow ones");
  static_assert(!C.shape.bias && !C.shape.zero_outside, "neither grad_bias nor zeros outside the triangle");
  const int tokens = C.shape.T ? C.shape.T : p.T;
  const int features = C.shape.D ? C.shape.D : p.D;
  const int heads = C.shape.H ? C.shape.H : p.H;
  const int diag = C.shape.T ? C.shape.diag : p.diag;
  const Shares shares = shares_of<C>(p, tokens, features, diag, static_cast<int>(gridDim.x));
  const Ring<G> ring = start<C>(map_dy, map_x, map_dw);
  const unsigned group = threadIdx.x / 128;
  if (group == G::kConsumers) {
    ptx::release_registers<load_registers(C.config)>();
    if (threadIdx.x == 128 * G::kConsumers) load_grad_weight<C>(ring, shares, heads, features, map_dy, map_x);
  } else {
    ptx::claim_registers<sum_registers(C.config)>();
    multiply_grad_weight<C>(p, ring, shares, heads, tokens, diag, group, map_dw);
  }
}

}  // namespace trigen::wgmma_sm90
