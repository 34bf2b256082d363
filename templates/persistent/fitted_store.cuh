// What a fitted tile leaves (grad_weight.h): D's rows and, transposed, those of the other triangle, through the drained ring. Boxes of
// TMA have columns that end elsewhere: threads store rows from there, 16 bytes each.
#pragma once

#include "persistent/slice_geometry.cuh"
#include "ptx/movmatrix.cuh"
#include "ptx/stmatrix.cuh"

namespace trigen::persistent::weight {

// `kRows` rows of `kColumns` elements in shared memory from `from` on, to D's from (row, column) on, by all multiplying threads.
// Squares of 8 x 8 that lie in the other triangle stay out, and so do those on the diagonal where `strict`.
template <Kernel C, int kRows, int kColumns>
__device__ __forceinline__ void store_staged_rows(const Params& p, unsigned from, int head, int row,
                                                  int column, int tokens, bool lower, bool strict) {
  constexpr int kPieces = kColumns / 8, kThreads = 128 * consumers(C.config);
  constexpr int kTimes = schedule::ceil_div(kRows * kPieces, kThreads);
#pragma unroll
  for (int i = 0; i < kTimes; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads, line = at / kPieces,
              piece = at - line * kPieces, own = row + line, first = column + 8 * piece,
              above = first / 8 - own / 8;  // squares to the right of the diagonal's
    const bool kept = strict ? (lower ? above < 0 : above > 0) : (lower ? above <= 0 : above >= 0);
    if (line >= kRows || !kept || own >= tokens || first >= tokens) continue;
    unsigned words[4];
    ptx::load_shared<16>(words, from + line * fitted_pitch(kColumns) + 16 * piece);
    ptx::store_global<16>(gram::element<C>(p, head, own, first), words);
  }
}

// One multiplying warpgroup's 64 rows of the columns from 8 kFirst on, into both triangles' rows. `line`: the warp's first row.
template <Kernel C, int kFirst = 0>
__device__ __forceinline__ void stage_fitted(const Params& p, unsigned shared,
                                             const float (&sum)[C.config.tile_n / 2], const SlicedTile& tile,
                                             int tokens, unsigned line) {
  constexpr int kM = C.config.tile_m, kN = C.config.tile_n, kCount = schedule::min(8, kN / 8 - kFirst);
  const unsigned lane = threadIdx.x % 32, mirrored = shared + kM * fitted_pitch(kN);
  const int row = tile.row + static_cast<int>(line + lane / 4), column = tile.column + 8 * kFirst,
            first = column + static_cast<int>(lane % 4 * 2);
  const gram::PanelOfC<C, kCount> addend(p, tile.head, row, first, tokens);
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    unsigned words[2][2];  // [8 columns][8 rows]
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float v0 = sum[4 * (kFirst + i + j) + 2 * e], v1 = sum[4 * (kFirst + i + j) + 2 * e + 1];
        addend.values(p, row, first, i + j, e, v0, v1);
        words[j][e] = pack<C.shape.wdtype>(v0, v1);
        if (column + 8 * (i + j) == tile.row + static_cast<int>(line) + 8 * e)
          words[j][e] = symmetric_square<C.shape.fill == Fill::kLower>(words[j][e], lane);
      }
    const unsigned at = 8 * (kFirst + i);
    ptx::stmatrix_x4(shared + (line + lane % 16) * fitted_pitch(kN) + 2 * at + lane / 16 * 16, words[0][0],
                     words[0][1], words[1][0], words[1][1]);
    ptx::stmatrix_x4_trans(
        mirrored + (at + lane % 8 + lane / 16 * 8) * fitted_pitch(kM) + 2 * line + lane / 8 % 2 * 16,
        words[0][0], words[0][1], words[1][0], words[1][1]);
  }
  if constexpr (kFirst + 8 < kN / 8) stage_fitted<C, kFirst + 8>(p, shared, sum, tile, tokens, line);
}

// The tile of all multiplying warpgroups, which have done their products.
template <Kernel C>
__device__ __forceinline__ void store_fitted(const Params& p, unsigned shared,
                                             const float (&sum)[C.config.tile_n / 2], const SlicedTile& tile,
                                             int tokens) {
  constexpr int kM = C.config.tile_m, kN = C.config.tile_n, kGroups = consumers(C.config);
  constexpr bool kLower = C.shape.fill == Fill::kLower;
  stage_fitted<C>(p, shared, sum, tile, tokens, threadIdx.x / 32 * 16);
  ptx::named_barrier(kGroups + 1, 128 * kGroups);
  store_staged_rows<C, kM, kN>(p, shared, tile.head, tile.row, tile.column, tokens, kLower, false);
  store_staged_rows<C, kN, kM>(p, shared + kM * fitted_pitch(kN), tile.head, tile.column, tile.row, tokens,
                               !kLower, true);
}

}  // namespace trigen::persistent::weight
