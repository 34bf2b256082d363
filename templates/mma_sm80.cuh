// Family mma_sm80: f16 and bf16 by mma.m16n8k16, f32 as tf32 by mma.m16n8k8, fed by cp.async in several
// stages. Ampere and everything later that has no better family.
#pragma once

#include "mma_ldmatrix.cuh"

namespace trigen::mma_sm80 {

template <Kernel C>
inline constexpr int kThreads = kTileThreads<C>;

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  gemm<C, LdmatrixEngine<C, true>>(p);
}
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  reduce_splits<C>(p);
}

}  // namespace trigen::mma_sm80
