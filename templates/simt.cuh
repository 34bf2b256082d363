// Family simt: f32 multiply-adds on the ordinary cores. Every target, every dtype; the only way for f32 math
// and for bf16 before sm_80.
//
// A thread owns a block of rows and columns made of pieces of 4: a warp is 8 threads along m and 4 along n,
// the pieces of neighbouring threads are neighbours, so that a warp's 16-byte reads of A are one row of 128
// bytes without conflicts and those of B 64 bytes that all rows share.
#pragma once

#include "gemm.cuh"
#include "reduce.cuh"

namespace trigen::simt {

template <Kernel C>
inline constexpr int kThreads = kTileThreads<C>;

// f32, k outermost: both operands end up contiguous along m or n.
template <int kMn, int kDepth, bool kContiguousIsK>
struct Layout {
  static constexpr int kPitch = kMn + schedule::kSimtPad;
  static constexpr int kBytes = 4 * kDepth * kPitch;
  static constexpr bool kVectors = !kContiguousIsK;
  static __device__ __forceinline__ unsigned byte(int strided, int contiguous) {
    return 4 * (kContiguousIsK ? contiguous * kPitch + strided : strided * kPitch + contiguous);
  }
};

template <Kernel C>
class Engine {
  static constexpr Config c = C.config;
  static constexpr int kThreadsM = 8 * c.warps_m, kThreadsN = 4 * c.warps_n;
  static constexpr int kPiecesM = c.tile_m / (4 * kThreadsM), kPiecesN = c.tile_n / (4 * kThreadsN);
  static_assert(c.tile_m % (4 * kThreadsM) == 0, "tile_m is a multiple of 32 rows per warp row");
  static_assert(c.tile_n % (4 * kThreadsN) == 0, "tile_n is a multiple of 16 columns per warp column");

 public:
  static constexpr DType kSharedDType = DType::kF32;
  static constexpr bool kAsyncA = false, kAsyncB = false;
  static constexpr int kSteps = c.tile_k;
  using LayoutA = Layout<c.tile_m, c.tile_k, OperandA<C>::kContiguousIsK>;
  using LayoutB = Layout<c.tile_n, c.tile_k, OperandB<C>::kContiguousIsK>;
  static constexpr schedule::Footprint kFootprint = schedule::simt_footprint(C.shape, c);
  static constexpr int kSliceRows = kFootprint.slice_rows;
  static constexpr bool kDirect = false;

  struct Fragment {
    float a[4 * kPiecesM], b[4 * kPiecesN];
  };
  struct Accumulator {
    float v[4 * kPiecesM][4 * kPiecesN];
    float rows[4 * kPiecesM];
    __device__ __forceinline__ void clear() {
#pragma unroll
      for (int i = 0; i < 4 * kPiecesM; ++i) {
        rows[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < 4 * kPiecesN; ++j) v[i][j] = 0.0f;
      }
    }
  };

  __device__ __forceinline__ explicit Engine(int thread)
      : m_(thread / 32 / c.warps_n * 8 + thread % 32 / 4), n_(thread / 32 % c.warps_n * 4 + thread % 4) {}

  __device__ __forceinline__ void load(Fragment& f, unsigned a, unsigned b, int step) const {
    unsigned w[4];
#pragma unroll
    for (int i = 0; i < kPiecesM; ++i) {
      ptx::load_shared<16>(w, a + 4 * (step * LayoutA::kPitch + 4 * (i * kThreadsM + m_)));
#pragma unroll
      for (int e = 0; e < 4; ++e) f.a[4 * i + e] = __uint_as_float(w[e]);
    }
#pragma unroll
    for (int j = 0; j < kPiecesN; ++j) {
      ptx::load_shared<16>(w, b + 4 * (step * LayoutB::kPitch + 4 * (j * kThreadsN + n_)));
#pragma unroll
      for (int e = 0; e < 4; ++e) f.b[4 * j + e] = __uint_as_float(w[e]);
    }
  }
  __device__ __forceinline__ void multiply(Accumulator& acc, const Fragment& f) const {
#pragma unroll
    for (int i = 0; i < 4 * kPiecesM; ++i)
#pragma unroll
      for (int j = 0; j < 4 * kPiecesN; ++j) acc.v[i][j] += f.a[i] * f.b[j];
  }
  __device__ __forceinline__ void sum_rows(Accumulator& acc, const Fragment& f) const {
#pragma unroll
    for (int i = 0; i < 4 * kPiecesM; ++i) acc.rows[i] += f.a[i];
  }

  // A slice is whole pieces of all threads: its rows are consecutive rows of the tile.
  static __device__ __forceinline__ int tile_row(int slice, int row) { return slice * kSliceRows + row; }
  __device__ __forceinline__ void stage(const Accumulator& acc, int slice, float* to, int row_pitch,
                                        int column_pitch) const {
    constexpr int kPieces = kSliceRows / (4 * kThreadsM);
#pragma unroll
    for (int i = 0; i < 4 * kPiecesM; ++i) {
      if (i / (4 * kPieces) != slice) continue;
      const int row = ((i / 4 % kPieces) * kThreadsM + m_) * 4 + i % 4;
#pragma unroll
      for (int j = 0; j < 4 * kPiecesN; ++j) {
        const int column = (j / 4 * kThreadsN + n_) * 4 + j % 4;
        to[row * row_pitch + column * column_pitch] = acc.v[i][j];
      }
    }
  }
  __device__ __forceinline__ void stage_row_sums(const Accumulator& acc, float* to) const {
    if (n_ != 0) return;
#pragma unroll
    for (int i = 0; i < 4 * kPiecesM; ++i) to[(i / 4 * kThreadsM + m_) * 4 + i % 4] = acc.rows[i];
  }

 private:
  int m_, n_;  // this thread's place along m and n
};

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  gemm<C, Engine<C>>(p);
}
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  reduce_splits<C>(p);
}

}  // namespace trigen::simt
