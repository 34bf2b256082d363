// Tiles of 64 x 64 f16 elements in shared memory, 128 swizzled bytes a row, and a warpgroup's products of them by wgmma
// (newton_schulz_sm90.h).
#pragma once

#include "newton_schulz_sm90.h"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"

namespace trigen::newton_schulz_sm90 {

inline constexpr int kSums = kSide / 2;  // of a thread, of a tile

// Rows of 64 elements that follow each other from `begin` on.
__device__ __forceinline__ unsigned at(unsigned begin, int row, int column) {
  return begin + row * (2 * kSide) + ((column / 8 ^ (row & 7)) * 16) + column % 8 * 2;
}

// A symmetric matrix: tile (row, column) of those on and below the diagonal.
__device__ __forceinline__ unsigned tile_of(unsigned matrix, int row, int column) {
  return matrix + (tiles_above(row) + column) * kTileBytes;
}

// Sums begin with what they had: the tensor cores drop it at `keep` 0, and those of all tiles are the same registers.
__device__ __forceinline__ void begin_sum(float (&sum)[kSums]) { ptx::pin(sum); }
__device__ __forceinline__ void end_sum(float (&sum)[kSums]) {
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(sum);
}

// sum = A B + (keep ? sum : 0) of two tiles. kTransposeA: the rows of A's tile are k; kTransposeB: those of B's are.
template <int kTransposeA, int kTransposeB>
__device__ __forceinline__ void add_product(float (&sum)[kSums], unsigned a, unsigned b, int keep = 1) {
  const unsigned long long left = ptx::descriptor(a, kTileBytes), right = ptx::descriptor(b, kTileBytes);
  constexpr int kStepA = (kTransposeA ? 16 * 2 * kSide : 32) >> 4,
                kStepB = (kTransposeB ? 16 * 2 * kSide : 32) >> 4;
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSide / 16; ++k)
    ptx::wgmma_ss<DType::kF16, kSide, kTransposeA, kTransposeB>(sum, left + k * kStepA, right + k * kStepB,
                                                                keep | k);
}

// Tile (i, j), on or below the diagonal, of the product of two symmetric matrices.
template <int kSides>
__device__ __forceinline__ void multiply(float (&sum)[kSums], unsigned left, unsigned right, int i, int j) {
  begin_sum(sum);
#pragma unroll 1
  for (int k = 0; k <= j; ++k) add_product<0, 0>(sum, tile_of(left, i, k), tile_of(right, j, k), k);
#pragma unroll 1
  for (int k = j + 1; k <= i; ++k) add_product<0, 1>(sum, tile_of(left, i, k), tile_of(right, k, j));
#pragma unroll 1
  for (int k = i + 1; k < kSides; ++k) add_product<1, 1>(sum, tile_of(left, k, i), tile_of(right, k, j));
  end_sum(sum);
}

// Tile i of Q X, of a panel of X: its tiles have rows of X, or where kByRows is false columns of X. Then it is X^T Q, rows of
// which are columns of Q X.
template <int kSides, bool kByRows>
__device__ __forceinline__ void multiply_panel(float (&sum)[kSums], unsigned q, unsigned panel, int i) {
  begin_sum(sum);
#pragma unroll 1
  for (int k = 0; k <= i; ++k) {
    if constexpr (kByRows)
      add_product<0, 1>(sum, tile_of(q, i, k), panel + k * kTileBytes, k);
    else
      add_product<0, 0>(sum, panel + k * kTileBytes, tile_of(q, i, k), k);
  }
#pragma unroll 1
  for (int k = i + 1; k < kSides; ++k) {
    if constexpr (kByRows)
      add_product<1, 1>(sum, tile_of(q, k, i), panel + k * kTileBytes);
    else
      add_product<0, 1>(sum, panel + k * kTileBytes, tile_of(q, k, i));
  }
  end_sum(sum);
}

// A thread's 32 sums of a tile as pairs of f16: pair p has rows 8 apart by p % 2, columns by p / 2. Of one address the others
// differ in bits of it or by whole rows.
struct Place {
  int row, column;
};
__device__ __forceinline__ Place in_tile(int thread, int pair) {
  return {thread % 128 / 32 * 16 + thread % 32 / 4 + pair % 2 * 8, pair / 2 * 8 + thread % 4 * 2};
}
struct Pairs {
  unsigned begin;
  __device__ __forceinline__ Pairs(unsigned tile, int thread)
      : begin(at(tile, in_tile(thread, 0).row, in_tile(thread, 0).column)) {}
  __device__ __forceinline__ unsigned operator[](int pair) const {
    return (begin ^ pair / 2 * 16) + pair % 2 * (8 * 2 * kSide);
  }
};
// Of the transposed tile: the place of a pair's first element, or of its second one.
struct Mirrored {
  unsigned begin;
  __device__ __forceinline__ Mirrored(unsigned tile, int thread)
      : begin(at(tile, in_tile(thread, 0).column, in_tile(thread, 0).row)) {}
  __device__ __forceinline__ unsigned at_pair(int pair, int second) const {
    return (begin ^ (pair % 2 ^ second) * 16) + second * (2 * kSide) + pair / 2 * (8 * 2 * kSide);
  }
};

}  // namespace trigen::newton_schulz_sm90
