// Family wgmma_tf32_sm90: f32 data multiplied as tf32 on Hopper's warpgroup matrix instructions (sm_90a).
// TMA fills a ring of shared-memory stages and rounds to tf32 on the way. Blocks are persistent.
//
// The kernels take three tensor maps after Params: forward and grad_input W (or its transpose), x or dy, y or
// dx; grad_weight dy, x, dW.
#pragma once

#include "pack_activations.cuh"
#include "persistent/reduce.cuh"
#include "persistent/weight_launch.cuh"
#include "wgmma_tf32_sm90/pack.cuh"
#include "wgmma_tf32_sm90/product.cuh"

namespace trigen::wgmma_tf32_sm90 {

template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& a, const TensorMap& b,
                                    const TensorMap& output) {
  if constexpr (makes_weights(C.shape.op))
    persistent::weight::run<C>(p, a, b, output);
  else
    run_product<C>(p, a, b, output);
}

// The launches around products that TMA cannot feed.
using packing::pack_activations;
using packing::unpack_activations;

using persistent::weight::reduce;

}  // namespace trigen::wgmma_tf32_sm90
