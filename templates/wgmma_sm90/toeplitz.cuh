// forward and grad_input with a Toeplitz matrix whose numbers stay in shared memory (wgmma_sm90.h, makes_weights): the
// ring holds B alone, and a multiplying warp reads A's fragments out of them. Neither a launch ahead of the product nor
// loads of W: of 64 x 64 weights a thread reads ten words.
#pragma once

#include "params.h"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "types.cuh"
#include "wgmma_sm90/pipeline.cuh"

namespace trigen::wgmma_sm90 {

// Element (m, k) of A lies at offset + k - m: forward turns the numbers round, as W[t, s] = w[t - s], grad_input's A is the
// transpose. Zeros where no weight is. The pair of k and k + 1 is a word of the first copy where m is even, and of the
// second one, which begins an element later, where it is odd: lanes of both read other banks.
template <Kernel C>
struct Numbers {
  using G = Geometry<C>;
  static constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  static constexpr int kRows = reached_rows(C.shape, C.config), kOffset = kTransposed ? kPanel : kRows;
  static constexpr int kWords = (kRows + kPanel) / 2,
                       kSecond = kWords + 16;  // of a copy; where the second begins
  static constexpr int kMeeting =
      1 + G::kConsumers;  // named barrier; those before it are the staging panels'
  unsigned shared;

  __device__ __forceinline__ explicit Numbers(const Ring<G>& ring)
      : shared(ring.barriers - sent_bytes(C.config) - numbers_bytes(C.shape, C.config)) {}

  __device__ __forceinline__ unsigned of_head(int head) const {
    return shared + static_cast<unsigned>(head) * head_numbers_bytes(C.shape, C.config);
  }
  // All heads', by all multiplying warpgroups.
  __device__ __forceinline__ void load(const Params& p, int tokens) const {
    constexpr int kThreads = 128 * G::kConsumers;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < C.shape.H * kWords; i += kThreads) {
      const int head = i / kWords, word = i - head * kWords;
      const auto* const from = static_cast<const Storage<C.shape.wdtype>*>(p.w) + head * p.w_head;
      const auto number = [&](int at) {
        const int distance = kTransposed ? at - kOffset : kOffset - at;
        Storage<C.shape.wdtype> v{};
        if (distance >= 0 && distance < tokens) v = from[distance];
        return to_float<C.shape.wdtype>(v);
      };
      const float middle = number(2 * word + 1);
      const unsigned first = pack<C.shape.dtype>(number(2 * word), middle),
                     second = pack<C.shape.dtype>(middle, number(2 * word + 2));
      ptx::store_shared<4>(of_head(head) + 4 * word, &first);
      ptx::store_shared<4>(of_head(head) + 4 * (kSecond + word), &second);
    }
    ptx::named_barrier(kMeeting, kThreads);
  }
};

// The k blocks of one tile for one multiplying warpgroup. Arguments and what holds on return: multiply_weights (product.cuh);
// `numbers`: of the head; `first`: the warpgroup's first row.
template <Kernel C>
__device__ __forceinline__ void multiply_numbers(float (&sum)[C.config.tile_n / 2],
                                                 const Ring<Geometry<C>>& ring,
                                                 RingPosition<C.config.stages>& at, unsigned numbers,
                                                 int begin, const KRange& range, int first, int blocks,
                                                 unsigned warp, unsigned lane, int accumulate,
                                                 int in_flight) {
  constexpr Fill kFill = product_fill(C.shape);
  constexpr int kStepB = Geometry<C>::kStepB;
  const int row = first + static_cast<int>(16 * warp + lane / 4),
            pair = (Numbers<C>::kOffset - row + static_cast<int>(lane % 4 * 2)) >> 1;
  const unsigned own = numbers + 4 * ((row & 1 ? Numbers<C>::kSecond : 0) + pair);
  unsigned a[2][2][4];
  for (int block = begin; block < range.blocks; ++block) {
    const int k = kPanel * (kFill == Fill::kLower ? block : blocks - 1 - block);
    const unsigned long long b = Geometry<C>::descriptor_b(ring.b(at.stage));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned words[5];  // 8 columns apart: 8 rows below is as much as 8 columns to the left
#pragma unroll
      for (int i = 0; i < 5; ++i) ptx::load_shared<4>(&words[i], own + 2 * k + 4 * (16 * half + 4 * (i - 1)));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[half][i][0] = a[half][i][3] = words[2 * i + 1];
        a[half][i][1] = words[2 * i];
        a[half][i][2] = words[2 * i + 2];
        ptx::pin(a[half][i]);
      }
      if (half == 0) ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < 2; ++i)
        ptx::wgmma_rs<C.shape.dtype, C.config.tile_n, Geometry<C>::kMajorB>(
            sum, a[half][i], b + (2 * half + i) * kStepB, accumulate | (block - begin) | half | i);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the half before: its registers are written next
      if (half == 0 && in_flight >= 0) ring.release(in_flight, lane);
    }
    in_flight = at.stage;
    at.advance();
  }
  ptx::wgmma_wait<0>();
  if (in_flight >= 0) ring.release(in_flight, lane);
}

}  // namespace trigen::wgmma_sm90
