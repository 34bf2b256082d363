// forward and grad_input with W in f32 beside 16-bit data (wgmma_sm90.h, reads_f32_weights): the ring holds W
// as it is, and each multiplying warp rounds its own rows on the way to the registers that wgmma reads A
// from: to nearest, ties to even, as the launch that packs W does.
//
// 64 x 64 weights are two boxes of 32 x 64, one after the other, rows of 128 bytes with the 128-byte swizzle:
//   forward     box j holds k 32 j to 32 j + 31 (columns of W), its lines are the rows
//   grad_input  box j holds rows 32 j to 32 j + 31 (columns of W), its lines are k
#pragma once

#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "wgmma_sm90/pipeline.cuh"
#include "wgmma_sm90/triangle.cuh"

namespace trigen::wgmma_sm90 {

// The loading thread: weights of 64 rows from m on and k to k + 63; into all blocks of a cluster.
template <Kernel C>
__device__ __forceinline__ void load_f32_weights(unsigned target, const TensorMap& map, unsigned full, int m,
                                                 int k, int head) {
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int column = (kTransposed ? m : k) + 32 * j, row = kTransposed ? k : m;
    if constexpr (Geometry<C>::kCluster == 1)
      ptx::tma_load(target + j * kPanelBytes, map, full, column, row, 0, head);
    else
      ptx::tma_load_multicast(target + j * kPanelBytes, map, full, 3, column, row, 0, head);
  }
}

// A thread's elements of 64 x 64 weights, as A's fragments, two m64k16 steps at a time. All banks are used
// once: forward reads two words of k together, 8 bytes of 4 lines in one pass. A line and the next one have
// the same pair of chunks there, so threads of odd lines read the two steps in the other order and swap them.
// grad_input reads one word of every second line.
template <Kernel C>
struct F32Fragments {
  static constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  unsigned offset[2][2];  // bytes; forward: [step][k + 8], grad_input: [row + 8][k + 1]
  int distance;           // row - k of the thread's first element
  bool odd;

  __device__ __forceinline__ F32Fragments(unsigned warp, unsigned lane)
      : distance(static_cast<int>(16 * warp + lane / 4 - lane % 4 * 2)), odd(lane / 4 % 2) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
#pragma unroll
      for (unsigned j = 0; j < 2; ++j) {
        if constexpr (kTransposed) {
          const unsigned line = lane % 4 * 2 + j, chunk = warp % 2 * 4 + 2 * i + lane / 16;
          offset[i][j] = warp / 2 * kPanelBytes + line * 128 + ((chunk ^ line) << 4) + lane / 4 % 4 * 4;
        } else {
          const unsigned line = lane / 4, chunk = 4 * (i ^ (odd ? 1u : 0u)) + 2 * j + lane % 4 / 2;
          offset[i][j] = (16 * warp + line) * 128 + ((chunk ^ line) << 4) + lane % 2 * 8;
        }
      }
    }
  }

  // Of steps 2 half and 2 half + 1 of a block, as they lie: [step][rows + 8 * (j % 2), k + 8 * (j / 2)][k, k + 1].
  using Raw = unsigned[2][4][2];
  // Of the block at `source`.
  __device__ __forceinline__ void load(Raw& raw, unsigned source, int half) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (kTransposed) {
          const unsigned lines = source + (32 * half + 16 * i + j / 2 * 8) * 128;
          ptx::load_shared<4>(&raw[i][j][0], lines + offset[j % 2][0]);
          ptx::load_shared<4>(&raw[i][j][1], lines + offset[j % 2][1]);
        } else {
          ptx::load_shared<8>(raw[i][j], source + half * kPanelBytes + j % 2 * 1024 + offset[i][j / 2]);
        }
      }
    }
  }
  __device__ __forceinline__ void round(unsigned (&a)[2][4], const Raw& raw) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned first =
                         pack<C.shape.dtype>(__uint_as_float(raw[0][j][0]), __uint_as_float(raw[0][j][1])),
                     second =
                         pack<C.shape.dtype>(__uint_as_float(raw[1][j][0]), __uint_as_float(raw[1][j][1]));
      a[0][j] = !kTransposed && odd ? second : first;
      a[1][j] = !kTransposed && odd ? first : second;
    }
  }
};

// Is half of a block read from shared memory while the half before is rounded? Tiles of at most 128 columns take 0 to 9 % less by it,
// of 192 up to 8 % more (an H200, docs/experiments/wgmma_sm90-operands.md).
template <Kernel C>
constexpr bool kReadsAhead = C.config.tile_n <= 128;

// The k blocks of one tile for one multiplying warpgroup, all but the last without a wait for their own
// products: half of a block is read and rounded while the products of the half before run. On return the
// products are complete and their stages released. Arguments: those of multiply_weights (product.cuh).
template <Kernel C>
__device__ __forceinline__ void multiply_f32_weights(float (&sum)[C.config.tile_n / 2],
                                                     const Ring<Geometry<C>>& ring,
                                                     RingPosition<C.config.stages>& at, int begin,
                                                     const KRange& range, int diagonal, int blocks,
                                                     unsigned group, unsigned warp, unsigned lane,
                                                     int accumulate, int in_flight) {
  constexpr Fill kFill = product_fill(C.shape);
  constexpr int kStepB = Geometry<C>::kStepB;
  const F32Fragments<C> fragments(warp, lane);
  unsigned a[2][2][4];
  typename F32Fragments<C>::Raw raw[2];
  const auto load = [&](int half) {
    fragments.load(raw[half], ring.a(at.stage) + group * 2 * kPanelBytes, half);
  };
  const auto begin_block = [&] {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    if constexpr (kReadsAhead<C>) load(0);
  };
  if (kReadsAhead<C> && begin < range.blocks) begin_block();
  for (int block = begin; block < range.blocks; ++block) {
    const int k = kPanel * (kFill == Fill::kLower ? block : blocks - 1 - block), stage = at.stage;
    if constexpr (kReadsAhead<C>)
      load(1);
    else
      begin_block();
    const unsigned long long b = Geometry<C>::descriptor_b(ring.b(stage));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (!kReadsAhead<C>) load(half);
      fragments.round(a[half], raw[half]);
      const int distance = fragments.distance + diagonal - k - 32 * half;
      if (block >= range.unmasked_blocks) mask_fragments<kFill>(a[half], distance);
      ptx::pin(a[half][0]);
      ptx::pin(a[half][1]);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < 2; ++i)
        ptx::wgmma_rs<C.shape.dtype, C.config.tile_n, Geometry<C>::kMajorB>(
            sum, a[half][i], b + (2 * half + i) * kStepB, accumulate | (block - begin) | half | i);
      ptx::wgmma_commit();
      if (half == 1) {
        at.advance();
        if (kReadsAhead<C> && block + 1 < range.blocks) begin_block();
      }
      ptx::wgmma_wait<1>();  // the half before: its registers are written next
      if (half == 0 && in_flight >= 0) ring.release(in_flight, lane);
    }
    in_flight = stage;
  }
  ptx::wgmma_wait<0>();
  if (in_flight >= 0) ring.release(in_flight, lane);
}

}  // namespace trigen::wgmma_sm90
