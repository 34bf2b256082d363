// The end of the reductions that add sums along a Toeplitz matrix's diagonals.
#pragma once

#include "params.h"
#include "schedule.h"
#include "types.cuh"

namespace trigen {

// Lanes of a block that each have a sum of the same kReduceDiagonals diagonals.
inline constexpr int kDiagonalLanes = schedule::kReduceThreads / schedule::kReduceDiagonals;

// dw[head, distance] of the lanes' sums, added in their order. All threads of the block call it; false for all but the
// one that writes. `sums`: kReduceThreads floats of shared memory.
template <Kernel C>
__device__ __forceinline__ bool write_diagonal(const Params& p, float* sums, int head, int distance,
                                               int tokens, float sum) {
  constexpr DType kW = C.shape.wdtype;
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = sum;
  __syncthreads();
  if (thread >= schedule::kReduceDiagonals || distance >= tokens) return false;
#pragma unroll
  for (int i = 1; i < kDiagonalLanes; ++i) sum += sums[i * schedule::kReduceDiagonals + thread];
  auto* const to = static_cast<Storage<kW>*>(p.w) + (head * p.w_head + distance);
  *to = from_float<kW>(sum + (C.shape.accumulate ? to_float<kW>(*to) : 0.0f));
  return true;
}

}  // namespace trigen
