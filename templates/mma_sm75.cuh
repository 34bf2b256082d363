// Family mma_sm75: f16 by mma.m16n8k8 with ldmatrix; tiles pass through registers on their way to shared
// memory (Turing has no cp.async), two stages.
#pragma once

#include "mma_ldmatrix.cuh"

namespace trigen::mma_sm75 {

template <Kernel C>
inline constexpr int kThreads = kTileThreads<C>;

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  gemm<C, LdmatrixEngine<C, false>>(p);
}
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  reduce_splits<C>(p);
}

}  // namespace trigen::mma_sm75
