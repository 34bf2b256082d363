// The launch before grad_input: W's transpose into the workspace, rounded to tf32, with zeros where the
// triangle ends.
#pragma once

#include "params.h"
#include "ptx/convert.cuh"
#include "wgmma_tf32_sm90.h"

namespace trigen::wgmma_tf32_sm90 {

// kTransposeThreads threads; one block of the grid for each 64 x 64 block of W: x counts s, y counts t, z
// heads.
template <Kernel C>
__device__ __forceinline__ void transpose(const Params& p) {
  constexpr int kEdge = kTransposeEdge, kRows = kTransposeThreads / 32;
  constexpr bool kLower = C.shape.fill == Fill::kLower;
  __shared__ float tile[kEdge][kEdge + 1];
  const int tokens = C.shape.T ? C.shape.T : p.T, diag = C.shape.T ? C.shape.diag : p.diag;
  const int t0 = static_cast<int>(blockIdx.y) * kEdge, s0 = static_cast<int>(blockIdx.x) * kEdge;
  const int head = static_cast<int>(blockIdx.z);
  if (kLower ? s0 > t0 + kEdge - 1 + diag : s0 + kEdge - 1 < t0 + diag) return;
  const int pitch = transposed_pitch(tokens);
  const auto* from = static_cast<const float*>(p.w) + head * p.w_head;
  auto* to = static_cast<float*>(p.workspace) + static_cast<long long>(head) * tokens * pitch;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < kEdge / kRows; ++i) {
    const int t = t0 + warp + kRows * i;
#pragma unroll
    for (int j = 0; j < kEdge / 32; ++j) {
      const int s = s0 + lane + 32 * j;
      const bool kept = t < tokens && s < tokens && (kLower ? s <= t + diag : s >= t + diag);
      const float v = kept ? from[t * p.w_row + s] : 0.0f;
      tile[t - t0][s - s0] = __uint_as_float(ptx::f32_to_tf32(__float_as_uint(v)));
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kEdge / kRows; ++i) {
    const int s = s0 + warp + kRows * i;
#pragma unroll
    for (int j = 0; j < kEdge / 32; ++j) {
      const int t = t0 + lane + 32 * j;
      if (s < tokens && t < pitch) to[static_cast<long long>(s) * pitch + t] = tile[t - t0][s - s0];
    }
  }
}

}  // namespace trigen::wgmma_tf32_sm90
