// Epilogue of forward and grad_input: y = act(sum + bias) * gate + residual. A residual that nothing but bias
// comes before is in the sum already (product.cuh).
#pragma once

#include "activation.cuh"
#include "params.h"
#include "types.cuh"
#include "wgmma_sm90.h"

namespace trigen::wgmma_sm90 {

// Epilogue of a thread's sums of rows `row` and `row` + 8.
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

}  // namespace trigen::wgmma_sm90
