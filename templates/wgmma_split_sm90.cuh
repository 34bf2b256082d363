// Family wgmma_split_sm90: f32 data on Hopper's 16-bit tensor cores (sm_90a), math=f16x3. Every value is cut
// into two f16 planes with a scale for each 64 elements along the product's depth; three products of planes
// are summed, smallest first: a1 b0 + a0 b1 + a0 b0. What is left out, a1 b1, is below 2^-24 of a product.
// The tensor core's own sums, which it truncates, are 64 long; from there on sums are f32's.
//
// Two launches, three for grad_weight with shared tiles: split, run, reduce. grad_weight that splits inside (inside.cuh) has no
// split.
#pragma once

#include "wgmma_split_sm90/grad_weight.cuh"
#include "wgmma_split_sm90/inside.cuh"
#include "wgmma_split_sm90/product.cuh"
#include "wgmma_split_sm90/split.cuh"

namespace trigen::wgmma_split_sm90 {

template <Kernel C>
__device__ __forceinline__ void split(const Params& p) {
  split_operands<C>(p);
}

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  if constexpr (makes_weights(C.shape.op))
    run_grad_weight<C>(p);
  else
    run_product<C>(p);
}

template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& y, const TensorMap& x) {
  run_inside<C>(p, y, x);
}

template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  if constexpr (splits_inside(C.config))
    reduce_inside<C>(p);
  else
    reduce_grad_weight<C>(p);
}

}  // namespace trigen::wgmma_split_sm90
