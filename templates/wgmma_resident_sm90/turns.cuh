// Stages as blocks come to them. The loading thread knows which one a block has next, and writes its number beside the
// ring for the warpgroup that multiplies it.
#pragma once

#include "params.h"
#include "ptx/memory.cuh"
#include "wgmma_resident_sm90/geometry.cuh"

namespace trigen::wgmma_resident_sm90 {

inline constexpr int kNoStage = -1;

// The number of the stage of x in a stage of the ring, behind the barriers of the ring and of W. It is there when the stage
// is full, and stays until it is empty.
template <class G>
__device__ __forceinline__ unsigned number_address(const Ring<G>& ring, int at) {
  static_assert((2 * kMostStages + 2) * 8 + kMostStages * 4 <= G::kBarrierBytes, "behind the barriers");
  return ring.empty(G::kStages) + 16 + 4 * at;
}
template <class G>
__device__ __forceinline__ void write_number(const Ring<G>& ring, int at, int number) {
  const auto word = static_cast<unsigned>(number);
  ptx::store_shared<4>(number_address(ring, at), &word);
}
template <class G>
__device__ __forceinline__ int read_number(const Ring<G>& ring, int at) {
  unsigned word;
  ptx::load_shared<4>(&word, number_address(ring, at));
  return static_cast<int>(word);
}

template <Kernel C>
__device__ __forceinline__ unsigned* count_of_claims(const Params& p) {
  return reinterpret_cast<unsigned*>(static_cast<char*>(p.workspace) + claims_at(C.shape, C.config));
}

// The loading thread's: the stages of its block one after the other, those of the walk first, then what it claims.
template <Kernel C>
class Turns {
 public:
  __device__ __forceinline__ Turns(const Params& p, const StageWalk& walk)
      : claims_(count_of_claims<C>(p)), walk_(walk) {}
  // kNoStage: the block has had its last one.
  __device__ __forceinline__ int next() {
    constexpr int kGroup = claim_stages(C.shape, C.config), kFirst = unclaimed_stages(C.shape, C.config);
    const int of_group = n_ % kGroup;
    if (of_group == 0) {
      group_ = n_ < kFirst ? walk_.stage(n_)
                           : claimed_stage(C.shape, C.config, static_cast<int>(gridDim.x), claim_);
      // One ahead: the answer takes a microsecond.
      if (n_ + kGroup >= kFirst && group_ < walk_.last)
        claim_ = static_cast<int>(ptx::add_global(claims_, 1));
    }
    ++n_;
    const int stage = group_ + of_group;
    return stage < walk_.last ? stage : kNoStage;
  }

 private:
  unsigned* claims_;  // of all blocks, so far
  const StageWalk& walk_;
  int n_ = 0;      // stages so far
  int group_ = 0;  // the first one of their group
  int claim_ = 0;  // the number of the block's next claim
};

// The launch ahead of one whose blocks claim stages. That one may start at once: it waits for the end of this one, which
// waits for those before.
template <Kernel C>
__device__ __forceinline__ void begin_claims(const Params& p) {
  ptx::let_next_launch_start();
  ptx::wait_for_launches_before();
  if (threadIdx.x == 0) *count_of_claims<C>(p) = 0;
}

}  // namespace trigen::wgmma_resident_sm90
