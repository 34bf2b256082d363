// A warpgroup's sums of R = X X^T of newton_schulz_sm90: pieces of tiles side by side, as newton_schulz_sm90.h deals them out.
#pragma once

#include "newton_schulz_sm90/tiles.cuh"

namespace trigen::newton_schulz_sm90 {

// kByRows: X's panels have rows of X, else columns of it.
template <int kSides, bool kByRows>
class Square {
 public:
  static constexpr int kPieces = pieces(kSides);

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int piece = 0; piece < kPairs; ++piece) {
#pragma unroll
      for (int e = 0; e < 2 * kSums; ++e) pair_[piece][e] = 0.0f;
    }
#pragma unroll
    for (int piece = 0; piece < kSingles; ++piece) {
#pragma unroll
      for (int e = 0; e < kSums; ++e) single_[piece][e] = 0.0f;
    }
  }
  // Begins pieces [kFirst, kEnd) of a panel's, where `is`.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void add(unsigned x, int group, bool is = true) {
    pin();
#pragma unroll
    for (int piece = kFirst; piece < kEnd && is; ++piece) {
      const int tile = square_tile(kSides, group, piece), row = row_of(tile),
                column = tile - tiles_above(row);
      const unsigned left = x + row * kTileBytes, right = x + column * kTileBytes;
      if (piece < kPairs)
        add_product<!kByRows, !kByRows, 2>(pair_[piece < kPairs ? piece : 0], left, right);
      else
        add_product<!kByRows, !kByRows>(single_[piece < kPairs ? 0 : piece - kPairs], left, right);
    }
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void finish() {
    ptx::wgmma_wait<0>();
    pin();
  }
  // The number of the i-th tile, -1 where that is above the diagonal; its sums.
  __device__ __forceinline__ static int tile(int group, int i) {
    const int tile = kSides == 3 ? square_tile(3, group, i) : square_tile(kSides, group, i / 2) + i % 2;
    return kSides == 2 && group == 1 && i == 1 ? -1 : tile;
  }
  __device__ __forceinline__ float sum(int i, int e) const {
    const int pair = i / 2;
    return pair < kPairs ? pair_[pair < kPairs ? pair : 0][i % 2 * kSums + e]
                         : single_[pair < kPairs ? 0 : i - 2 * kPairs][e];
  }

 private:
  static constexpr int kPairs = kSides == 3 ? 0 : kSides / 2, kSingles = kPieces - kPairs;

  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int piece = 0; piece < kPairs; ++piece) ptx::pin(pair_[piece]);
#pragma unroll
    for (int piece = 0; piece < kSingles; ++piece) ptx::pin(single_[piece]);
  }

  // Arrays of their own: one of all sums cut into pieces went to local memory.
  float pair_[kPairs + 1][2 * kSums], single_[kSingles + 1][kSums];
};

}  // namespace trigen::newton_schulz_sm90
