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

// Epilogue of a panel: a thread has two neighbouring features of kTokens of its 64 tokens. What is added to kAtOnce of them comes
// in before the first of their outputs leaves, all loads under way at once: one behind the other they are a latency of memory each.
template <Kernel C>
struct PanelEpilogue {
  static constexpr Shape s = C.shape;
  static constexpr int kTokens = 16, kAtOnce = kTokens >> ((s.gate && s.residual) + s.pre +
                                                           (C.config.tile_m > 128) * (1 + s.pre));
  // The i-th token of a thread.
  __device__ __forceinline__ static int token_of(int i) {
    return i / 2 * 8 + static_cast<int>(threadIdx.x % 4 * 2) + i % 2;
  }

  const Params& p;
  int head, batch, tokens, features, feature, first;  // first: the panel's first token
  const float *from_gate = nullptr, *from_residual = nullptr;
  float bias[kAtOnce];
  unsigned gate[kAtOnce][2], residual[kAtOnce][2];

  // The thread's tokens from its i-th one on. Without branches: tokens that are not there are the last one.
  __device__ __forceinline__ void fetch(int i) {
    if (i == 0) {
      if constexpr (s.gate) from_gate = held(column(p.gate));
      if constexpr (s.residual) from_residual = held(column(p.residual));
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int own = schedule::min(token(i + j), tokens - 1);
      if constexpr (s.bias)
        bias[j] = static_cast<const float*>(p.bias)[static_cast<long long>(head) * tokens + own];
      if constexpr (s.gate) ptx::load_global<8>(gate[j], from_gate + own * p.gate.row);
      if constexpr (s.residual) ptx::load_global<8>(residual[j], from_residual + own * p.residual.row);
    }
  }
  __device__ __forceinline__ void operator()(int i, float (&v)[2]) const {
    if constexpr (s.bias) v[0] += bias[i % kAtOnce], v[1] += bias[i % kAtOnce];
    if constexpr (s.pre)
      if (there() && token(i) < tokens)
        *reinterpret_cast<float2*>(column(p.pre) + token(i) * p.pre.row) = make_float2(v[0], v[1]);
    activate_pair<s.act, DType::kF32>(v[0], v[1]);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if constexpr (s.gate) v[e] *= __uint_as_float(gate[i % kAtOnce][e]);
      if constexpr (s.residual) v[e] += __uint_as_float(residual[i % kAtOnce][e]);
    }
  }

 private:
  __device__ __forceinline__ int token(int i) const { return first + token_of(i); }
  __device__ __forceinline__ bool there() const { return feature < features && batch < p.B; }
  // Made anew for each load, addresses are half of a code that must fit the instruction cache.
  __device__ __forceinline__ static const float* held(const float* from) {
    asm volatile("" : "+l"(from));
    return from;
  }
  // The thread's features of token 0; the tensor's first ones where there are none.
  __device__ __forceinline__ float* column(const Activations& t) const {
    return static_cast<float*>(t.data) + (there() ? batch * t.batch + head * t.head + feature : 0);
  }
};

// The staging panels of one pair of warps, used in turn.
template <Kernel C>
struct OutputPanels : persistent::Staging<Geometry<C>::kStorePanels, 64> {
  using G = Geometry<C>;
  using Staging = persistent::Staging<G::kStorePanels, 64>;

  __device__ __forceinline__ OutputPanels(const Ring<G>& ring, int pair)
      : Staging(ring.base + G::kInputBytes + pair * G::kStorePanels * kPanelBytes, 1 + pair) {}

  // Stores 64 tokens, whose 32 sums a thread begin at `sum`. `any`: else the products left none.
  // (The bits are moved by hand: NVRTC would move them where the products end, and ptxas then runs those one
  // after the other, C7514.)
  __device__ __forceinline__ void store(const float* sum, bool any, const TensorMap& map, int feature,
                                        const FeatureLane& own, PanelEpilogue<C> finish) {
    using Epilogue = PanelEpilogue<C>;
    unsigned target;
#pragma unroll
    for (int i = 0; i < Epilogue::kTokens; ++i) {
      if (i % Epilogue::kAtOnce == 0) finish.fetch(i);
      if (i == 0) target = this->claim();
      float v[2] = {any ? sum[4 * (i / 2) + i % 2] : 0.0f, any ? sum[4 * (i / 2) + 2 + i % 2] : 0.0f};
      finish(i, v);
      unsigned words[2];
      asm volatile("mov.b32 %0, %1;" : "=r"(words[0]) : "f"(v[0]));
      asm volatile("mov.b32 %0, %1;" : "=r"(words[1]) : "f"(v[1]));
      ptx::store_shared<8>(target + own.offset(Epilogue::token_of(i)), words);
    }
    this->send(map, target, feature, finish.first, finish.head, finish.batch);
  }
};

}  // namespace trigen::wgmma_tf32_sm90
