// The ring of shared-memory stages between the loading warp and the multiplying warpgroups.
#pragma once

#include "persistent/geometry.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

namespace trigen::persistent {

// Position of a loader or consumer in the ring: the next stage and its barriers' parity.
template <int kStages>
struct RingPosition {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int stages) {
    const int rounds = (stage + stages) / kStages;
    stage += stages - rounds * kStages;
    parity ^= rounds & 1;
  }
};

// Barriers of the ring: full[stage] completes when a stage's bytes have landed, empty[stage] when every
// consumer warp of the cluster that reads this stage, or a part of it, has released it.
template <class G>
struct Ring {
  static constexpr int kReleases = G::kSquares ? 3 : G::kCluster;  // blocks whose copies fill a stage
  unsigned base;                                                   // shared address of stage 0
  unsigned barriers;  // shared address of full[0]; empty[0] follows full[kStages - 1]

  __device__ __forceinline__ unsigned a(int stage) const { return base + stage * G::kStageBytes; }
  __device__ __forceinline__ unsigned b(int stage) const {
    return base + stage * G::kStageBytes + G::kBytesA;
  }
  __device__ __forceinline__ unsigned full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ unsigned empty(int stage) const { return barriers + 8 * (G::kStages + stage); }

  // `fills`: arrivals that fill a stage, beside its bytes.
  __device__ __forceinline__ void init(int fills = 1) const {
    for (int stage = 0; stage < G::kStages; ++stage) {
      ptx::mbarrier_init(full(stage), fills);
      ptx::mbarrier_init(empty(stage), G::kReleasingWarps * kReleases);
    }
    ptx::mbarrier_fence_init();
  }

  // Release by the loading thread, for the warps that do not read the stage it fills. No other thread knows
  // that all of them have released the stage's previous contents.
  __device__ __forceinline__ void release_unread(int stage, int warps) const {
    ptx::mbarrier_arrive(empty(stage), static_cast<unsigned>(warps));
  }
  // Called by all lanes of a consumer warp once its reads of the stage are complete.
  __device__ __forceinline__ void release(int stage, unsigned lane) const {
    if constexpr (G::kCluster == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty(stage));
    } else if constexpr (G::kSquares) {  // this block, the other of its row, the other of its column
      if (lane < 3) ptx::mbarrier_arrive_cluster(empty(stage), ptx::cluster_rank() ^ lane);
    } else {
      if (lane < G::kCluster) ptx::mbarrier_arrive_cluster(empty(stage), lane);
    }
  }
};

// Between a warp's wait for a stage that it does not read and its release, which some lanes make for all: the ring
// may turn then, and none may still wait. (A warpgroup alone reads every stage.)
template <class G>
__device__ __forceinline__ void stay_together() {
  if constexpr (G::kConsumers > 1) __syncwarp();
}

}  // namespace trigen::persistent
