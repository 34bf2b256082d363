// Family wgmma_taps_sm90: several taps on Hopper's warpgroup matrix instructions (sm_90a), of 16-bit data, in grad_weight of f32 as
// tf32, too. Forward and grad_input as below; grad_weight in weight.cuh and weight_tf32.cuh.
//
//   forward     y[d, t]  = sum over s, j of x[d + j - pad, s] P_j[t, s]     A = x^T,  B = P_j   (K-major)
//   grad_input  dx[d, s] = sum over t, j of dy[d - j + pad, t] P_j[t, s]    A = dy^T, B = P_j^T (MN-major)
//
// The product is transposed: its rows are features, so that a tap is a shift by a row. The input's block of
// 64 tokens is transposed once in shared memory, [8 tokens][feature][token], where a row is 16 bytes and the
// rows of all features lie one after the other: the descriptor of a tap's operand is the first tap's with a
// start 16 bytes further. Contiguous tokens (layout bdt) are K-major as TMA brings them, a feature's row is the
// 128 bytes of a swizzled one. TMA's zeros outside 0 <= d < D are the padding. P_j are W's taps as the
// launch before packed them (pack.h), zero outside the triangle. In the blocks that cross the diagonal every
// 16 tokens of k multiply only the columns that they reach.
//
// Two warpgroups multiply 64 features by tile_m tokens each; of a third one, a warp loads P_j and three
// transpose (contiguous tokens: one loads). The launch begins while W is still being packed: only the warp that
// loads P_j waits for that. Of contexts of at most 64 tokens P_j is loaded once, where the ring has a stage for every tap, and only
// the pieces of 16 tokens that there are are multiplied. Slices (persistent/row_slices.h): a cluster's blocks share two row tiles of 64 tokens.
// The kernels take tensor maps after Params: packed W, the input, the output, then pre, gate and residual where
// the problem has them; grad_weight dy and x.
#pragma once

#include "pack.cuh"
#include "pack_activations.cuh"
#include "wgmma_taps_sm90/product.cuh"
#include "wgmma_taps_sm90/weight.cuh"

namespace trigen::wgmma_taps_sm90 {

template <Kernel C, class... Operands>
__device__ __forceinline__ void run(const Params& p, const TensorMap& weights, const TensorMap& input,
                                    const TensorMap& output, const Operands&... operands) {
  run_product<C>(p, weights, input, persistent::output_maps<C>(output, operands...));
}

using packing::pack_weights;
// Those around the op where TMA cannot take the activations.
using packing::pack_activations;
using packing::unpack_activations;

// grad_weight: dy, x.
template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& dy, const TensorMap& x) {
  weight::run<C>(p, dy, x);
}
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  weight::reduce<C>(p);
}

}  // namespace trigen::wgmma_taps_sm90
