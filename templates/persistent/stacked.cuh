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

// Of `count` neighbours of a row, is one in the triangle?
template <Kernel C>
__device__ __forceinline__ bool any_in_triangle(int row, int column, int count, int diag) {
  return in_triangle<C>(row, column, diag) || in_triangle<C>(row, column + count - 1, diag);
}

// One warpgroup's sums.
template <Kernel C>
__device__ __forceinline__ void store_stack(float* part, const float* sum, unsigned group, int diag) {
  constexpr int kRows = stack_rows(C.shape, C.config), kBatches = stacked(C.shape, C.config),
                kAtOnce = schedule::max(stacked_vec(C.shape.T), 2);
  const int lane = static_cast<int>(threadIdx.x % 32),
            line = static_cast<int>(threadIdx.x / 32 % 4 * 16) + lane / 4;
  float* const own = part + group * (kPanel * kPanel);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = line + 8 * j, column = 8 * i + lane % 4 * 2, batch = row / kRows,
                first = column / kAtOnce * kAtOnce;  // of what is read with it
      if (batch < kBatches && (batch == first / kRows || batch == (column + 1) / kRows) &&
          any_in_triangle<C>(row, first, kAtOnce, diag))
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

// Sums of addends [begin, end) of kVec neighbours, those of a part behind each other: `kBatches` blocks on the diagonal of each
// multiplying warpgroup's panel. Distances in elements.
template <Kernel C, int kVec>
__device__ __forceinline__ void add_run(float (&sum)[kVec], const float* from, int begin, int end,
                                        long long part, int panel, int block) {
  constexpr int kBatches = stacked(C.shape, C.config), kEach = kConsumers * kBatches,
                kLoads = stacked_loads(C.config, kBatches);
  for (int i = begin; i < end; i += kLoads) {
    float v[kLoads][kVec];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int at = i + j;
      if (at < end)
        read_floats(v[j], from + (at / kEach * part + at % kEach / kBatches * panel + at % kBatches * block));
      else
        for (float& one : v[j]) one = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j)
#pragma unroll
      for (int e = 0; e < kVec; ++e) sum[e] += v[j][e];
  }
}

// The launch behind the product: kReduceThreads threads, any grid. A block adds neighbours of one head at a time, elements of a row
// of dW or, behind those, rows of grad_bias: kRuns threads each take a run of what is to be added, their sums are then added in
// order.
template <Kernel C>
__device__ __forceinline__ void reduce_stacked(const Params& p) {
  constexpr int T = C.shape.T, kRows = stack_rows(C.shape, C.config), kBatches = stacked(C.shape, C.config),
                kVec = stacked_vec(T);
  constexpr int kLanes = kStackedLanes, kRuns = kStackedRuns, kWidth = kLanes * kVec;
  constexpr int kGroups = schedule::ceil_div(T, kWidth), kItems = T * kGroups,  // of a row, of a head
      kBiasItems = C.shape.bias ? schedule::ceil_div(T, kLanes) : 0;
  static_assert(kReduceThreads * kVec * 4 <= kReduceSharedBytes, "a block's sums");
  ptx::let_next_launch_start();  // it waits for the end of this one, which waits for the product's
  auto* const partial = reinterpret_cast<float*>(shared_memory());
  const Extents<C> z(p);
  const StreamK stream_k =
      stream_k_of<C>(p, z, static_cast<int>(gridDim.x) / (reduce_blocks(C.config) * C.config.cluster));
  const auto thread = static_cast<int>(threadIdx.x);
  const int own = thread % kLanes, run = thread / kLanes, count = stream_k.wide == 0 ? 0 : stream_k.split,
            all = count * kConsumers * kBatches;
  const int begin = all * run / kRuns, end = all * (run + 1) / kRuns;
  const auto* const workspace = static_cast<const float*>(p.workspace);
  ptx::wait_for_launches_before();
  for (int item = static_cast<int>(blockIdx.x); item < z.heads * (kItems + kBiasItems) && count > 0;
       item += static_cast<int>(gridDim.x)) {
    const int head = item / (kItems + kBiasItems), index = item - head * (kItems + kBiasItems),
              first = head * stream_k.split;  // part
    const bool bias = C.shape.bias && index >= kItems;
    const int row = bias ? kLanes * (index - kItems) + own : index / kGroups,
              column = bias ? 0 : index % kGroups * kWidth + own * kVec;
    float sum[kVec] = {};
    if (bias) {
      float one[1] = {};
      if (row < T)
        add_run<C, 1>(one, workspace + (stream_k.bias_slot(first) + row), begin, end, kEdge<C>, kPanel,
                      kRows);
      sum[0] = one[0];
    } else if (column < T && any_in_triangle<C>(row, column, kVec, z.diag)) {
      add_run<C, kVec>(sum, workspace + (stream_k.slot(first) + row * kPanel + column), begin, end,
                       stream_k.wide_sums(), kPanel * kPanel, kRows * (kPanel + 1));
    }
    // Behind each other what is added next: [run][element].
#pragma unroll
    for (int e = 0; e < kVec; ++e) partial[run * kWidth + own * kVec + e] = sum[e];
    __syncthreads();
    if (thread < kWidth) {
      float total = partial[thread];
#pragma unroll
      for (int i = 1; i < kRuns; ++i) total += partial[i * kWidth + thread];
      if (!bias && index % kGroups * kWidth + thread < T)
        write_element<C>(p, head, row, index % kGroups * kWidth + thread, z.diag, total);
      else if (bias && thread % kVec == 0 && kLanes * (index - kItems) + thread / kVec < T)
        write_bias<C>(p, head, T, kLanes * (index - kItems) + thread / kVec, total);
    }
    __syncthreads();
  }
}

}  // namespace trigen::persistent::weight
