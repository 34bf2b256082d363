// grad_weight of T <= 64 (grad_weight.h, stacks): parts that hold the sums of several batches, and the launch
// that adds them.
//
// A part has the 64 x 64 sums of each multiplying warpgroup in rows, of which the triangles of the T x T blocks on the
// diagonal, a batch each, are written; grad_bias has 128 rows, as in any part.
#pragma once

#include "persistent/weight_geometry.cuh"
#include "persistent/weight_store.cuh"
#include "persistent/weight_stream_k.cuh"

namespace trigen::persistent::weight {

// Rows of the ring's panels that no batch fills become zeros, before the loads begin: their sums are dropped,
// but wgmma reads them. TMA writes zeros where contiguous tokens end.
template <Kernel C>
inline constexpr int stack_bytes = contiguous_tokens(C.shape, C.config)
                                       ? kPanelBytes
                                       : C.shape.T* stacked(C.shape, C.config) * 128;
template <Kernel C>
__device__ __forceinline__ void clear_unfilled(unsigned ring) {
  constexpr int kVectors = (kPanelBytes - stack_bytes<C>) / 16;
  constexpr unsigned kZeros[4] = {};
  if constexpr (kVectors > 0) {
    for (int i = static_cast<int>(threadIdx.x); i < C.config.stages * 2 * kConsumers * kVectors;
         i += threads(C.config))
      ptx::store_shared<16>(ring + i / kVectors * kPanelBytes + stack_bytes<C> + i % kVectors * 16, kZeros);
    ptx::fence_async_shared();
  }
}

// One warpgroup's sums.
template <Kernel C>
__device__ __forceinline__ void store_stack(float* part, const float* sum, unsigned group, int diag) {
  constexpr int T = C.shape.T, kBatches = stacked(C.shape, C.config);
  const int lane = static_cast<int>(threadIdx.x % 32),
            line = static_cast<int>(threadIdx.x / 32 % 4 * 16) + lane / 4;
  float* const own = part + group * (kPanel * kPanel);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = line + 8 * j, column = 8 * i + lane % 4 * 2, batch = row / T;
      if (batch < kBatches && (batch == column / T || batch == (column + 1) / T) &&
          (in_triangle<C>(row, column, diag) || in_triangle<C>(row, column + 1, diag)))
        *reinterpret_cast<float2*>(own + row * kPanel + column) =
            make_float2(sum[4 * i + 2 * j], sum[4 * i + 2 * j + 1]);
    }
  }
}

// One element of dW where it lies in the triangle, a zero where the problem asks for it.
template <Kernel C>
__device__ __forceinline__ void write_element(const Params& p, int head, int row, int column, int diag,
                                              float v) {
  constexpr Shape s = C.shape;
  const bool inside = in_triangle<C>(row, column, diag);
  if (!inside && !s.zero_outside) return;
  auto* const to = static_cast<Storage<s.wdtype>*>(p.w) +
                   (head * p.w_head + row * p.w_row + static_cast<long long>(column));
  if (!inside)
    v = 0.0f;
  else if (s.accumulate)
    v += to_float<s.wdtype>(*to);
  else
    v = gram::value<C>(p, head, row, column, v), gram::mirror<C>(p, head, row, column, v);
  *to = from_float<s.wdtype>(v);
}

// The launch behind the product: kReduceThreads threads, any grid. A block adds kWidth neighbours of one head
// at a time, elements of dW or, behind those, rows of grad_bias: kRuns threads each take a run of what is to
// be added, their sums are then added in order.
template <Kernel C>
__device__ __forceinline__ void reduce_stacked(const Params& p) {
  constexpr int T = C.shape.T, kBatches = stacked(C.shape, C.config),
                kEach = kConsumers * kBatches;  // addends of a part
  constexpr int kWidth = kStackedWidth, kRuns = kStackedRuns, kLoads = stacked_loads(C.config, kBatches);
  constexpr int kItems = (T * T + kWidth - 1) / kWidth,  // of a head
      kBiasItems = C.shape.bias ? (T + kWidth - 1) / kWidth : 0;
  ptx::let_next_launch_start();  // it waits for the end of this one, which waits for the product's
  auto* const partial = reinterpret_cast<float*>(shared_memory());
  const Extents<C> z(p);
  const StreamK stream_k =
      stream_k_of<C>(p, z, static_cast<int>(gridDim.x) / (reduce_blocks(C.config) * C.config.cluster));
  const auto thread = static_cast<int>(threadIdx.x);
  const int own = thread % kWidth, run = thread / kWidth, count = stream_k.wide == 0 ? 0 : stream_k.split;
  const int begin = count * kEach * run / kRuns, end = count * kEach * (run + 1) / kRuns;
  const auto* const workspace = static_cast<const float*>(p.workspace);
  ptx::wait_for_launches_before();
  for (int item = static_cast<int>(blockIdx.x); item < z.heads * (kItems + kBiasItems) && count > 0;
       item += static_cast<int>(gridDim.x)) {
    const int head = item / (kItems + kBiasItems), index = item - head * (kItems + kBiasItems);
    const bool bias = C.shape.bias && index >= kItems;
    const int element = kWidth * (bias ? index - kItems : index) + own, row = bias ? element : element / T,
              column = bias ? 0 : element - row * T;
    const bool exists = row < T, valid = exists && (bias || in_triangle<C>(row, column, z.diag));
    // Of a block on the diagonal, and from one of a panel, of a part to the next.
    const int first = head * stream_k.split;
    const float* const from =
        workspace + (bias ? stream_k.bias_slot(first) + row : stream_k.slot(first) + row * kPanel + column);
    const long long block = bias ? T : T * (kPanel + 1), panel = bias ? kPanel : kPanel * kPanel,
                    part = bias ? kEdge<C> : stream_k.wide_sums();
    float sum = 0;
    for (int i = begin; i < end; i += kLoads) {
      float v[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int at = i + j;
        v[j] = valid && at < end
                   ? from[at / kEach * part + at % kEach / kBatches * panel + at % kBatches * block]
                   : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) sum += v[j];
    }
    partial[thread] = sum;
    __syncthreads();
    if (run == 0 && exists) {
#pragma unroll
      for (int i = 1; i < kRuns; ++i) sum += partial[i * kWidth + own];
      if (bias)
        write_bias<C>(p, head, T, row, sum);
      else
        write_element<C>(p, head, row, column, z.diag, sum);
    }
    __syncthreads();
  }
}

}  // namespace trigen::persistent::weight
