// The end of a tile whose sums need only be rounded: 16-bit y and dx without bias, activation or other tensors,
// columns contiguous (rounded_epilogue.h). epilogue.cuh does all others.
//
// Sums are rounded on their way into shared memory, so that they take half of its bytes and half of the slices,
// and come back as the vectors that are stored. Every thread has as many vectors of a slice, whose places lie
// constants apart: no loop, and no test where the whole tile lies inside the output.
//
// An Engine has, besides what gemm_staged.cuh asks for,
//   pair_row(), pair_column()              the thread's first two neighbouring sums: in its warp's rows, in the tile
//   each_pair<first, rows>(acc, f)         f(rows, columns from the first, sum, sum) for `rows` of the warp's rows
#pragma once

#include "epilogue.cuh"
#include "rounded_epilogue.h"

namespace trigen {

template <Kernel C, class Engine>
class RoundedTile {
  static constexpr Config c = C.config;
  static constexpr Shape s = C.shape;
  static constexpr int kVec = rounded_tile::kVec, kChunks = rounded_tile::chunks(c);
  static TRIGEN_HOST_DEVICE constexpr unsigned place(int row, int column) {
    return static_cast<unsigned>(row * rounded_tile::pitch(c) + row / 8 % 2 * rounded_tile::kSkew +
                                 2 * column);
  }
  static constexpr int kRows = rounded_tile::slice_rows(c, Engine::kFootprint.total);  // of a slice
  static constexpr int kRun = kRows / c.warps_m;                                       // of these, a warp's
  static constexpr int kStep = rounded_tile::threads(c) / kChunks, kVectors = kRows / kStep;
  static __device__ __forceinline__ constexpr int tile_row(int row) {
    return row / kRun * Engine::kWarpRows + row % kRun;
  }

 public:
  static constexpr bool kRounds = requires(const Engine& engine) { engine.pair_row(); };
  static constexpr bool kServed = kRounds && rounded_tile::serves(s, c, Engine::kFootprint.total);

  __device__ __forceinline__ RoundedTile(const Params& p, const Sizes& z, const schedule::Tile& tile,
                                         int head, int thread, const Engine& engine, unsigned shared)
      : write_(shared + place(engine.first_row() / Engine::kWarpRows * kRun + engine.pair_row(),
                              engine.pair_column())),
        read_(shared + place(thread / kChunks, thread % kChunks * kVec)),
        row_(tile.row * c.tile_m + tile_row(thread / kChunks)),
        column_(tile.column * c.tile_n + thread % kChunks * kVec) {
    const Activations& t = s.op == Op::kForward ? p.y : p.x;
    const int b = column_ / z.D, d = column_ - b * z.D;
    to_ = static_cast<Storage<s.dtype>*>(t.data) + (b * t.batch + head * t.head + row_ * t.row + d);
    pitch_ = t.row;
    whole_ = (tile.row + 1) * c.tile_m <= z.T && (tile.column + 1) * c.tile_n <= z.B * z.D;
    rows_ = column_ < z.B * z.D ? z.T : 0;
  }

  template <int kSlice = 0>
  __device__ __forceinline__ void store(const Engine& engine, const typename Engine::Accumulator& acc) const {
    __syncthreads();
    engine.template each_pair<kSlice * kRun, kRun>(acc, [&](int row, int column, float low, float high) {
      const unsigned pair = pack<s.dtype>(low, high);
      ptx::store_shared<4>(write_ + place(row, column), &pair);
    });
    __syncthreads();
    if (whole_)
      store_vectors<kSlice, true>();
    else
      store_vectors<kSlice, false>();
    if constexpr ((kSlice + 1) * kRows < c.tile_m) store<kSlice + 1>(engine, acc);
  }

 private:
  // A few reads ahead of their stores.
  template <int kSlice, bool kWhole>
  __device__ __forceinline__ void store_vectors() const {
    constexpr int kAtOnce = kVectors < 4 ? kVectors : 4;
#pragma unroll
    for (int first = 0; first < kVectors; first += kAtOnce) {
      unsigned v[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) ptx::load_shared<16>(v[i], read_ + place((first + i) * kStep, 0));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = kSlice * kRun + tile_row((first + i) * kStep);
        if (kWhole || row_ + row < rows_) ptx::store_global<16>(to_ + row * pitch_, v[i]);
      }
    }
  }

  unsigned write_, read_;  // shared memory: this thread's first pair and its first vector
  int row_, column_;       // of its first vector
  int rows_;               // of the output, where its columns are inside
  Storage<s.dtype>* to_;
  long long pitch_;  // elements from row to row
  bool whole_;       // is all of the tile inside the output?
};

}  // namespace trigen
