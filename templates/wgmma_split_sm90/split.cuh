// The first launch: f32 operands become planes of f16. With s a power of two that is one for 64 elements
// along k, v s = v0 + v1, v0 = f16(v s), v1 = f16(v s - v0): 11 bits each and v1's sign, which is 23 of
// v's 24 where |v| is at least 2^-16 of the largest of the 64, and an error below 2^-39 of the largest
// elsewhere. Masked weights and elements outside the tensor are zeros. A value that is not finite is v0
// alone.
#pragma once

#include "matrices.cuh"
#include "params.h"
#include "ptx/convert.cuh"
#include "ptx/memory.cuh"
#include "wgmma_split_sm90.h"

namespace trigen::wgmma_split_sm90 {

// The exponent byte of 1 / s: s takes the largest of the 64, of magnitude `bits`, to [2^14, 2^15).
__device__ __forceinline__ unsigned scale_of(unsigned bits) {
  const unsigned exponent = bits >> 23;
  return (exponent < 15 ? 15 : exponent) - 14;
}

__device__ __forceinline__ unsigned finite_magnitude(float v) {
  const unsigned bits = __float_as_uint(v) & 0x7fffffffu;
  return bits < 0x7f800000u ? bits : 0;
}

// Offset of byte `line` of a box's 64 scales. B's: a thread of a warpgroup has columns 8 j + 2 (lane % 4) +
// {0, 1} of the sums and reads theirs at once.
template <bool kIsB>
__device__ __forceinline__ int scale_place(int line) {
  return kIsB ? line % 8 / 2 * 16 + line / 8 * 2 + line % 2 : line;
}

// One box. Thread: columns 4 (thread % 16) + 0 to 3 of rows thread / 16 + 16 i. kAlongRows: the 64 elements
// of a scale are a row's, else a column's. row_sums: null, or where the sums of the 64 rows go.
template <bool kAlongRows, bool kIsB>
__device__ __forceinline__ void write_box(float (&v)[4][4], unsigned char* planes, unsigned char* scales,
                                          float* row_sums, unsigned (&largest)[8][64]) {
  const int thread = static_cast<int>(threadIdx.x), quad = thread % 16, first = thread / 16;
  const int warp = thread / 32, lane = thread % 32;
  unsigned most[4];  // of the rows, or of the columns
  if constexpr (kAlongRows) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      most[i] = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) most[i] = max(most[i], finite_magnitude(v[i][j]));
#pragma unroll
      for (int step = 8; step > 0; step /= 2)
        most[i] = max(most[i], __shfl_xor_sync(0xffffffffu, most[i], step));
    }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      most[j] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) most[j] = max(most[j], finite_magnitude(v[i][j]));
      most[j] = max(most[j], __shfl_xor_sync(0xffffffffu, most[j], 16));
      if (lane < 16) largest[warp][4 * quad + j] = most[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int w = 0; w < 8; ++w) most[j] = max(most[j], largest[w][4 * quad + j]);
  }
  if (row_sums != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = (v[i][0] + v[i][1]) + (v[i][2] + v[i][3]);
#pragma unroll
      for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (quad == 0) row_sums[first + 16 * i] = sum;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = first + 16 * i;
    float low[4], high[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // 1 / scale: the exponents of both add up to that of one.
      const float scaled = v[i][j] * __uint_as_float((254 - scale_of(most[kAlongRows ? i : j])) << 23);
      high[j] = ptx::f16_to_f32(ptx::f32_to_f16(scaled));
      low[j] = (__float_as_uint(scaled) & 0x7f800000u) == 0x7f800000u ? 0.0f : scaled - high[j];
    }
    // 128-byte swizzle: 16-byte chunk ^ row % 8.
    unsigned char* to = planes + row * 128 + ((quad / 2 ^ (row & 7)) << 4) + quad % 2 * 8;
    const unsigned w0[2] = {ptx::f32x2_to_f16x2(high[0], high[1]), ptx::f32x2_to_f16x2(high[2], high[3])};
    const unsigned w1[2] = {ptx::f32x2_to_f16x2(low[0], low[1]), ptx::f32x2_to_f16x2(low[2], low[3])};
    ptx::store_global<8>(to, w0);
    ptx::store_global<8>(to + kPanelBytes, w1);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kAlongRows) {
      if (quad == 0)
        scales[scale_place<kIsB>(first + 16 * i)] = static_cast<unsigned char>(scale_of(most[i]));
    } else {
      if (first == 0) scales[scale_place<kIsB>(4 * quad + i)] = static_cast<unsigned char>(scale_of(most[i]));
    }
  }
}

// Rows [first_row, ...) and columns [first_column, ...) of a matrix of rows x columns; zeros outside.
template <int kVec>
__device__ __forceinline__ void read_box(float (&v)[4][4], const float* from, long long pitch, int first_row,
                                         int first_column, int rows, int columns) {
  const int thread = static_cast<int>(threadIdx.x), column = first_column + thread % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = first_row + thread / 16 + 16 * i;
    const float* at = from + row * pitch + column;
#pragma unroll
    for (int j = 0; j < 4; ++j) v[i][j] = 0.0f;
    if constexpr (kVec == 4) {
      if (row < rows && column < columns) {
        const float4 w = *reinterpret_cast<const float4*>(at);
        v[i][0] = w.x, v[i][1] = w.y, v[i][2] = w.z, v[i][3] = w.w;
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (row < rows && column + j < columns) v[i][j] = at[j];
    }
  }
}

// One block for each box: A's, then B's. kSplitThreads threads.
template <Kernel C>
__device__ __forceinline__ void split_operands(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr bool kWeight = makes_weights(s.op);
  const int tokens = s.T ? s.T : p.T, features = s.D ? s.D : p.D, heads = s.H ? s.H : p.H;
  const int diag = s.T ? s.diag : p.diag;
  const Workspace ws(s.op, s.bias, p.B, heads, tokens, features, 0);
  auto* const base = static_cast<unsigned char*>(p.workspace);
  extern __shared__ __align__(1024) unsigned char split_shared[];
  auto& largest = *reinterpret_cast<unsigned(*)[8][64]>(split_shared);
  float v[4][4];
  const long long box = blockIdx.x;
  if (!kWeight && box < ws.a_boxes) {
    const auto pair = static_cast<int>(box % (static_cast<long long>(ws.blocks) * ws.blocks));
    const auto head = static_cast<int>(box / (static_cast<long long>(ws.blocks) * ws.blocks));
    const int row = pair / ws.blocks * 64, column = pair % ws.blocks * 64;
    if (s.fill == Fill::kLower ? column > row + 63 + diag : column + 63 < row + diag) return;
    read_box<C.config.vec_a>(v, static_cast<const float*>(p.w) + head * p.w_head, p.w_row, row, column,
                             tokens, tokens);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int t = row + static_cast<int>(threadIdx.x) / 16 + 16 * i,
                  k = column + static_cast<int>(threadIdx.x) % 16 * 4 + j;
        if (s.fill == Fill::kLower ? k > t + diag : k < t + diag) v[i][j] = 0.0f;
      }
    write_box<s.op == Op::kForward, false>(v, base + ws.a + box * kBoxBytes,
                                           base + ws.a_scales + box * kScaleBytes, nullptr, largest);
    return;
  }
  const bool is_a = kWeight && box < ws.a_boxes;
  const long long index = is_a ? box : box - ws.a_boxes;
  const auto panel = static_cast<int>(index % ws.panels);
  const long long rest = index / ws.panels;
  const auto block = static_cast<int>(rest % ws.blocks);
  const auto head = static_cast<int>(rest / ws.blocks % heads),
             batch = static_cast<int>(rest / ws.blocks / heads);
  const auto& own = at_head<C>(p, head);
  const Activations& from = is_a || s.op == Op::kGradInput ? own.y : own.x;
  constexpr int kVec = kWeight && C.config.vec_a < C.config.vec_b ? C.config.vec_a : C.config.vec_b;
  read_box<kVec>(v, static_cast<const float*>(from.data) + batch * from.batch + head * from.head, from.row,
                 64 * block, 64 * panel, tokens, features);
  if (is_a) {
    float* sums = !s.bias ? nullptr
                          : reinterpret_cast<float*>(base + ws.row_sums) +
                                ((static_cast<long long>(head) * p.B + batch) * ws.panels + panel) *
                                    (64ll * ws.blocks) +
                                64 * block;
    write_box<true, false>(v, base + ws.a + index * kBoxBytes, base + ws.a_scales + index * kScaleBytes, sums,
                           largest);
  } else {
    write_box<kWeight, true>(v, base + ws.b + index * kBoxBytes, base + ws.b_scales + index * kScaleBytes,
                             nullptr, largest);
  }
}

}  // namespace trigen::wgmma_split_sm90
