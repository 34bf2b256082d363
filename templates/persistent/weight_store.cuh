// grad_weight's outputs from registers: dW, zeros outside the triangle, grad_bias.
#pragma once

#include "gram.cuh"
#include "params.h"
#include "persistent/grad_weight.h"
#include "ptx/memory.cuh"
#include "types.cuh"

namespace trigen::persistent::weight {

// A generic kernel (K = 0) has one tap.
template <Kernel C>
inline constexpr int kTaps = C.shape.K > 1 ? C.shape.K : 1;
template <Kernel C>
inline constexpr bool kShifts = kTaps<C> != 1;

// Rows of a tile, and columns that `WorkTile::column` counts.
template <Kernel C>
inline constexpr int kEdge = edge_of(C.config);

template <Kernel C>
__device__ __forceinline__ bool in_triangle(int row, int column, int diag) {
  return C.shape.fill == Fill::kLower ? column <= row + diag : column >= row + diag;
}

// Tokens of a band's row.
template <Kernel C>
__device__ __forceinline__ int band_width(const Params& p) {
  return C.shape.T ? C.shape.width : p.width;
}

// True if any of the 128 x 128 elements from (row, column) on lies in the matrix and in the triangle, or in the band. Of
// tiles of 256 x 256 only such quarters are added up.
template <Kernel C>
__device__ __forceinline__ bool touched(const Params& p, int row, int column, int tokens, int diag) {
  return row < tokens && column < tokens &&
         (C.shape.fill == Fill::kLower ? column <= row + 127 + diag : column + 127 >= row + diag) &&
         (!kBand<C> || row - (column + 127) < band_width<C>(p));
}

// Writes dW[row, column, tap] and dW[row, column + 1, tap] where they lie in the matrix and in the triangle,
// and zeros where the problem asks for them; of a band, what lies in the band alone. `column` is even.
template <Kernel C>
__device__ __forceinline__ void write_pair(const Params& p, int head, int tap, int tokens, int diag, int row,
                                           int column, float v0, float v1) {
  constexpr Shape s = C.shape;
  constexpr DType kW = s.wdtype;
  constexpr bool kPairs = kTaps<C> == 1 && C.config.vec_c > 1;  // one store of two elements is aligned
  constexpr bool kZeros = fills_outside(s);
  if (row >= tokens || column >= tokens) return;
  const auto inside = [&](int at) {
    return in_triangle<C>(row, at, diag) && (!kBand<C> || row - at < band_width<C>(p));
  };
  const bool in0 = inside(column), in1 = inside(column + 1);
  const bool write0 = in0 || kZeros, write1 = (in1 || kZeros) && column + 1 < tokens;
  if (!write0 && !write1) return;
  auto* const to =
      static_cast<Storage<kW>*>(matrix_origin<C>(p.w, p.w_head, head)) +
      (matrix_offset<C>(p.w_head, head) + row * p.w_row + static_cast<long long>(column) * kTaps<C> + tap +
       (kBand<C> ? band_width<C>(p) - 1 - row : 0));
  if constexpr (s.op == Op::kGram) {
    gram::values<C>(p, head, row, column, tokens, v0, v1);
    if (in0) gram::mirror<C>(p, head, row, column, v0);
    if (in1 && write1) gram::mirror<C>(p, head, row, column + 1, v1);
  }
  if constexpr (s.accumulate) {
    if (in0) v0 += to_float<kW>(to[0]);
    if (in1 && write1) v1 += to_float<kW>(to[kTaps<C>]);
  }
  if constexpr (kZeros) {
    if (!in0) v0 = 0.0f;
    if (!in1) v1 = 0.0f;
  }
  if (kPairs && write0 && write1) {
    if constexpr (kW == DType::kF32)
      *reinterpret_cast<float2*>(to) = make_float2(v0, v1);
    else
      *reinterpret_cast<unsigned*>(to) = pack<kW>(v0, v1);
    return;
  }
  if (write0) to[0] = from_float<kW>(v0);
  if (write1) to[kTaps<C>] = from_float<kW>(v1);
}

// One warp fills [to, to + count) with zeros.
template <DType kW>
__device__ __forceinline__ void fill_zeros(Storage<kW>* to, int count, int lane) {
  constexpr int kVec = 16 / kBytes<kW>;
  const auto above = static_cast<int>(reinterpret_cast<unsigned long long>(to) % 16);
  const int before = schedule::min((16 - above) % 16 / kBytes<kW>, count);
  if (lane < before) to[lane] = Storage<kW>{};
  to += before;
  count -= before;
  constexpr unsigned kZeros[4] = {};
  for (int i = lane; i < count / kVec; i += 32) ptx::store_global<16>(to + i * kVec, kZeros);
  const int rest = count / kVec * kVec + lane;
  if (rest < count) to[rest] = Storage<kW>{};
}

// Zeros that a warp writes between two pauses, in bytes.
inline constexpr int kZerosAtOnce = 2048;

// Nanoseconds of such a pause, so that a large product's zeros spread over most of it. All
// at once at the start they delay the loads, which multiplying never makes up for, and the blocks no longer
// read the same k at the same time.
template <Kernel C>
__device__ __forceinline__ unsigned pause_of_zeros(const StreamK& stream_k, int heads, int blocks) {
  constexpr int kStep = 3 * C.config.tile_n / 2;  // half of what a k block takes an SM, in nanoseconds
  constexpr int kLeastPause = 200, kMostPause = 100000;
  if (kBand<C>) return 0;  // few
  const long long steps =
      static_cast<long long>(stream_k.wide + stream_k.narrow) * stream_k.depth * C.config.cluster / blocks;
  const int taken = (stream_k.wide * stream_k.unit + stream_k.narrow) / kTaps<C>;  // tiles, of all heads
  const long long tiles = static_cast<long long>(heads) * stream_k.rows * stream_k.rows - taken;
  const long long writes =
      tiles * (kEdge<C> * kEdge<C> * kBytes<C.shape.wdtype> / kZerosAtOnce) * kTaps<C> / (3 * blocks) + 1;
  const long long pause = steps * kStep / writes;
  return pause < kLeastPause ? 0 : static_cast<unsigned>(schedule::clamp(pause, 0, kMostPause));
}

// Zeros into the columns that no tile of their row has, or a band's elements left of token 0: every `warps`th row from `warp`
// on, of all heads.
template <Kernel C>
__device__ __forceinline__ void write_zeros(const Params& p, const StreamK& stream_k, int heads, int tokens,
                                            int warp, int warps, int lane, unsigned pause = 0) {
  constexpr DType kW = C.shape.wdtype;
  constexpr int kPiece = kZerosAtOnce / kBytes<kW>;
  const long long rows = static_cast<long long>(heads) * tokens;
  int written = 0;  // since the last pause
  for (long long all = warp; all < rows; all += warps) {
    const long long head = all / tokens, row = all - head * tokens;
    const int tile = static_cast<int>(row / kEdge<C>), first = stream_k.first(tile);
    const int begin =
        C.shape.fill == Fill::kLower && !kBand<C> ? schedule::min(kEdge<C> * stream_k.span(tile), tokens) : 0;
    const int end = kBand<C> ? schedule::max(begin, band_width<C>(p) - 1 - static_cast<int>(row))
                    : C.shape.fill == Fill::kLower ? tokens
                                                   : schedule::min(kEdge<C> * first, tokens);
    auto* to = static_cast<Storage<kW>*>(p.w) +
               (head * p.w_head + row * p.w_row + static_cast<long long>(begin) * kTaps<C>);
    auto* const behind = to + static_cast<long long>(end - begin) * kTaps<C>;
    for (; to < behind; to += kPiece) {
      const int now = static_cast<int>(schedule::clamp(behind - to, 0, kPiece));
      fill_zeros<kW>(to, now, lane);
      written += now;
      if (pause > 0 && written >= kPiece) {
        ptx::nanosleep(pause);
        written -= kPiece;
      }
    }
  }
}

template <Kernel C>
__device__ __forceinline__ void write_bias(const Params& p, int head, int tokens, int row, float v) {
  constexpr DType kW = C.shape.wdtype;
  if (row >= tokens) return;
  auto* const to = static_cast<Storage<kW>*>(p.bias) + (static_cast<long long>(head) * tokens + row);
  *to = from_float<kW>(v + (C.shape.accumulate ? to_float<kW>(*to) : 0.0f));
}

}  // namespace trigen::persistent::weight
