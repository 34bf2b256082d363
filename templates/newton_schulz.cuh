// What the families of newton_schulz share: where a block's matrix lies, its norm, and how y is written.
#pragma once

#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "schedule.h"
#include "types.cuh"

namespace trigen::newton_schulz {

// This thread of the block, asked for anew each time: the addresses that follow from it are made where they are used. The
// compiler would hold those of all passes and steps in registers, and spill sums for them.
__device__ __forceinline__ int thread_now() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Where matrix `matrix` lies: behind the others of a batch, or where a table of addresses says.
template <DType kD>
__device__ __forceinline__ Storage<kD>* begin_of(const Activations& t, int matrix, int heads) {
  const int batch = matrix / heads;
  Storage<kD>* const first = t.batch < 0 ? static_cast<Storage<kD>* const*>(t.data)[batch]
                                         : static_cast<Storage<kD>*>(t.data) + batch * t.batch;
  return first + matrix % heads * t.head;
}

// The sum of squares of `outer` rows of `inner` elements, that of the thread alone.
template <DType kD, int kVec, int kBlock>
__device__ __forceinline__ float sum_of_squares(const Storage<kD>* x, long long row_stride, int outer,
                                                int inner) {
  const int across = inner / kVec;
  // A thread's next vector, and how far it is from each to the one after: the loop divides nothing.
  int row = static_cast<int>(threadIdx.x) / across, at = static_cast<int>(threadIdx.x) % across;
  const int rows = kBlock / across, vectors = kBlock % across;
  const Storage<kD>* from = x + row * row_stride + at * kVec;
  float sum = 0.0f;
  constexpr int kAtOnce = 8;
  while (row < outer) {
    Raw<kD, kVec> v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (row < outer)
        ptx::load_global_nc<Raw<kD, kVec>::kSize>(v[i].w, from);
      else
        v[i].clear();
      const bool ends = at + vectors >= across;
      row += rows + ends;
      at += vectors - (ends ? across : 0);
      from += (rows + ends) * row_stride + (vectors - (ends ? across : 0)) * kVec;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float element = to_float<kD>(v[i].get(j));
        sum = fmaf(element, element, sum);
      }
  }
  return sum;
}

// Of all threads of the block or cluster, the same for all. `sums`: a float for each warp and one more, in shared memory.
template <int kBlock, int kBlocks>
__device__ __forceinline__ float sum_of_threads(float sum, float* sums) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int i = 0; i < kBlock / 32; ++i) sum += sums[i];
  if constexpr (kBlocks > 1) {
    if (threadIdx.x == 0) sums[kBlock / 32] = sum;
    ptx::cluster_sync();
    sum = 0.0f;
    for (int rank = 0; rank < kBlocks; ++rank)
      sum += ptx::load_cluster(ptx::cluster_address(ptx::shared_address(sums + kBlock / 32), rank));
  }
  return sum;
}

// What x is multiplied by, for its norm and the bound of it.
__device__ __forceinline__ float scale_of(float norm, float eps) {
  if (eps < 0.0f) return 1.0f;
  return norm != norm ? norm : 1.0f / fmaxf(norm, eps);  // a NaN is not the smaller one
}

// Not by `*to = ...`: of an address of a table the compiler does not know that it is global.
template <DType kD, int kCount>
__device__ __forceinline__ void store(Storage<kD>* to, const float (&v)[kCount]) {
  Raw<kD, kCount> out;
  out.from_floats(v);
  ptx::store_global<Raw<kD, kCount>::kSize>(to, out.w);
}

}  // namespace trigen::newton_schulz
