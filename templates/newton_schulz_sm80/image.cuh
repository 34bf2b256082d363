// Matrices of f16 in shared memory (newton_schulz_sm80.h), and warps' tiles of their products by mma.m16n8k16.
#pragma once

#include "newton_schulz.cuh"
#include "newton_schulz_sm80.h"
#include "ptx/ldmatrix.cuh"
#include "ptx/memory.cuh"
#include "ptx/mma_sm80.cuh"
#include "types.cuh"

namespace trigen::newton_schulz_sm80 {

using newton_schulz::thread_now;

// An image of rows of kColumns elements.
template <int kColumns>
struct Image {
  unsigned begin;
  __device__ __forceinline__ unsigned at(int row, int column) const {
    if constexpr (is_swizzled(kColumns))
      return begin + row * (2 * kColumns) + ((column / 8 ^ (row & 7)) * 16) + column % 8 * 2;
    else
      return begin + row * (2 * kColumns + 16) + column * 2;
  }
};

// An image as A (m x k) or B (n x k) of a product, a warp's rows of m or n. kTransposed: the image's rows are k. One address
// a lane serves all loads: those of a swizzled row differ in bits of it, because a warp's rows begin at a multiple of theirs.
template <int kColumns, bool kA, bool kTransposed>
class Operand {
 public:
  __device__ __forceinline__ Operand(const Image<kColumns>& image, int first) {
    const int lane = thread_now() % 32, row = lane % 8, low = lane / 8 % 2, high = lane / 16;
    // The order of the four 8 x 8 matrices: A has the next 8 rows second, B the next 8 of k.
    const int down = row + 8 * (kA != kTransposed ? low : high), right = 8 * (kA != kTransposed ? high : low);
    begin_ = kTransposed ? image.at(down, first + right) : image.at(first + down, right);
  }
  // 16 rows of m or n, 16 of k: of A its four registers, of B two of each of two fragments.
  __device__ __forceinline__ void load(unsigned (&r)[4], int rows, int k) const {
    const int down = kTransposed ? k : rows, right = kTransposed ? rows : k;
    if constexpr (kTransposed)
      ptx::ldmatrix_x4_trans(r, at(down, right));
    else
      ptx::ldmatrix_x4(r, at(down, right));
  }

 private:
  __device__ __forceinline__ unsigned at(int down, int right) const {
    if constexpr (is_swizzled(kColumns))
      return (begin_ ^ (right % 4 * 32)) + right / 4 * 128 + down * (16 * 2 * kColumns);
    else
      return begin_ + right * 32 + down * (16 * (2 * kColumns + 16));
  }
  unsigned begin_;
};

// A warp's tile of sums: kM x 16 rows, kN x 8 columns, in the fragments of mma.m16n8k16.
template <int kM, int kN>
struct Sums {
  float v[kM][kN][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int j = 0; j < kN; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) v[i][j][e] = 0.0f;
  }
  template <int kDepth, class A, class B>
  __device__ __forceinline__ void add_product(const A& a, const B& b) {
    static_assert(kN % 2 == 0 && kDepth % 16 == 0, "ldmatrix loads two fragments of B, 16 of k");
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      unsigned right[kN / 2][4];
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) b.load(right[j], j, k);
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        unsigned left[4];
        a.load(left, i, k);
#pragma unroll
        for (int j = 0; j < kN; ++j)
          ptx::mma_m16n8k16_f16(v[i][j], left, right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  // use(row, column, two sums of neighbouring columns): the thread's, from the tile's first row and column on.
  template <class Use>
  __device__ __forceinline__ void each(int row, int column, const Use& use) const {
    const int lane = thread_now() % 32;
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kN; ++j)
          use(row + 16 * i + 8 * half + lane / 4, column + 8 * j + lane % 4 * 2, v[i][j][2 * half],
              v[i][j][2 * half + 1]);
  }
  // Of a symmetric matrix: what is on and below the diagonal, to both of its places.
  template <int kColumns>
  __device__ __forceinline__ void store_symmetric(const Image<kColumns>& image, int row, int column) const {
    each(row, column, [&](int m, int n, float first, float second) {
      const unsigned both = ptx::f32x2_to_f16x2(first, second), other = both >> 16;
      if (m > n)
        ptx::store_shared<4>(image.at(m, n), &both);
      else if (m == n)
        ptx::store_shared<2>(image.at(m, n), &both);
      if (m > n) ptx::store_shared<2>(image.at(n, m), &both);
      if (m > n + 1) ptx::store_shared<2>(image.at(n + 1, m), &other);
    });
  }
  template <int kColumns, bool kTransposed>
  __device__ __forceinline__ void store(const Image<kColumns>& image, int row, int column) const {
    each(row, column, [&](int m, int n, float first, float second) {
      const unsigned both = ptx::f32x2_to_f16x2(first, second);
      if constexpr (kTransposed) {
        const unsigned other = both >> 16;
        ptx::store_shared<2>(image.at(n, m), &both);
        ptx::store_shared<2>(image.at(n + 1, m), &other);
      } else {
        ptx::store_shared<4>(image.at(m, n), &both);
      }
    });
  }
};

}  // namespace trigen::newton_schulz_sm80
