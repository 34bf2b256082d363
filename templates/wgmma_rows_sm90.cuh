// Family wgmma_rows_sm90: forward and grad_input of 16-bit rows that begin at any element, which TMA cannot take, on
// Hopper (sm_90a), without a copy of them ahead of the product or behind it.
//
// The kernels take W's tensor map after Params, of W itself or of what a launch packed.
#pragma once

#include "pack.cuh"
#include "wgmma_rows_sm90/product.cuh"

namespace trigen::wgmma_rows_sm90 {

template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& weights) {
  run_product<C>(p, weights);
}

using packing::pack_weights;

}  // namespace trigen::wgmma_rows_sm90
