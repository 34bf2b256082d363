// From sums to global memory, through shared memory and the copy engine: panels of 64 x 64 elements that each
// warpgroup stages on its own. With forward's and grad_input's epilogue: y = act(sum + bias) * gate +
// residual. A residual that nothing but bias comes before is in the sum already (product.cuh).
#pragma once

#include "epilogue.cuh"
#include "params.h"
#include "ptx/approximate.cuh"
#include "ptx/stmatrix.cuh"
#include "wgmma_sm90/pipeline.cuh"
#include "wgmma_sm90/triangle.cuh"

namespace trigen::wgmma_sm90 {

// activate() of two values with few instructions, for outputs of 16 bits: one thread has up to 128 values to
// do for every tile. Both activations are v / (1 + 2^t): SiLU with t = -v log2(e); GELU with t = log2 of (1 -
// Phi(v)) / Phi(v), an odd function of v, here v times a polynomial in v^2. The special-function unit makes
// 2^t, and one reciprocal for both values, whose product must stay finite: v is held above `least`, where t =
// 60 and the result is nothing. Above zero t falls without end and the result is v. Errors of GELU against
// erf's in double precision, 0 < v relative, -2 < v < 0 relative, anywhere absolute (|v| < 1, else relative):
// for bf16 2^-14, 2^-13, 1.7e-5; for f16 2^-20, 2^-18, 3e-7 (tests/emulated/activation_test.cpp).
template <Activation A, DType kType>
__device__ __forceinline__ void activate_pair(float& low, float& high) {
  if constexpr (A != Activation::kNone) {
    constexpr bool kShort = kType == DType::kBF16;
    constexpr float kLeast = A == Activation::kSiLU ? -41.5f : kShort ? -6.73f : -6.63f;
    const auto denominator = [](float v) {
      float t = -1.4426950408889634f;
      if constexpr (A == Activation::kGELU) {
        const float u = v * v;
        if constexpr (kShort) {
          t = fmaf(-1.9617864381871186e-06f, u, 5.664228956447914e-05f);
          t = fmaf(t, u, 0.000606472953222692f);
          t = fmaf(t, u, -0.10589908808469772f);
          t = fmaf(t, u, -2.301560878753662f);
        } else {
          t = fmaf(-4.635571926314697e-09f, u, 3.606217262586142e-07f);
          t = fmaf(t, u, -1.1074218491557986e-05f);
          t = fmaf(t, u, 0.0001567238796269521f);
          t = fmaf(t, u, 0.00010428585665067658f);
          t = fmaf(t, u, -0.10485025495290756f);
          t = fmaf(t, u, -2.3022027015686035f);
        }
      }
      return 1.0f + ptx::exp2_approx(t * v);
    };
    low = ptx::max_or_nan(low, kLeast), high = ptx::max_or_nan(high, kLeast);
    const float a = denominator(low), b = denominator(high), r = ptx::reciprocal_approx(a * b);
    low *= b * r;
    high *= a * r;
  }
}

// What becomes of a thread's sums of rows `row` and `row` + 8.
template <Kernel C>
struct RowEpilogue {
  static constexpr Shape s = C.shape;
  static constexpr DType kType = s.dtype;
  bool any;  // false: no weight in these rows, the sum is zero
  float bias[2];

  __device__ __forceinline__ RowEpilogue(const Params& p, int head, int tokens, int row, bool has_sum)
      : any(has_sum) {
    if constexpr (s.bias) {
      const auto* from =
          static_cast<const Storage<s.wdtype>*>(p.bias) + static_cast<long long>(head) * tokens;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        bias[i] = row + 8 * i < tokens ? to_float<s.wdtype>(from[row + 8 * i]) : 0.0f;
    }
  }

  // v: sums of two features of both rows; words of both rows: the operands, the output, the value before the
  // activation. What the problem does not have is not touched.
  __device__ __forceinline__ void operator()(const float* v, const unsigned* residual, const unsigned* gate,
                                             unsigned* r, unsigned* pre) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float low = v[2 * i], high = v[2 * i + 1];
      if (!any) low = high = 0.0f;
      if constexpr (s.bias) low += bias[i], high += bias[i];
      if constexpr (s.pre) pre[i] = pack<kType>(low, high);
      activate_pair<s.act, kType>(low, high);
      if constexpr (s.gate) {
        low *= to_float<kType>(static_cast<unsigned short>(gate[i]));
        high *= to_float<kType>(static_cast<unsigned short>(gate[i] >> 16));
      }
      if constexpr (s.residual && !multiplies_residual(s)) {
        low += to_float<kType>(static_cast<unsigned short>(residual[i]));
        high += to_float<kType>(static_cast<unsigned short>(residual[i] >> 16));
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
  // of columns `column`, + 1 in rows lane / 4 and lane / 4 + 8 of the warp. With contiguous tokens the
  // columns are the rows of what is stored.
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
      if constexpr (G::kTokens)
        ptx::stmatrix_x4_trans(target + (16 * j + lane % 8 + lane / 16 * 8) * 128 +
                                   (((2 * warp + lane / 8 % 2) ^ (lane & 7)) << 4),
                               left[0], left[1], right[0], right[1]);
      else
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
