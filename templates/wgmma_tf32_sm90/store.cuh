// From sums to global memory, through shared memory and TMA: panels of 64 tokens by 32 features,
// staged by pairs of warps. With forward's and grad_input's epilogue: y = act(sum + bias) * gate + residual,
// dx = sum + residual.
#pragma once

#include "activation.cuh"
#include "params.h"
#include "persistent/staging.cuh"
#include "wgmma_tf32_sm90/geometry.cuh"

namespace trigen::wgmma_tf32_sm90 {

// Features of a thread. The 16 rows of a warp's fragment are features in another order: rows r and r + 8 are
// two neighbours, so that they are loaded and stored as one word of 8 bytes, and the 16-byte chunks of a
// swizzled row that the warp reaches are c, c ^ 5, c + 1, (c + 1) ^ 5: chunks that differ in bit 2 fall on
// different banks for four consecutive tokens (loads of x), and such that differ in bit 0 for every other one
// (stores).
struct FeatureLane {
  unsigned chunk, half;  // of the swizzled row; which 8 bytes of it
  __device__ __forceinline__ FeatureLane(unsigned warp, unsigned lane) {
    const unsigned row = lane / 4;
    chunk = (2 * (warp % 2) + row / 4) ^ (row / 2 % 2 * 5);
    half = row % 2;
  }
  __device__ __forceinline__ int feature() const { return static_cast<int>(4 * chunk + 2 * half); }  // of 32
  // Byte offset in row `row` of a swizzled panel.
  __device__ __forceinline__ unsigned offset(unsigned row) const {
    return row * 128 + ((chunk ^ (row & 7)) << 4) + half * 8;
  }
};

// Byte offset of feature `feature` in row `row` of boxes of 32 features that lie behind each other.
__device__ __forceinline__ unsigned feature_offset(unsigned row, int feature) {
  const auto at = static_cast<unsigned>(feature);
  return at / 32 * (kPanelBytes / 2) + row * 128 + ((at / 4 % 8 ^ (row & 7)) << 4) + at % 4 * 4;
}

// Epilogue of two neighbouring features' sums of one token.
template <Kernel C>
struct TokenEpilogue {
  static constexpr Shape s = C.shape;
  const Params& p;
  int head, batch, tokens, features, feature;

  __device__ __forceinline__ void operator()(int token, float bias, float (&v)[2]) const {
    const bool inside = token < tokens && feature < features && batch < p.B;
    const auto at = [&](const Activations& t) {
      return reinterpret_cast<float2*>(static_cast<float*>(t.data) +
                                       (batch * t.batch + head * t.head + token * t.row + feature));
    };
    if constexpr (s.bias) v[0] += bias, v[1] += bias;
    if constexpr (s.pre)
      if (inside) *at(p.pre) = make_float2(v[0], v[1]);
    v[0] = activate_fast<s.act>(v[0]), v[1] = activate_fast<s.act>(v[1]);
    if constexpr (s.gate)
      if (inside) {
        const float2 g = *at(p.gate);
        v[0] *= g.x, v[1] *= g.y;
      }
    if constexpr (s.residual)
      if (inside) {
        const float2 r = *at(p.residual);
        v[0] += r.x, v[1] += r.y;
      }
  }
};

// The staging panels of one pair of warps, used in turn.
template <Kernel C>
struct OutputPanels : persistent::Staging<Geometry<C>::kStorePanels, 64> {
  using G = Geometry<C>;
  using Staging = persistent::Staging<G::kStorePanels, 64>;

  __device__ __forceinline__ OutputPanels(const Ring<G>& ring, int pair)
      : Staging(ring.base + G::kInputBytes + pair * G::kStorePanels * kPanelBytes, 1 + pair) {}

  // Stores 64 tokens, whose 32 sums a thread begin at `sum`. finish(token of the panel, pair of values).
  // (The bits are moved by hand: NVRTC would move them where the products end, and ptxas then runs those one
  // after the other, C7514.)
  template <class Finish>
  __device__ __forceinline__ void store(const float* sum, const TensorMap& map, int feature, int token,
                                        int head, int batch, const FeatureLane& own, const Finish& finish) {
    const unsigned lane = threadIdx.x % 32, target = this->claim();
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned row = 8 * j + lane % 4 * 2 + i;
        float v[2] = {sum[4 * j + i], sum[4 * j + 2 + i]};
        finish(static_cast<int>(row), v);
        unsigned words[2];
        asm volatile("mov.b32 %0, %1;" : "=r"(words[0]) : "f"(v[0]));
        asm volatile("mov.b32 %0, %1;" : "=r"(words[1]) : "f"(v[1]));
        ptx::store_shared<8>(target + own.offset(row), words);
      }
    }
    this->send(map, target, feature, token, head, batch);
  }
};

}  // namespace trigen::wgmma_tf32_sm90
