// Family wgmma_resident_sm90: forward and grad_input of short contexts on Hopper (sm_90a), bound by memory.
// W's triangle is read and masked once for the kernel's life and stays in registers; x streams through a ring
// of shared-memory stages, is multiplied and leaves from where it came to: a copy with products in it.
//
// The kernels take tensor maps after Params: W's where TMA brings it, the input's, the output's and the
// residual's where there is one.
#pragma once

#include "pack.cuh"
#include "wgmma_resident_sm90/product.cuh"

namespace trigen::wgmma_resident_sm90 {

using packing::pack_weights;

template <Kernel C, class... Rest>
__device__ __forceinline__ void run(const Params& p, const TensorMap& first, const TensorMap& second,
                                    const Rest&... rest) {
  if constexpr (Geometry<C>::kStagesWeights)
    run_product<C>(p, Maps{nullptr, &first, &second, &rest...});
  else
    run_product<C>(p, Maps{&first, &second, &rest...});
}

}  // namespace trigen::wgmma_resident_sm90
