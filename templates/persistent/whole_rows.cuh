// gram's tiles of 128 x 128 whose sums one warpgroup has, out as rows of 128 elements in both triangles: its threads store them from
// shared memory. A box of TMA has 64, and of rows that begin inside a sector of 32 bytes cuts twice as many, for which the L2 makes all
// wait. Where the products take as long, boxes, which no thread waits for, are faster (docs/experiments/gram.md).
#pragma once

#include "persistent/weight_panels.cuh"

namespace trigen::persistent::weight {

inline constexpr int kWholeRowsDepth = 128;  // features, at most
template <Kernel C>
inline constexpr bool kStoresRows = takes_turns(C.config) && C.config.cluster == 1 &&
                                    (C.shape.op == Op::kGram) && C.shape.mirror&& kStagedOutput<C> &&
                                    (C.shape.T % 16 == 8) && C.shape.D > 0 && C.shape.D <= kWholeRowsDepth;

// 64 rows of 128 elements in two panels beside each other to D's from (row, column) on: half a warp has a row.
template <Kernel C>
__device__ __forceinline__ void store_rows(const Params& p, unsigned panels, int head, int row, int column,
                                           int tokens) {
  const unsigned thread = threadIdx.x % 128, chunk = thread % 16;
  const auto line = static_cast<int>(thread / 16), at = column + static_cast<int>(8 * chunk);
  auto* const to = gram::element<C>(p, head, row + line, at);
  const unsigned from = panels + chunk / 8 * kPanelBytes + line * 128 + ((chunk % 8 ^ (line & 7)) << 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    unsigned words[4];
    ptx::load_shared<16>(words, from + i * (8 * 128));
    if (at < tokens && row + line + 8 * i < tokens) ptx::store_global<16>(to + 8 * i * p.w_row, words);
  }
}

// A tile from (row, column) on, by a warpgroup with two panels at `panels` and a named barrier of its own.
template <Kernel C>
__device__ __forceinline__ void store_whole_tile(const Params& p, unsigned panels, unsigned barrier,
                                                 const float (&sum)[2][C.config.tile_n / 2], int head,
                                                 int row, int column, int tokens) {
  static_assert(C.config.tile_n == 2 * kPanel && store_panels(C.config) >= 2, "a row in two panels");
  constexpr bool kLower = C.shape.fill == Fill::kLower;
  const auto lane = static_cast<int>(threadIdx.x % 32),
             own = static_cast<int>(threadIdx.x / 32 % 4 * 16) + lane / 4;
  const bool diagonal = row == column;
  PanelWords of[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (diagonal && (kLower ? i > half : i < half)) continue;
      const int first = column + kPanel * i + lane % 4 * 2;
      const gram::PanelOfC<C> addend(p, head, row + kPanel * half + own, first, tokens);
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float v0 = sum[half][32 * i + 4 * j + 2 * e], v1 = sum[half][32 * i + 4 * j + 2 * e + 1];
          addend.values(p, row + kPanel * half + own, first, j, e, v0, v1);
          of[half][i].words[j][e] = pack<C.shape.wdtype>(v0, v1);
        }
    }
  const auto send = [&](int to_row, int to_column) {
    ptx::named_barrier(barrier, 128);
    store_rows<C>(p, panels, head, to_row, to_column, tokens);
    ptx::named_barrier(barrier, 128);
  };
  const auto stage_own = [&](unsigned panel, const PanelWords& from) {  // a panel around the diagonal
    stage_symmetric<kLower>(panel, [&](unsigned j, unsigned(&left)[2], unsigned(&right)[2]) {
#pragma unroll
      for (int e = 0; e < 2; ++e) left[e] = from.words[2 * j][e], right[e] = from.words[2 * j + 1][e];
    });
  };
  const unsigned right = panels + kPanelBytes;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!diagonal) {
      stage_panel(panels, of[half][0]);
      stage_panel(right, of[half][1]);
    } else {
      const PanelWords& beside = kLower ? of[1][0] : of[0][1];
      if (half == (kLower ? 0 : 1))
        stage_transposed(half == 0 ? right : panels, beside);
      else
        stage_panel(half == 0 ? right : panels, beside);
      stage_own(half == 0 ? panels : right, of[half][half]);
    }
    send(row + kPanel * half, column);
  }
  if (diagonal) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    stage_transposed(panels, of[0][i]);
    stage_transposed(right, of[1][i]);
    send(column + kPanel * i, row);
  }
}

}  // namespace trigen::persistent::weight
