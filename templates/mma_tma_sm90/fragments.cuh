// A warp's fragments from panels of 64 x 64 elements as TMA leaves them, and its sums on their way out.
#pragma once

#include "epilogue.cuh"
#include "mma_ldmatrix.cuh"
#include "mma_tma_sm90.h"
#include "wgmma_sm90/triangle.cuh"

namespace trigen::mma_tma_sm90 {

// Panels side by side along an operand's contiguous axis, each of 64 rows of 128 bytes (more of them where
// the contiguous axis is k: one panel below the other) with the 128-byte swizzle: 16-byte chunk ^ row % 8.
// ldmatrix reads one chunk of 8 successive rows, so all banks are used once.
__device__ __forceinline__ unsigned panel_byte(int row, int column) {
  return column / kPanel * kPanelBytes + row * 128 + ((column % kPanel / 8 ^ (row & 7)) << 4);
}

template <Kernel C>
class Warp : public LdmatrixEngine<C, true> {
  using Base = LdmatrixEngine<C, true>;
  static constexpr Config c = C.config;
  static constexpr Shape s = C.shape;
  static constexpr bool kTransposedA = s.op == Op::kGradInput;  // m contiguous, not k

 public:
  using typename Base::Accumulator;
  using typename Base::Fragment;
  static constexpr int kRows = c.tile_m / c.warps_m, kColumns = c.tile_n / c.warps_n;
  static constexpr int kSteps = kPanel / 16;
  static_assert(kRows == 32 || kRows == 64, "a warp's rows lie in one panel of A");
  static_assert(kColumns == 32 || kColumns == 64, "a warp's columns lie in one panel of B");

  const int lane, first_row, first_column;  // of the tile

  __device__ __forceinline__ Warp(int warp, int thread_lane)
      : Base(32 * warp + thread_lane),
        lane(thread_lane),
        first_row(warp / c.warps_n * kRows),
        first_column(warp % c.warps_n * kColumns) {
    const int low = lane % 8, bit3 = lane / 8 % 2 * 8, bit4 = lane / 16 * 8;
    at_a_ =
        kTransposedA ? panel_byte(low + bit4, first_row + bit3) : panel_byte(first_row + low + bit3, bit4);
    at_b_ = panel_byte(low + bit3, first_column + bit4);
  }

  // Fragments of 16 of a stage's k. A step further, or 16 columns of a panel, flips bits of the address that
  // are zero but for the swizzle.
  __device__ __forceinline__ void load(Fragment& f, unsigned a, unsigned b, int step) const {
    a += at_a_;
    b += at_b_;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      if constexpr (kTransposedA)
        ptx::ldmatrix_x4_trans(f.a[i], (a ^ (i * 32)) + step * 16 * 128);
      else
        ptx::ldmatrix_x4(f.a[i], (a ^ (step * 32)) + i * 16 * 128);
    }
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      unsigned w[4];
      ptx::ldmatrix_x4_trans(w, (b ^ (j * 32)) + step * 16 * 128);
#pragma unroll
      for (int e = 0; e < 4; ++e) f.b[2 * j + e / 2][e % 2] = w[e];
    }
  }

  // Writes zeros to A's elements outside the triangle. `distance`: row + diag - k of the fragments' first
  // element.
  __device__ __forceinline__ void mask(Fragment& f, int distance) const {
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i)
      wgmma_sm90::mask_fragments<persistent::product_fill(s), 1>(reinterpret_cast<unsigned(&)[1][4]>(f.a[i]),
                                                                 distance + 16 * i + lane / 4 - lane % 4 * 2);
  }

  // `row`: of the warp's first sums; (`batch`, `feature`): of its panel's first column.
  __device__ __forceinline__ void store(const Params& p, const Sizes& z, const Accumulator& sums, int head,
                                        int row, int batch, int feature) const {
    if (batch >= z.B) return;
    feature += first_column % kPanel;
    if constexpr (s.pre || s.gate || s.residual) {
      Base::each_vector(sums, [&](int r, int column, float(&v)[8]) {
        const int own = feature + column - first_column;
        if (own < z.D) store_activations<C>(p, z, head, row + r - first_row, batch * z.D + own, v);
      });
    } else {
      store_plain(p, z, sums, head, row, batch, feature);
    }
  }

 private:
  // Nothing of the output's shape beside it: rounded first, half as many words to exchange.
  __device__ __forceinline__ void store_plain(const Params& p, const Sizes& z, const Accumulator& sums,
                                              int head, int row, int batch, int feature) const {
    const Activations& to = s.op == Op::kForward ? p.y : p.x;
    const int quad = lane % 4;
    auto* const base = static_cast<Storage<s.dtype>*>(to.data) + (batch * to.batch + head * to.head);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = row + 16 * i + 8 * half + lane / 4;
        float bias = 0.0f;
        if constexpr (s.bias && s.op == Op::kForward) {
          if (own < z.T)
            bias = to_float<s.wdtype>(
                static_cast<const Storage<s.wdtype>*>(p.bias)[static_cast<long long>(head) * z.T + own]);
        }
#pragma unroll
        for (int j = 0; j < kColumns / 8; j += 4) {
          unsigned w[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float low = sums.v[i][j + e][2 * half] + bias, high = sums.v[i][j + e][2 * half + 1] + bias;
            activate_pair<s.act, s.dtype>(low, high);
            w[e] = pack<s.dtype>(low, high);
          }
          transpose(w, quad);
          const int column = feature + (j + quad) * 8;
          if (own < z.T && column < z.D) ptx::store_global<16>(base + own * to.row + column, w);
        }
      }
    }
  }

  // Of four fragments' words, a row's two columns of each, those of one fragment.
  static __device__ __forceinline__ void transpose(unsigned (&w)[4], int quad) {
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e & bit) continue;
        const unsigned given = quad & bit ? w[e] : w[e + bit];
        const unsigned got = __shfl_xor_sync(0xffffffffu, given, bit);
        if (quad & bit)
          w[e] = got;
        else
          w[e + bit] = got;
      }
    }
  }

  unsigned at_a_, at_b_;  // bytes from the start of an operand's stage
};

}  // namespace trigen::mma_tma_sm90
