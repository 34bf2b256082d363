// grad_weight of several taps of f32 data as tf32. wgmma takes tf32 operands along k only, from shared memory at multiples of 16
// bytes: x, as it lies, is B of every tap, and A is dy, from whose panels a thread reads its elements for each tap as many features
// further as the tap says.
#pragma once

#include "ptx/memory.cuh"
#include "ptx/wgmma_tf32.cuh"
#include "wgmma_taps_sm90/weight_ring.cuh"

namespace trigen::wgmma_taps_sm90::weight {

// A thread's elements of 64 rows by 32 features of dy, from feature `shift` of the panel `here` on, as A of four products; `here` and
// the panel behind it: addresses of the thread's row. (The four lanes of a row read four neighbours, in one or two pieces of 16 bytes:
// the swizzle has eight rows' on all banks.)
__device__ __forceinline__ void load_shifted(unsigned (&a)[4][4], unsigned here, unsigned behind,
                                             unsigned flip, unsigned shift) {
  const unsigned word = shift % 4 * 4, first = shift / 4;
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned piece = first + i;
    const unsigned from = (piece < 8 ? here : behind) + ((piece % 8 ^ flip) << 4) + word;
#pragma unroll
    for (unsigned below = 0; below < 2; ++below)
      ptx::load_shared<4>(&a[i / 2][i % 2 * 2 + below], from + 1024 * below);
  }
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_tf32(const Params& p, const Shared<C>& shared,
                                              const StreamK& stream_k, unsigned group) {
  using W = Work<C>;
  constexpr int kTaps = warpgroup_taps(C.shape.K), kColumns = kBlockColumns<C>;
  constexpr int kBiasTap = C.shape.pad % group_taps(C.shape.K);  // which does not shift dy
  const unsigned lane = threadIdx.x % 32;
  const unsigned line = (first_row<C>() + lane / 4) * 128;
  const int first_tap = few(C.shape.K) ? 0 : kTaps * static_cast<int>(group);
  RingPosition<C.config.stages> at_dy, at_x;
  float sum[kTaps][kColumns / 2];
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    const Block block(stream_k, work);
    const bool with_bias = C.shape.bias && first_tap / kTaps == kBiasTap / kTaps &&
                           stream_k.sums_bias(block.row, block.column, block.group);
    float bias[2] = {};
    // Of the warpgroup's last tap, which reads from the first feature on.
    const unsigned shift = static_cast<unsigned>(W::kAhead + W::kTaps - first_tap - kTaps) + lane % 4;
    for (int step = work.begin; step < work.end; ++step) {
      RingPosition<C.config.stages> next = at_dy;
      next.advance();
      ptx::mbarrier_wait(shared.dy_full(at_dy.stage), at_dy.parity);
      ptx::mbarrier_wait(shared.dy_full(next.stage), next.parity);
      ptx::mbarrier_wait(shared.x_full(at_x.stage), at_x.parity);
      const unsigned here = shared.dy(at_dy.stage) + line, behind = shared.dy(next.stage) + line;
      const unsigned long long b = ptx::descriptor(shared.x(at_x.stage), kPanelBytes);
      unsigned a[kTaps][4][4];
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        load_shifted(a[tap], here, behind, lane / 4, shift + static_cast<unsigned>(kTaps - 1 - tap));
        if constexpr (C.shape.bias) {
          if (with_bias && tap == kBiasTap % kTaps) {
#pragma unroll
            for (int i = 0; i < 16; ++i) bias[i % 2] += __uint_as_float(a[tap][i / 4][i % 4]);
          }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) ptx::pin(a[tap][i]);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
          ptx::wgmma_tf32_rs<kColumns>(sum[tap], a[tap][i], b + 2 * i, (step - work.begin) | i);
      }
      ptx::wgmma_commit();
      const bool last = ends<C>(work, step);
      __syncwarp();  // one lane lets go of what all have read
      if (lane == 0) {
        ptx::mbarrier_arrive(shared.dy_empty(at_dy.stage));
        if (last) ptx::mbarrier_arrive(shared.dy_empty(next.stage));
      }
      ptx::wgmma_wait<0>();
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
      if (lane == 0) ptx::mbarrier_arrive(shared.x_empty(at_x.stage));
      at_dy = next;
      if (last) at_dy.advance();
      at_x.advance();
    }
    if (with_bias) store_bias<C>(p, stream_k, block, bias);
    store<C>(p, shared.store(), stream_k, block, sum);
  }
}

}  // namespace trigen::wgmma_taps_sm90::weight
