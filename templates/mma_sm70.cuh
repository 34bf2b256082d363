// Family mma_sm70: f16 by Volta's mma.m8n8k4, register-staged tiles in two stages, fragments by ordinary
// shared loads (there is no ldmatrix).
//
// One instruction is four independent 8x8x4 products, one per quad pair of lanes. The quad pairs are laid out
// 2x2, so an instruction makes a 16x16 piece. Which row of the piece a lane owns is free as long as the sums
// follow; rows 0-3 | 4-7 of the piece belong to the low half of quad pairs (qm = 0 | 1), rows 8-11 | 12-15 to
// their high half (lanes 16 and up). With that, the 16 lanes that share a pass of 64-bit loads read 8
// successive rows of one chunk (k contiguous) or two halves of one chunk in 4 successive rows (m or n
// contiguous): no conflicts under the layouts of padded.h.
#pragma once

#include "gemm.cuh"
#include "gemm_staged.cuh"
#include "padded.h"
#include "ptx/mma_sm70.cuh"
#include "reduce.cuh"

namespace trigen::mma_sm70 {

template <Kernel C>
inline constexpr int kThreads = kTileThreads<C>;

template <Kernel C>
class Engine {
  static constexpr Config c = C.config;
  static constexpr int kWarpM = c.tile_m / c.warps_m, kWarpN = c.tile_n / c.warps_n;
  static constexpr int kPiecesM = kWarpM / 16, kPiecesN = kWarpN / 16;
  static constexpr bool kAlongKA = OperandA<C>::kContiguousIsK, kAlongKB = OperandB<C>::kContiguousIsK;
  static_assert(C.shape.dtype == DType::kF16, "sm_70 multiplies f16 only");
  static_assert(c.tile_m % (16 * c.warps_m) == 0, "a warp's rows are a multiple of 16");
  static_assert(c.tile_n % (16 * c.warps_n) == 0, "a warp's columns are a multiple of 16");
  static_assert(c.tile_k % 16 == 0, "tile_k is whole chunks of 8, an even number of steps");

 public:
  static constexpr DType kSharedDType = DType::kF16;
  static constexpr bool kAsyncA = false, kAsyncB = false;
  static constexpr int kSteps = c.tile_k / 4;
  using LayoutA = padded::Layout<kAlongKA ? c.tile_m : c.tile_k, kAlongKA ? c.tile_k : c.tile_m>;
  using LayoutB = padded::Layout<kAlongKB ? c.tile_n : c.tile_k, kAlongKB ? c.tile_k : c.tile_n>;
  static_assert(kAlongKA == padded::along_k_a(C.shape) && kAlongKB == padded::along_k_b(C.shape),
                "the host counts the tiles' bytes by the same axes");
  static constexpr schedule::Footprint kFootprint = padded::footprint(C.shape, c);
  static constexpr int kSliceRows = kFootprint.slice_rows;
  static constexpr bool kDirect = false;

  struct Fragment {
    unsigned a[kPiecesM][2], b[kPiecesN][2];
  };
  struct Accumulator {
    float v[kPiecesM][kPiecesN][8];
    float rows[kPiecesM][8];  // sums of A's rows, the same in all columns
    __device__ __forceinline__ void clear() {
#pragma unroll
      for (int i = 0; i < kPiecesM; ++i)
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          rows[i][e] = 0.0f;
#pragma unroll
          for (int j = 0; j < kPiecesN; ++j) v[i][j][e] = 0.0f;
        }
    }
  };

  static constexpr bool kSkips = !makes_weights(C.shape.op);
  static constexpr int kWarpRows = kWarpM;
  __device__ __forceinline__ int first_row() const { return warp_m_ * kWarpM; }

  __device__ __forceinline__ explicit Engine(int thread)
      : lane_(thread % 32), warp_m_(thread / 32 / c.warps_n), warp_n_(thread / 32 % c.warps_n) {
    const int quad = lane_ % 4, high = lane_ / 16;
    const int m = warp_m_ * kWarpM + high * 8 + lane_ / 4 % 2 * 4,
              n = warp_n_ * kWarpN + high * 8 + lane_ / 8 % 2 * 4;
    at_a_ = kAlongKA ? LayoutA::byte(m + quad, 0) : LayoutA::byte(quad, m);
    at_b_ = kAlongKB ? LayoutB::byte(n + quad, 0) : LayoutB::byte(quad, n);
  }

  __device__ __forceinline__ void load(Fragment& f, unsigned a, unsigned b, int step) const {
#pragma unroll
    for (int i = 0; i < kPiecesM; ++i)
      ptx::load_shared<8>(
          f.a[i], a + at_a_ + (kAlongKA ? LayoutA::byte(16 * i, 4 * step) : LayoutA::byte(4 * step, 16 * i)));
#pragma unroll
    for (int j = 0; j < kPiecesN; ++j)
      ptx::load_shared<8>(
          f.b[j], b + at_b_ + (kAlongKB ? LayoutB::byte(16 * j, 4 * step) : LayoutB::byte(4 * step, 16 * j)));
  }
  __device__ __forceinline__ void multiply(Accumulator& acc, const Fragment& f) const {
#pragma unroll
    for (int i = 0; i < kPiecesM; ++i)
#pragma unroll
      for (int j = 0; j < kPiecesN; ++j) ptx::mma_m8n8k4<kAlongKA, !kAlongKB>(acc.v[i][j], f.a[i], f.b[j]);
  }
  // A times a column of ones, by the warps of the first column only.
  __device__ __forceinline__ void sum_rows(Accumulator& acc, const Fragment& f) const {
    if (warp_n_ != 0) return;
    const unsigned ones[2] = {0x3c003c00u, 0x3c003c00u};
#pragma unroll
    for (int i = 0; i < kPiecesM; ++i) ptx::mma_m8n8k4<kAlongKA, !kAlongKB>(acc.rows[i], f.a[i], ones);
  }

  // A slice is the same pieces of every warp row.
  static constexpr int kRun = kSliceRows / c.warps_m;
  static __device__ __forceinline__ int tile_row(int slice, int row) {
    return row / kRun * kWarpM + slice * kRun + row % kRun;
  }
  __device__ __forceinline__ void stage(const Accumulator& acc, int slice, float* to, int row_pitch,
                                        int column_pitch) const {
#pragma unroll
    for (int i = 0; i < kPiecesM; ++i) {
      if (i / (kRun / 16) != slice) continue;
#pragma unroll
      for (int j = 0; j < kPiecesN; ++j)
#pragma unroll
        for (int e = 0; e < 8; e += 2) {  // elements e and e + 1 are neighbours in a row
          const int row = warp_m_ * kRun + i % (kRun / 16) * 16 + piece_row(e);
          const int column = warp_n_ * kWarpN + j * 16 + piece_column(e);
          float* const at = to + row * row_pitch + column * column_pitch;
          if (column_pitch == 1) {
            *reinterpret_cast<float2*>(at) = make_float2(acc.v[i][j][e], acc.v[i][j][e + 1]);
          } else {
            at[0] = acc.v[i][j][e];
            at[column_pitch] = acc.v[i][j][e + 1];
          }
        }
    }
  }
  // As rounded_epilogue.cuh asks.
  __device__ __forceinline__ int pair_row() const { return piece_row(0); }
  __device__ __forceinline__ int pair_column() const { return warp_n_ * kWarpN + piece_column(0); }
  template <int kFirst, int kRows, class F>
  __device__ __forceinline__ void each_pair(const Accumulator& acc, F&& f) const {
#pragma unroll
    for (int i = kFirst / 16; i < (kFirst + kRows) / 16; ++i)
#pragma unroll
      for (int j = 0; j < kPiecesN; ++j)
#pragma unroll
        for (int e = 0; e < 8; e += 2)
          f(i * 16 - kFirst + (e & 2), j * 16 + (e & 4) * 2, acc.v[i][j][e], acc.v[i][j][e + 1]);
  }
  __device__ __forceinline__ void stage_row_sums(const Accumulator& acc, float* to) const {
    if (warp_n_ != 0) return;
#pragma unroll
    for (int i = 0; i < kPiecesM; ++i)
#pragma unroll
      for (int e = 0; e < 8; e += 2)
        if (piece_column(e) == 0) to[warp_m_ * kWarpM + i * 16 + piece_row(e)] = acc.rows[i][e];
  }

 private:
  // Element e of a quad pair's 8x8 sums (PTX ISA, m8n8k4 with f32 C and D): row (lane & 1) + (e & 2), and 4
  // more for lanes 16 and up; column (e & 4) + (lane & 2) + (e & 1).
  __device__ __forceinline__ int piece_row(int e) const {
    return lane_ / 16 * 8 + lane_ / 4 % 2 * 4 + (lane_ & 1) + (e & 2);
  }
  __device__ __forceinline__ int piece_column(int e) const {
    return (e & 4) * 2 + lane_ / 8 % 2 * 4 + (lane_ & 2) + (e & 1);
  }

  int lane_, warp_m_, warp_n_;
  unsigned at_a_, at_b_;  // bytes from the start of an operand's stage
};

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  constexpr Config c = C.config;
  if constexpr (StagedShape<OperandA<C>, c.tile_m, c.tile_k, kThreads<C>>::kServed &&
                StagedShape<OperandB<C>, c.tile_n, c.tile_k, kThreads<C>>::kServed)
    gemm_staged<C, Engine<C>>(p);
  else
    gemm<C, Engine<C>>(p);
}
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  reduce_splits<C>(p);
}

}  // namespace trigen::mma_sm70
