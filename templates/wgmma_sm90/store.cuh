// From sums to global memory, through shared memory and the copy engine: panels of 64 x 64 elements that each
// warpgroup stages on its own. With forward's and grad_input's epilogue: y = act(sum + bias) * gate +
// residual, dx = sum + residual.
#pragma once

#include "epilogue.cuh"
#include "params.h"
#include "ptx/stmatrix.cuh"
#include "wgmma_sm90/pipeline.cuh"
#include "wgmma_sm90/triangle.cuh"

namespace trigen::wgmma_sm90 {

// activate() with few instructions, for outputs of 16 bits: one thread has up to 128 values to do between two
// tiles, and erff alone takes longer than the products of a small tile. GELU: v * erfc(-v / sqrt(2)) / 2 by
// Abramowitz and Stegun 7.1.26 (absolute error of erfc 1.5e-7), taken on the side where erfc is small, so
// that no bits cancel.
template <Activation A>
__device__ __forceinline__ float activate_16bit(float v) {
  if constexpr (A == Activation::kGELU) {
    const float x = fabsf(v) * 0.70710678118654752f;
    const float t = __fdividef(1.0f, fmaf(0.3275911f, x, 1.0f));
    float tail = fmaf(1.061405429f, t, -1.453152027f);
    tail = fmaf(tail, t, 1.421413741f);
    tail = fmaf(tail, t, -0.284496736f);
    tail = fmaf(tail, t, 0.254829592f);
    tail *= 0.5f * t * __expf(-x * x);  // erfc(x) / 2
    return v * (v < 0.0f ? tail : 1.0f - tail);
  } else if constexpr (A == Activation::kSiLU) {
    return __fdividef(v, 1.0f + __expf(-v));
  } else {
    return v;
  }
}

// What becomes of a thread's sums of rows `row` and `row` + 8. Reads and writes pairs of features.
template <Kernel C>
struct RowEpilogue {
  static constexpr Shape s = C.shape;
  static constexpr DType kType = s.dtype;
  const Params& p;
  int head, tokens, features, row;
  bool any;  // false: no weight in these rows, the sum is zero
  float bias[2];

  __device__ __forceinline__ RowEpilogue(const Params& params, int h, int T, int D, int first, bool has_sum)
      : p(params), head(h), tokens(T), features(D), row(first), any(has_sum) {
    if constexpr (s.bias) {
      const auto* from =
          static_cast<const Storage<s.wdtype>*>(p.bias) + static_cast<long long>(head) * tokens;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        bias[i] = row + 8 * i < tokens ? to_float<s.wdtype>(from[row + 8 * i]) : 0.0f;
    }
  }

  // v: sums of features `feature`, + 1 of both rows; r: the words to store.
  __device__ __forceinline__ void operator()(const float* v, int batch, int feature, unsigned (&r)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float low = v[2 * i], high = v[2 * i + 1];
      if (!any) low = high = 0.0f;
      if constexpr (s.bias) low += bias[i], high += bias[i];
      const bool inside = row + 8 * i < tokens && feature < features && batch < p.B;
      const auto at = [&](const Activations& t) {
        return static_cast<unsigned short*>(t.data) +
               (batch * t.batch + head * t.head + (row + 8 * i) * t.row + feature);
      };
      if constexpr (s.pre)
        if (inside) *reinterpret_cast<unsigned*>(at(p.pre)) = pack<kType>(low, high);
      low = activate_16bit<s.act>(low), high = activate_16bit<s.act>(high);
      if constexpr (s.gate)
        if (inside) {
          const unsigned w = *reinterpret_cast<const unsigned*>(at(p.gate));
          low *= to_float<kType>(static_cast<unsigned short>(w)),
              high *= to_float<kType>(static_cast<unsigned short>(w >> 16));
        }
      if constexpr (s.residual)
        if (inside) {
          const unsigned w = *reinterpret_cast<const unsigned*>(at(p.residual));
          low += to_float<kType>(static_cast<unsigned short>(w)),
              high += to_float<kType>(static_cast<unsigned short>(w >> 16));
        }
      r[i] = pack<kType>(low, high);
    }
  }
};

// The staging panels of one multiplying warpgroup, used in turn.
template <Kernel C>
struct OutputPanels {
  using G = Geometry<C>;
  unsigned base, group;
  int slot = 0;

  __device__ __forceinline__ OutputPanels(const Ring<G>& ring, unsigned g)
      : base(ring.base + G::kStages * G::kStageBytes + g * G::kStorePanels * kPanelBytes), group(g) {}

  // Stores 64 columns, whose 32 sums a thread begin at `sum`. finish(four sums, column, words): the two words
  // of columns `column`, + 1 in rows lane / 4 and lane / 4 + 8 of the warp.
  template <class Finish>
  __device__ __forceinline__ void store(const float* sum, const TensorMap& map, int c0, int c1, int c2,
                                        int c3, const Finish& finish) {
    const bool leader = threadIdx.x % 128 == 0;
    const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    if (leader) ptx::tma_store_wait_read<G::kStorePanels - 1>();
    ptx::named_barrier(1 + group, 128);
    const unsigned target = base + slot * kPanelBytes, line = 16 * warp + lane % 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned left[2], right[2];
      finish(sum + 8 * j, 16 * j + lane % 4 * 2, left);
      finish(sum + 8 * j + 4, 16 * j + 8 + lane % 4 * 2, right);
      // 128-byte swizzle: 16-byte chunk ^ row % 8.
      ptx::stmatrix_x4(target + line * 128 + (((2 * j + lane / 16) ^ (line & 7)) << 4), left[0], left[1],
                       right[0], right[1]);
    }
    ptx::fence_async_shared();
    ptx::named_barrier(1 + group, 128);
    if (leader) {
      ptx::tma_store(map, target, c0, c1, c2, c3);
      ptx::tma_store_commit();
    }
    slot = slot + 1 == G::kStorePanels ? 0 : slot + 1;
  }
  // The last stores read shared memory: wait for them before the block ends.
  __device__ __forceinline__ void finish() const {
    if (threadIdx.x % 128 == 0) ptx::tma_store_wait();
  }
};

}  // namespace trigen::wgmma_sm90
