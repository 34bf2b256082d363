// Tiles of 64 x 64 f16 elements in shared memory, 128 swizzled bytes a row, and a warpgroup's products of them by wgmma
// (newton_schulz_sm90.h).
#pragma once

#include "newton_schulz_sm90.h"
#include "ptx/memory.cuh"
#include "ptx/movmatrix.cuh"
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

// sum = A B + (keep ? sum : 0) of two tiles, or of kTiles of B side by side. kTransposeA: the rows of A's tile are k;
// kTransposeB: those of B's are.
template <int kTransposeA, int kTransposeB, int kTiles = 1>
__device__ __forceinline__ void add_product(float (&sum)[kTiles * kSums], unsigned a, unsigned b,
                                            int keep = 1) {
  const unsigned long long left = ptx::descriptor(a, kTileBytes), right = ptx::descriptor(b, kTileBytes);
  constexpr int kStepA = (kTransposeA ? 16 * 2 * kSide : 32) >> 4,
                kStepB = (kTransposeB ? 16 * 2 * kSide : 32) >> 4;
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSide / 16; ++k)
    ptx::wgmma_ss<DType::kF16, kTiles * kSide, kTransposeA, kTransposeB>(sum, left + k * kStepA,
                                                                         right + k * kStepB, keep | k);
}

// Begins tile (kI, kJ), on or below the diagonal, of the product of two symmetric matrices. What the sums had the tensor cores
// drop at `keep` 0. All is known to the compiler: in branches and loops of counts that it does not know it would serialise
// products that are under way with others (C7520).
template <int kSides, int kI, int kJ>
__device__ __forceinline__ void multiply(float (&sum)[kSums], unsigned left, unsigned right) {
  ptx::pin(sum);
#pragma unroll
  for (int k = 0; k <= kJ; ++k) add_product<0, 0>(sum, tile_of(left, kI, k), tile_of(right, kJ, k), k);
#pragma unroll
  for (int k = kJ + 1; k <= kI; ++k) add_product<0, 1>(sum, tile_of(left, kI, k), tile_of(right, k, kJ));
#pragma unroll
  for (int k = kI + 1; k < kSides; ++k) add_product<1, 1>(sum, tile_of(left, k, kI), tile_of(right, k, kJ));
  ptx::wgmma_commit();
}

// Begins tile kI of Q X, of a panel of X: its tiles have rows of X, or where kByRows is false columns of X. Then it is X^T Q,
// rows of which are columns of Q X.
template <int kSides, bool kByRows, int kI>
__device__ __forceinline__ void multiply_panel(float (&sum)[kSums], unsigned q, unsigned panel) {
  ptx::pin(sum);
#pragma unroll
  for (int k = 0; k <= kI; ++k) {
    if constexpr (kByRows) {
      add_product<0, 1>(sum, tile_of(q, kI, k), panel + k * kTileBytes, k);
    } else {
      add_product<0, 0>(sum, panel + k * kTileBytes, tile_of(q, kI, k), k);
    }
  }
#pragma unroll
  for (int k = kI + 1; k < kSides; ++k) {
    if constexpr (kByRows) {
      add_product<1, 1>(sum, tile_of(q, k, kI), panel + k * kTileBytes);
    } else {
      add_product<0, 1>(sum, panel + k * kTileBytes, tile_of(q, k, kI));
    }
  }
  ptx::wgmma_commit();
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
// Of a symmetric tile on the diagonal: what is on and below that, to both of its places. Roundings that differ in the two
// triangles would grow in later steps (newton_schulz_sm80.cuh).
__device__ __forceinline__ void store_symmetric(const unsigned (&halves)[kSums / 2], unsigned tile,
                                                int thread) {
  const int lane = thread % 32, strip = thread % 128 / 32;
  const Pairs pairs(tile, thread);
  const unsigned mirrored = at(tile, lane / 4, 16 * strip + lane % 4 * 2);
  const int right = lane / 4 - lane % 4 * 2;  // of the diagonal's element, in a square of 8 x 8 on it
#pragma unroll
  for (int pair = 0; pair < kSums / 2; ++pair) {
    const int below = 2 * strip + pair % 2 - pair / 2;  // squares from the diagonal
    const unsigned own = halves[pair], other = ptx::movmatrix_trans(own);
    const unsigned both = (below > 0 || right >= 0 ? own : other) & 0xFFFFu |
                          (below > 0 || right >= 1 ? own : other) & 0xFFFF0000u;
    if (below >= 0) ptx::store_shared<4>(pairs[pair], &both);
    if (below > 0) ptx::store_shared<4>((mirrored ^ pair % 2 * 16) + pair / 2 * (8 * 2 * kSide), &other);
  }
}

}  // namespace trigen::newton_schulz_sm90
