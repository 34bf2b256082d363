// A tile's sums on their way to the block of the cluster that stores it (row_slices.h), through distributed shared
// memory: a thread's to the same thread there, 16 bytes at a time.
#pragma once

#include "persistent/ring.cuh"
#include "persistent/row_slices.h"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"

namespace trigen::persistent {

// kSums: of a thread. A slot, with a barrier of its own at the end of shared memory, for each other block.
template <class G, int kSums>
struct SentSums {
  static constexpr int kThreads = 128 * G::kConsumers, kStride = kThreads * 16,  // bytes
      kSlices = G::c.cluster, kSlotBytes = kThreads * kSums * 4;
  static_assert(slices(G::c) && (kSlices - 1) * kSlotBytes == sent_bytes(G::c), "a slot holds a tile's sums");
  unsigned sums, barriers;  // in the shared memory of the block that gets them

  __device__ __forceinline__ explicit SentSums(const Ring<G>& ring)
      : sums(ring.barriers - sent_bytes(G::c)), barriers(ring.barriers + G::kBarrierBytes - 8) {}
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < kSlices - 1; ++slot) ptx::mbarrier_init(barriers - 8 * slot, kThreads);
  }

  // By block `rank` of the cluster.
  __device__ __forceinline__ void send(float (&sum)[kSums], const RowWorkTile& work, unsigned rank) const {
    ptx::pin(sum);
    const unsigned slot = slot_of(rank, work.owner);
    const unsigned to = ptx::cluster_address(sums + slot * kSlotBytes + threadIdx.x * 16, work.owner);
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i)
      ptx::store_cluster(to + i * kStride, sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    ptx::mbarrier_release_cluster(barriers - 8 * slot, work.owner);
  }
  // In the blocks' order.
  __device__ __forceinline__ void add(float (&sum)[kSums], const RowWorkTile& work) const {
    ptx::pin(sum);
#pragma unroll 1
    for (int rank = 0; rank < kSlices; ++rank) {
      if ((work.senders >> rank & 1) == 0) continue;
      const unsigned slot = slot_of(rank, work.owner), from = sums + slot * kSlotBytes + threadIdx.x * 16;
      ptx::mbarrier_acquire_cluster(barriers - 8 * slot, 0);
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        unsigned words[4];
        ptx::load_shared<16>(words, from + i * kStride);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[4 * i + j] += __uint_as_float(words[j]);
      }
    }
  }

 private:
  // Of the blocks before and behind the one that adds.
  __device__ __forceinline__ static unsigned slot_of(int rank, int owner) {
    return static_cast<unsigned>(rank < owner ? rank : rank - 1);
  }
};

}  // namespace trigen::persistent
