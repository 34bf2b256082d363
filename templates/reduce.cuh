// The second launch of grad_weight with split_k > 1: adds the partial sums in the order of the splits, so
// that the bits do not depend on timing, and writes dW and grad_bias. Grid {T, H}, kReduceThreads threads:
// one row of dW per block.
#pragma once

#include "epilogue.cuh"

namespace trigen {

template <Kernel C>
__device__ __forceinline__ void reduce_splits(const Params& p) {
  constexpr Config c = C.config;
  constexpr int kVec = c.vec_c;
  static_assert(makes_weights(C.shape.op) && c.split_k > 1, "only a split sum needs a reduction");
  const Sizes z = sizes_of<C>(p);
  const int t = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int pitch = schedule::workspace_pitch(z);
  const Range r = schedule::weight_row(C.shape.fill, z.diag, t, z.T);
  const float* const parts = static_cast<const float*>(p.workspace);
  // Whole vectors that touch the triangle, or the whole row when its rest is to be zeroed.
  const int begin = C.shape.zero_outside ? 0 : r.begin * z.K / kVec * kVec;
  const int end = C.shape.zero_outside ? z.T * z.K : r.end * z.K;
  for (int column = begin + static_cast<int>(threadIdx.x) * kVec; column < end;
       column += schedule::kReduceThreads * kVec) {
    float sum[kVec];
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] = 0.0f;
    if (column < r.end * z.K && column + kVec > r.begin * z.K) {
#pragma unroll 4
      for (int split = 0; split < c.split_k; ++split) {
        float v[kVec];
        read_floats(v, parts + ((static_cast<long long>(split) * z.H + head) * z.T + t) * pitch + column);
#pragma unroll
        for (int i = 0; i < kVec; ++i) sum[i] += v[i];
      }
    }
    store_weights<C>(p, z, head, t, column, sum);
    if constexpr (C.shape.mirror) {
#pragma unroll
      for (int i = 0; i < kVec; ++i)
        if (column + i < z.T) gram::mirror<C>(p, head, t, column + i, sum[i]);
    }
  }
  if constexpr (C.shape.bias) {
    if (threadIdx.x == 0) {
      float sum = 0.0f;
      for (int split = 0; split < c.split_k; ++split)
        sum += parts[schedule::workspace_bias(c, z) + (static_cast<long long>(split) * z.H + head) * z.T + t];
      store_bias<C>(p, z, head, t, sum);
    }
  }
}

}  // namespace trigen
