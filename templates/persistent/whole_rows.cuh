// gram's tiles of 128 x 128 whose sums one warpgroup has, out as rows of 128 elements in both triangles: threads store them
// from shared memory, every row whole. A box of TMA has 64: of rows that begin inside a sector of 32 bytes it cuts twice as many.
#pragma once

#include "persistent/output_panels.cuh"
#include "persistent/weight_store.cuh"

namespace trigen::persistent::weight {

// The 16-bit elements of 64 x 64, two in a word: [8 columns][8 rows] of a warp's 16 rows.
struct PanelWords {
  unsigned words[8][2];
};

// Into a panel as they are, or transposed: stmatrix at the 128-byte swizzle.
__device__ __forceinline__ void stage_panel(unsigned panel, const PanelWords& from) {
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, line = 16 * warp + lane % 16;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    ptx::stmatrix_x4(panel + line * 128 + (((2 * j + lane / 16) ^ (line & 7)) << 4), from.words[2 * j][0],
                     from.words[2 * j][1], from.words[2 * j + 1][0], from.words[2 * j + 1][1]);
}
__device__ __forceinline__ void stage_transposed(unsigned panel, const PanelWords& from) {
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    ptx::stmatrix_x4_trans(
        panel + (16 * j + lane % 8 + lane / 16 * 8) * 128 + (((2 * warp + lane / 8 % 2) ^ (lane & 7)) << 4),
        from.words[2 * j][0], from.words[2 * j][1], from.words[2 * j + 1][0], from.words[2 * j + 1][1]);
}
// 64 x 64 around the diagonal: what the lower (upper) triangle has, in both.
template <bool kLower>
__device__ __forceinline__ void stage_symmetric(unsigned panel, const PanelWords& from) {
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, line = 16 * warp + lane % 16;
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) {
    if (kLower ? j > warp : j < warp) continue;
    unsigned left[2] = {from.words[2 * j][0], from.words[2 * j][1]},
             right[2] = {from.words[2 * j + 1][0], from.words[2 * j + 1][1]};
    if (j == warp) {
      left[0] = symmetric_square<kLower>(left[0], lane);
      right[1] = symmetric_square<kLower>(right[1], lane);
      if (kLower)
        right[0] = ptx::movmatrix_trans(left[1]);
      else
        left[1] = ptx::movmatrix_trans(right[0]);
    } else {
      ptx::stmatrix_x4_trans(
          panel + (16 * j + lane % 8 + lane / 16 * 8) * 128 + (((2 * warp + lane / 8 % 2) ^ (lane & 7)) << 4),
          left[0], left[1], right[0], right[1]);
    }
    ptx::stmatrix_x4(panel + line * 128 + (((2 * j + lane / 16) ^ (line & 7)) << 4), left[0], left[1],
                     right[0], right[1]);
  }
}

// 64 rows of 128 elements in two panels beside each other to D's from (row, column) on, by a warpgroup: half a warp has a row.
template <Kernel C>
__device__ __forceinline__ void store_rows(const Params& p, unsigned panels, int head, int row, int column,
                                           int tokens) {
  const unsigned thread = threadIdx.x % 128, chunk = thread % 16;
  const auto line = static_cast<int>(thread / 16);
  const bool any = column + static_cast<int>(8 * chunk) < tokens;
  auto* const to = gram::element<C>(p, head, row + line, column + static_cast<int>(8 * chunk));
  const unsigned from = panels + chunk / 8 * kPanelBytes + line * 128 + ((chunk % 8 ^ (line & 7)) << 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    unsigned words[4];
    ptx::load_shared<16>(words, from + i * (8 * 128));
    if (any && row + line + 8 * i < tokens) ptx::store_global<16>(to + 8 * i * p.w_row, words);
  }
}

// A tile from (row, column) on.
template <Kernel C>
__device__ __forceinline__ void store_whole_tile(const Params& p, unsigned panels, unsigned barrier,
                                                 const float (&sum)[2][64], int head, int row, int column,
                                                 int tokens) {
  constexpr bool kLower = C.shape.fill == Fill::kLower;
  const auto lane = static_cast<int>(threadIdx.x % 32), own = static_cast<int>(threadIdx.x / 32 % 4 * 16) + lane / 4;
  const bool diagonal = row == column;
  PanelWords of[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (diagonal && (kLower ? i > half : i < half)) continue;
      const int first = column + 64 * i + lane % 4 * 2;
      const gram::PanelOfC<C> addend(p, head, row + 64 * half + own, first, tokens);
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float* const s = &sum[half][32 * i + 4 * j + 2 * e];
          float v0 = s[0], v1 = s[1];
          addend.values(p, row + 64 * half + own, first, j, e, v0, v1);
          of[half][i].words[j][e] = pack<C.shape.wdtype>(v0, v1);
        }
    }
  const auto send = [&](int to_row, int to_column) {
    ptx::named_barrier(barrier, 128);
    store_rows<C>(p, panels, head, to_row, to_column, tokens);
    ptx::named_barrier(barrier, 128);
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!diagonal) {
      stage_panel(panels, of[half][0]);
      stage_panel(panels + kPanelBytes, of[half][1]);
    } else if (half == 0) {
      stage_symmetric<kLower>(panels, of[0][0]);
      if (kLower)
        stage_transposed(panels + kPanelBytes, of[1][0]);
      else
        stage_panel(panels + kPanelBytes, of[0][1]);
    } else {
      if (kLower)
        stage_panel(panels, of[1][0]);
      else
        stage_transposed(panels, of[0][1]);
      stage_symmetric<kLower>(panels + kPanelBytes, of[1][1]);
    }
    send(row + 64 * half, column);
  }
  if (diagonal) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    stage_transposed(panels, of[0][i]);
    stage_transposed(panels + kPanelBytes, of[1][i]);
    send(column + 64 * i, row);
  }
}

}  // namespace trigen::persistent::weight
