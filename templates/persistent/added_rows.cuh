// grad_bias beside tiles of 128 x 192: dy's rows come to registers, where threads add them up and x multiplies them. A product with
// ones takes 16 cycles of the tensor cores for eight columns, and reads dy from shared memory a second time: a tile with it takes a
// fifth longer, one that adds 1 to 3 % (docs/experiments/wgmma_sm90-grad_weight.md).
#pragma once

#include "persistent/grad_weight.cuh"
#include "ptx/ldmatrix.cuh"
#include "swizzle.cuh"

namespace trigen::persistent::weight {

template <Kernel C>
inline constexpr bool kAddsRows = C.shape.bias&& consumers(C.config) == 2 && C.config.tile_n == kThreePanels;

// Step `i` of a k block of 64 rows of dy, from `panel` on, as wgmma reads A from registers.
template <Kernel C>
__device__ __forceinline__ void load_rows(unsigned (&a)[4], unsigned panel, int i) {
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if constexpr (contiguous_tokens(C.shape, C.config)) {
    const unsigned line = 16 * static_cast<unsigned>(i) + lane % 8 + lane / 16 * 8,
                   chunk = 2 * warp + lane / 8 % 2;
    ptx::ldmatrix_x4_trans(a, panel + line * 128 + ((chunk ^ (lane % 8)) << 4));
  } else {
    constexpr int kSteps = block_steps() / kParts<C>;  // of a box, 32 bytes of a row each
    using Box = Swizzle<kPanel, 16 * kSteps, 2, true>;
    const int of_box = Box::byte(static_cast<int>(16 * warp + lane % 16),
                                 16 * (i % kSteps) + static_cast<int>(lane / 16 * 8));
    ptx::ldmatrix_x4(a, panel + i / kSteps * (row_panels(C.config) * kBoxBytes<C>)+of_box);
  }
  ptx::pin(a);
}

// What a thread has of rows lane / 4 and lane / 4 + 8 of its warp.
template <DType kType>
__device__ __forceinline__ void add_rows(float (&bias)[2], const unsigned (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DType::kF32)
      bias[i % 2] += __uint_as_float(a[i]);
    else
      bias[i % 2] += to_float<kType>(static_cast<Storage<kType>>(a[i])) +
                     to_float<kType>(static_cast<Storage<kType>>(a[i] >> 16));
  }
}

// kSteps steps of half a k block.
template <Kernel C, int kN, int kSteps>
__device__ __forceinline__ void multiply_and_add_steps(float (&sum)[kN / 2], float (&bias)[2],
                                                       const unsigned (&a)[2][4], unsigned long long b,
                                                       int half, int block) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
#pragma unroll
  for (int i = 0; i < kSteps; ++i) add_rows<C.shape.dtype>(bias, a[i]);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const unsigned long long own = b + step_offset<C, panels(C.config)>(2 * half + i);
    if constexpr (C.shape.dtype == DType::kF32)
      ptx::wgmma_tf32_rs<kN>(sum, a[i], own, block | half | i);
    else
      ptx::wgmma_rs<C.shape.dtype, kN, kTokens>(sum, a[i], own, block | half | i);
  }
  ptx::wgmma_commit();
}

// multiply_work and grad_bias, as that leaves it: half of a k block is read and added up while the half before is multiplied.
template <Kernel C, int kN, class G>
__device__ __forceinline__ void multiply_and_add(float (&sum)[kN / 2], float (&bias)[4], const Ring<G>& ring,
                                                 RingPosition<C.config.stages>& at, int count,
                                                 BatchEnds<C> ends, unsigned group, unsigned lane) {
  int in_flight = -1;
  unsigned a[2][2][4];
  float own[2] = {};
  for (int block = 0; block < count; ++block) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned panel = panel_of_a<C>(ring, at.stage, -1, static_cast<int>(group));
    const unsigned long long b = operand_descriptor<C>(ring.b(at.stage));
    const bool last = ends.here();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 1 && kLastSteps<C> <= 2 && last) {
        ptx::wgmma_wait<0>();
        break;
      }
      load_rows<C>(a[half][0], panel, 2 * half);
      load_rows<C>(a[half][1], panel, 2 * half + 1);
      if (kLastSteps<C> == 2 * half + 1 && last)
        multiply_and_add_steps<C, kN, 1>(sum, own, a[half], b, half, block);
      else
        multiply_and_add_steps<C, kN, 2>(sum, own, a[half], b, half, block);
      ptx::wgmma_wait<1>();  // the half before: its registers are written next
      if (half == 0 && in_flight >= 0) ring.release(in_flight, lane);
    }
    in_flight = at.stage;
    at.advance();
    ends.advance();
  }
  ptx::wgmma_wait<0>();
  ptx::pin(sum);
  if (in_flight >= 0) ring.release(in_flight, lane);
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // a row's four lanes
    own[i] += __shfl_xor_sync(~0u, own[i], 1);
    own[i] += __shfl_xor_sync(~0u, own[i], 2);
    bias[2 * i] = own[i];
  }
}

}  // namespace trigen::persistent::weight
