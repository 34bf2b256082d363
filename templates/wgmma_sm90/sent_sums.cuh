// A tile's sums on their way to the other block of the cluster (slices.h), through distributed shared memory: a
// thread's to the same thread there, 16 bytes at a time.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "wgmma_sm90/pipeline.cuh"

namespace trigen::wgmma_sm90 {

template <Kernel C>
struct SentSums {
  using G = Geometry<C>;
  static constexpr int kSums = C.config.tile_n / 2, kStride = 128 * 16;  // of a thread; bytes
  unsigned sums, barrier;  // in the shared memory of the block that gets them

  __device__ __forceinline__ explicit SentSums(const Ring<G>& ring)
      : sums(ring.barriers - sent_bytes(C.config)), barrier(ring.barriers + G::kBarrierBytes - 8) {}
  __device__ __forceinline__ void init() const { ptx::mbarrier_init(barrier, 128); }  // threads

  __device__ __forceinline__ void send(float (&sum)[kSums]) const {
    ptx::pin(sum);
    const unsigned to = ptx::cluster_address(sums + threadIdx.x * 16, 0);
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i)
      ptx::store_cluster(to + i * kStride, sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    ptx::mbarrier_release_cluster(barrier, 0);
  }
  __device__ __forceinline__ void add(float (&sum)[kSums]) const {
    ptx::pin(sum);
    ptx::mbarrier_acquire_cluster(barrier, 0);
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
      unsigned words[4];
      ptx::load_shared<16>(words, sums + threadIdx.x * 16 + i * kStride);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[4 * i + j] += __uint_as_float(words[j]);
    }
  }
};

}  // namespace trigen::wgmma_sm90
