// Family mma_tma_sm90: forward and grad_input of 16-bit data by mma.m16n8k16 where TMA, not threads, fills
// the stages, for targets with TMA and without wgmma (sm_100, sm_120). Blocks are persistent.
//
// The kernels take two tensor maps after Params, A's and B's (W, x or dy), 4-dimensional boxes of 64 x 64
// elements with 128-byte swizzle.
#pragma once

#include "mma_tma_sm90/product.cuh"
#include "pack.cuh"

namespace trigen::mma_tma_sm90 {

template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& a, const TensorMap& b) {
  run_product<C>(p, a, b);
}

// The launch before a product whose W is packed: f32, or rows that are not aligned.
using packing::pack_weights;

}  // namespace trigen::mma_tma_sm90
