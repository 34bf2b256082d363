// 64 x 64 sums of 16-bit output that a warpgroup stages on its own, on the way from registers to global
// memory.
#pragma once

#include "persistent/ring.cuh"
#include "persistent/staging.cuh"
#include "ptx/movmatrix.cuh"
#include "ptx/stmatrix.cuh"

namespace trigen::persistent {

// A square of 8 x 8 around the diagonal, as movmatrix has it: what its lower (upper) triangle has, in both.
template <bool kLower>
__device__ __forceinline__ unsigned symmetric_square(unsigned v, unsigned lane) {
  const unsigned mirrored = ptx::movmatrix_trans(v), row = lane / 4, column = lane % 4 * 2;
  const unsigned first = (kLower ? column > row : column < row) ? mirrored : v,
                 second = (kLower ? column + 1 > row : column + 1 < row) ? mirrored : v;
  return (first & 0xFFFF) | (second & 0xFFFF0000u);
}

// 64 x 64 elements of 16 bits, two in a word, of which a thread has those of its warp's 16 rows: [8 columns][8 rows].
struct PanelWords {
  unsigned words[8][2];
};

// Into a panel as they are, or transposed.
__device__ __forceinline__ void stage_panel(unsigned panel, const PanelWords& from) {
  const unsigned lane = threadIdx.x % 32, line = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    ptx::stmatrix_x4(panel + line * 128 + (((2 * j + lane / 16) ^ (line & 7)) << 4), from.words[2 * j][0],
                     from.words[2 * j][1], from.words[2 * j + 1][0], from.words[2 * j + 1][1]);
}
// Squares 2 j and 2 j + 1 of a row of them, `left` and `right`.
__device__ __forceinline__ void stage_pair_transposed(unsigned panel, unsigned j, const unsigned (&left)[2],
                                                      const unsigned (&right)[2]) {
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  ptx::stmatrix_x4_trans(
      panel + (16 * j + lane % 8 + lane / 16 * 8) * 128 + (((2 * warp + lane / 8 % 2) ^ (lane & 7)) << 4),
      left[0], left[1], right[0], right[1]);
}
__device__ __forceinline__ void stage_transposed(unsigned panel, const PanelWords& from) {
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) stage_pair_transposed(panel, j, from.words[2 * j], from.words[2 * j + 1]);
}
// Around the diagonal: the lower (upper) triangle's elements, and each of them once more with row and column exchanged.
// words(j, left, right): squares 2 j and 2 j + 1.
template <bool kLower, class Words>
__device__ __forceinline__ void stage_symmetric(unsigned panel, const Words& words) {
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, line = 16 * warp + lane % 16;
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) {  // squares of 16 x 16 of the warp's rows
    if (kLower ? j > warp : j < warp) continue;
    unsigned left[2], right[2];
    words(j, left, right);
    if (j == warp) {
      left[0] = symmetric_square<kLower>(left[0], lane);
      right[1] = symmetric_square<kLower>(right[1], lane);
      if (kLower)
        right[0] = ptx::movmatrix_trans(left[1]);
      else
        left[1] = ptx::movmatrix_trans(right[0]);
    } else {
      stage_pair_transposed(panel, j, left, right);
    }
    ptx::stmatrix_x4(panel + line * 128 + (((2 * j + lane / 16) ^ (line & 7)) << 4), left[0], left[1],
                     right[0], right[1]);
  }
}

// The staging panels of one multiplying warpgroup, used in turn.
// G::kTokens: the output's tokens are contiguous, not its features.
// G::kReusesPanels: false where there is one for every panel of the block's only tile, in the ring.
template <class G>
struct OutputPanels : Staging<G::kStorePanels, 128, G::kReusesPanels> {
  __device__ __forceinline__ OutputPanels(const Ring<G>& ring, unsigned group)
      : Staging<G::kStorePanels, 128, G::kReusesPanels>(
            ring.base + (G::kReusesPanels ? G::kStages * G::kStageBytes : 0) +
                group * G::kStorePanels * kPanelBytes,
            1 + group) {}

  // Stores 64 columns, whose 32 sums a thread begin at `sum`. finish(four sums, column, words): the two words
  // of columns `column`, + 1 in rows lane / 4 and lane / 4 + 8 of the warp. With contiguous tokens the
  // columns are the rows of the stored box. copy(part, box): asks for the copy of one of G::kParts boxes.
  template <class Finish, class Copy>
  __device__ __forceinline__ void store(const float* sum, const Finish& finish, const Copy& copy) {
    const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, line = 16 * warp + lane % 16;
    const unsigned target = this->claim();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned left[2], right[2];
      finish(sum + 8 * j, 16 * j + lane % 4 * 2, left);
      finish(sum + 8 * j + 4, 16 * j + 8 + lane % 4 * 2, right);
      if constexpr (G::kTokens)  // 128-byte swizzle: 16-byte chunk ^ row % 8

        ptx::stmatrix_x4_trans(target + (16 * j + lane % 8 + lane / 16 * 8) * 128 +
                                   (((2 * warp + lane / 8 % 2) ^ (lane & 7)) << 4),
                               left[0], left[1], right[0], right[1]);
      else
        ptx::stmatrix_x4(target + panel_offset<G::kParts>(line, 2 * j + lane / 16), left[0], left[1],
                         right[0], right[1]);
    }
    this->send([&] {
#pragma unroll
      for (int i = 0; i < G::kParts; ++i) copy(i, target + i * (kPanelBytes / G::kParts));
    });
  }
  template <class Finish>
  __device__ __forceinline__ void store(const float* sum, const TensorMap& map, int c0, int c1, int c2,
                                        int c3, const Finish& finish) {
    static_assert(G::kParts == 1, "a box of 64 columns");
    store(sum, finish, [&](int, unsigned box) { ptx::tma_store(map, box, c0, c1, c2, c3); });
  }

  // Stores 64 columns as store() does, and their transpose with the coordinates exchanged: the same bits twice.
  template <class Finish>
  __device__ __forceinline__ void store_mirrored(const float* sum, const TensorMap& map, int c0, int c1,
                                                 int c2, int c3, const Finish& finish) {
    const unsigned lane = threadIdx.x % 32;
    PanelWords of;
#pragma unroll
    for (int j = 0; j < 8; ++j) finish(sum + 4 * j, 8 * j + lane % 4 * 2, of.words[j]);
    const unsigned panel = this->claim();
    stage_panel(panel, of);
    this->send(map, panel, c0, c1, c2, c3);
    const unsigned mirrored = this->claim();
    stage_transposed(mirrored, of);
    this->send(map, mirrored, c1, c0, c2, c3);
  }

  // Stores 64 rows and columns around the diagonal, symmetric (stage_symmetric).
  template <bool kLower, class Finish>
  __device__ __forceinline__ void store_symmetric(const float* sum, const TensorMap& map, int c0, int c1,
                                                  int c2, int c3, const Finish& finish) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned panel = this->claim();
    stage_symmetric<kLower>(panel, [&](unsigned j, unsigned(&left)[2], unsigned(&right)[2]) {
      finish(sum + 8 * j, static_cast<int>(16 * j + lane % 4 * 2), left);
      finish(sum + 8 * j + 4, static_cast<int>(16 * j + 8 + lane % 4 * 2), right);
    });
    this->send(map, panel, c0, c1, c2, c3);
  }
};

}  // namespace trigen::persistent
