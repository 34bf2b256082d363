// grad_weight's outputs: dW from registers or through shared memory and the copy engine, zeros outside the
// triangle, grad_bias.
#pragma once

#include "params.h"
#include "types.cuh"
#include "wgmma_sm90/store.cuh"

namespace trigen::wgmma_sm90 {

// A generic kernel (K = 0) has one tap.
template <Kernel C>
inline constexpr int kTaps = C.shape.K > 1 ? C.shape.K : 1;
template <Kernel C>
inline constexpr bool kShifts = kTaps<C> != 1;

// Rows of a tile, and columns that `Piece::column` counts.
template <Kernel C>
inline constexpr int kEdge = edge_of(C.shape.op, C.config);

template <Kernel C>
__device__ __forceinline__ bool in_triangle(int row, int column, int diag) {
  return C.shape.fill == Fill::kLower ? column <= row + diag : column >= row + diag;
}

// Whether any of the 128 x 128 elements from (row, column) on lies in the matrix and in the triangle. Of
// tiles of 256 x 256 only such quarters are added up.
template <Kernel C>
__device__ __forceinline__ bool touched(int row, int column, int tokens, int diag) {
  return row < tokens && column < tokens &&
         (C.shape.fill == Fill::kLower ? column <= row + 127 + diag : column + 127 >= row + diag);
}

// Writes dW[row, column, tap] and dW[row, column + 1, tap] where they lie in the matrix and in the triangle,
// and zeros where the problem asks for them. `column` is even.
template <Kernel C>
__device__ __forceinline__ void write_pair(const Params& p, int head, int tap, int tokens, int diag, int row,
                                           int column, float v0, float v1) {
  constexpr Shape s = C.shape;
  constexpr DType kW = s.wdtype;
  constexpr bool kPairs = kTaps<C> == 1 && C.config.vec_c > 1;  // one store of two elements is aligned
  if (row >= tokens || column >= tokens) return;
  const bool in0 = in_triangle<C>(row, column, diag), in1 = in_triangle<C>(row, column + 1, diag);
  const bool write0 = in0 || s.zero_outside, write1 = (in1 || s.zero_outside) && column + 1 < tokens;
  if (!write0 && !write1) return;
  auto* const to = static_cast<Storage<kW>*>(p.w) +
                   (head * p.w_head + row * p.w_row + static_cast<long long>(column) * kTaps<C> + tap);
  if constexpr (s.accumulate) {
    if (in0) v0 += to_float<kW>(to[0]);
    if (in1 && write1) v1 += to_float<kW>(to[kTaps<C>]);
  }
  if constexpr (s.zero_outside) {
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
__device__ __forceinline__ void fill_zeros(Storage<kW>* to, long long count, int lane) {
  constexpr int kVec = 16 / kBytes<kW>;
  const auto above = static_cast<int>(reinterpret_cast<unsigned long long>(to) % 16);
  const auto before = static_cast<int>(schedule::clamp((16 - above) % 16 / kBytes<kW>, 0, count));
  if (lane < before) to[lane] = Storage<kW>{};
  to += before;
  count -= before;
  constexpr unsigned kZeros[4] = {};
  for (long long i = lane; i < count / kVec; i += 32) ptx::store_global<16>(to + i * kVec, kZeros);
  const long long rest = count / kVec * kVec + lane;
  if (rest < count) to[rest] = Storage<kW>{};
}

// Zeros into the columns that no tile of their row has: every `warps`th row from `warp` on, of all heads.
template <Kernel C>
__device__ __forceinline__ void write_zeros(const Params& p, const Shares& shares, int heads, int tokens,
                                            int warp, int warps, int lane) {
  constexpr DType kW = C.shape.wdtype;
  const long long rows = static_cast<long long>(heads) * tokens;
  for (long long all = warp; all < rows; all += warps) {
    const long long head = all / tokens, row = all - head * tokens;
    const int tile = static_cast<int>(row / kEdge<C>), first = shares.first(tile);
    const int begin = C.shape.fill == Fill::kLower ? schedule::min(kEdge<C> * shares.span(tile), tokens) : 0;
    const int end = C.shape.fill == Fill::kLower ? tokens : schedule::min(kEdge<C> * first, tokens);
    if (begin < end)
      fill_zeros<kW>(static_cast<Storage<kW>*>(p.w) +
                         (head * p.w_head + row * p.w_row + static_cast<long long>(begin) * kTaps<C>),
                     static_cast<long long>(end - begin) * kTaps<C>, lane);
  }
}

template <Kernel C>
__device__ __forceinline__ void write_bias(const Params& p, int head, int tokens, int row, float v) {
  constexpr DType kW = C.shape.wdtype;
  if (row >= tokens) return;
  auto* const to = static_cast<Storage<kW>*>(p.bias) + (static_cast<long long>(head) * tokens + row);
  *to = from_float<kW>(v + (C.shape.accumulate ? to_float<kW>(*to) : 0.0f));
}

// Stages 32 columns of f32, whose 16 sums a thread begin at `sum`, and stores them. keep(row, column):
// whether an element of the panel keeps its value; else it is zero. Odd rows store their groups of 8 columns
// in another order, so that 16 lanes reach every bank once. (The sums are moved
// first: stored from where they are, ptxas runs the products one after the other, C7520.)
template <Kernel C, class Keep>
__device__ __forceinline__ void store_f32(OutputPanels<C>& output, const float* sum, const TensorMap& map,
                                          int c0, int c1, int c3, const Keep& keep) {
  using G = Geometry<C>;
  const bool leader = threadIdx.x % 128 == 0;
  const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  if (leader) ptx::tma_store_wait_read<G::kStorePanels - 1>();
  ptx::named_barrier(1 + output.group, 128);
  const unsigned target = output.base + output.slot * kPanelBytes;
  const bool odd = row & 1;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned group = odd ? j ^ 2 : j;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned v[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        unsigned here, there;
        asm volatile("mov.b32 %0, %1;" : "=r"(here) : "f"(sum[4 * j + 2 * i + e]));
        asm volatile("mov.b32 %0, %1;" : "=r"(there) : "f"(sum[4 * (j ^ 2) + 2 * i + e]));
        const bool kept = keep(static_cast<int>(row) + 8 * i, static_cast<int>(8 * group + lane % 4 * 2) + e);
        v[e] = !kept ? 0u : odd ? there : here;
      }
      // 128-byte swizzle: 16-byte chunk ^ row % 8.
      const unsigned chunk = (2 * group + lane % 4 / 2) ^ (row & 7);
      ptx::store_shared<8>(target + (row + 8 * i) * 128 + (chunk << 4) + lane % 2 * 8, v);
    }
  }
  ptx::fence_async_shared();
  ptx::named_barrier(1 + output.group, 128);
  if (leader) {
    ptx::tma_store(map, target, c0, c1, 0, c3);
    ptx::tma_store_commit();
  }
  output.slot = output.slot + 1 == G::kStorePanels ? 0 : output.slot + 1;
}

// 64 rows and columns of dW from (row, column) on, whose 32 sums a thread begin at `sum`. A panel inside the
// triangle needs no mask, and one with zeros outside writes every element: they go out through shared memory
// and the copy engine.
template <Kernel C>
__device__ __forceinline__ void store_panel(const Params& p, OutputPanels<C>& output, const float* sum,
                                            const TensorMap& map, int head, int tap, int tokens, int diag,
                                            int row, int column) {
  constexpr Shape s = C.shape;
  constexpr bool kStaged = !s.accumulate && kTaps<C> == 1 && C.config.vec_c == 8;
  const bool inside = s.fill == Fill::kLower ? column + 63 <= row + diag : column >= row + 63 + diag;
  const int lane = static_cast<int>(threadIdx.x % 32),
            own = static_cast<int>(threadIdx.x / 32 % 4 * 16) + lane / 4;
  const auto keeps = [&](int own_row, int own_column) {
    return !s.zero_outside || inside || in_triangle<C>(row + own_row, column + own_column, diag);
  };
  if (kStaged && (inside || s.zero_outside)) {
    if constexpr (s.wdtype == DType::kF32) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        store_f32<C>(output, sum + 16 * i, map, column + 32 * i, row, head,
                     [&](int r, int c) { return keeps(r, 32 * i + c); });
    } else {
      output.store(sum, map, column, row, 0, head, [&](const float* v, int c, unsigned(&r)[2]) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          r[j] = pack<s.dtype>(keeps(own + 8 * j, c) ? v[2 * j] : 0.0f,
                               keeps(own + 8 * j, c + 1) ? v[2 * j + 1] : 0.0f);
      });
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int c = column + 8 * i + lane % 4 * 2;
      write_pair<C>(p, head, tap, tokens, diag, row + own, c, sum[4 * i], sum[4 * i + 1]);
      write_pair<C>(p, head, tap, tokens, diag, row + own + 8, c, sum[4 * i + 2], sum[4 * i + 3]);
    }
  }
}

}  // namespace trigen::wgmma_sm90
