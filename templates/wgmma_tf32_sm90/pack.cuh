// The packing launch, for products that cannot read W in place: W (forward, rows that are not 16-byte
// aligned or hold taps) or its transpose (grad_input) into the workspace, tap-major, rounded to tf32, with zeros
// where the triangle ends.
#pragma once

#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/convert.cuh"
#include "ptx/memory.cuh"
#include "types.cuh"
#include "wgmma_tf32_sm90.h"

namespace trigen::wgmma_tf32_sm90 {

// kPackThreads threads; one block of the grid for each block of 64 t by pack_tokens s of W, s innermost, heads
// outermost: all along x, the one axis that takes more than 65535.
template <Kernel C>
__device__ __forceinline__ void pack_weights(const Params& p) {
  constexpr int kEdge = kPackEdge, kRows = kPackThreads / 32;
  constexpr int kTaps = schedule::max(1, C.shape.K), kTokens = pack_tokens(kTaps), kColumns = kTokens * kTaps;
  constexpr bool kLower = C.shape.fill == Fill::kLower, kTransposed = C.shape.op == Op::kGradInput;
  extern __shared__ __align__(16) unsigned char tf32_packed_shared[];
  auto* tile = reinterpret_cast<float(*)[kEdge + 1]>(tf32_packed_shared);
  const int tokens = C.shape.T ? C.shape.T : p.T, diag = C.shape.T ? C.shape.diag : p.diag;
  const int across = schedule::ceil_div(tokens, kTokens), down = schedule::ceil_div(tokens, kEdge);
  const int line = static_cast<int>(blockIdx.x) / across, head = line / down;
  const int t0 = (line - head * down) * kEdge, s0 = (static_cast<int>(blockIdx.x) - line * across) * kTokens;
  ptx::let_next_launch_start();  // it waits for what is written here before it reads anything
  // Products read whole blocks of 64 x 64.
  if (kLower ? s0 / kEdge * kEdge > t0 + kEdge - 1 + diag
             : (s0 + kTokens - 1) / kEdge * kEdge + kEdge - 1 < t0 + diag)
    return;
  const int pitch = packed_pitch(tokens);
  const auto* from = static_cast<const float*>(p.w) + head * p.w_head + s0 * kTaps;
  auto* to = static_cast<float*>(p.workspace) + static_cast<long long>(head) * kTaps * tokens * pitch;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  // W's lines, into the L2 while the launch ahead ends; no value is read.
  constexpr int kLine = 128 / kBytes<DType::kF32>, kLines = kColumns / kLine + 1;
  const int available = schedule::min(kColumns, (tokens - s0) * kTaps);
  for (int i = static_cast<int>(threadIdx.x); i < kEdge * kLines; i += kPackThreads)
    if (const int t = t0 + i / kLines; t < tokens)
      ptx::prefetch_l2(from + t * p.w_row + schedule::min(i % kLines * kLine, available - 1));
  ptx::wait_for_launches_before();
#pragma unroll
  for (int i = 0; i < kEdge / kRows; ++i) {
    const int row = warp + kRows * i, t = t0 + row;
#pragma unroll
    for (int j = 0; j < kEdge / 32; ++j) {
      const int column = lane + 32 * j, s = s0 + column / kTaps;
      const bool kept =
          column < kColumns && t < tokens && s < tokens && (kLower ? s <= t + diag : s >= t + diag);
      const float v =
          __uint_as_float(ptx::f32_to_tf32(kept ? __float_as_uint(from[t * p.w_row + column]) : 0));
      if constexpr (kTransposed)
        tile[row][column] = v;
      else if (column < kColumns && t < tokens && s < pitch)
        to[(static_cast<long long>(column % kTaps) * tokens + t) * pitch + s] = v;
    }
  }
  if constexpr (kTransposed) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEdge / kRows; ++i) {
      const int column = warp + kRows * i, s = s0 + column / kTaps;
      if (column >= kColumns || s >= tokens) continue;
#pragma unroll
      for (int j = 0; j < kEdge / 32; ++j) {
        const int row = lane + 32 * j, t = t0 + row;
        if (t < pitch)
          to[(static_cast<long long>(column % kTaps) * tokens + s) * pitch + t] = tile[row][column];
      }
    }
  }
}

}  // namespace trigen::wgmma_tf32_sm90
