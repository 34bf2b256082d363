// Family wgmma_sm90: 16-bit data on Hopper's warpgroup matrix instructions (sm_90a). TMA fills a
// ring of shared-memory stages, one warp asks it to, one or two warpgroups multiply straight from there.
// Blocks are persistent.
//
// The kernels take three tensor maps after Params: A's, B's and the output's (forward, grad_input: W, x or
// dy, y or dx; grad_weight: dy, x, dW), then those of pre, gate and residual where the problem has them, all
// 4-dimensional boxes of 64 x 64 elements (f32 weights: 32 x 64) with 128-byte swizzle.
#pragma once

#include "pack.cuh"
#include "pack_activations.cuh"
#include "persistent/reduce.cuh"
#include "persistent/weight_launch.cuh"
#include "persistent/weight_rows.cuh"
#include "wgmma_sm90/product.cuh"

namespace trigen::wgmma_sm90 {

template <Kernel C, class... Operands>
__device__ __forceinline__ void run(const Params& p, const TensorMap& a, const TensorMap& b,
                                    const TensorMap& output, const Operands&... operands) {
  if constexpr (makes_weights(C.shape.op))
    persistent::weight::run<C>(p, a, b, output);
  else
    run_product<C>(p, a, b, persistent::output_maps<C>(output, operands...));
}
// grad_weight whose threads bring dy and x.
template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& output) {
  persistent::weight::run_rows<C>(p, output);
}
template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  persistent::weight::run_rows<C>(p);
}

// The launch before a product whose W is packed: rows that are not aligned, or f32 where that is quicker.
using packing::pack_weights;
// Those around it where it cannot take the activations.
using packing::pack_activations;
using packing::unpack_activations;

using persistent::weight::reduce;

}  // namespace trigen::wgmma_sm90
