// grad_weight of a Toeplitz matrix: what a multiplying warpgroup's sums have of each diagonal, dw[h, i] = sum over t of
// dW[h, t, t - i], into the workspace. reduce.cuh adds what tiles and parts have of each.
#pragma once

#include "persistent/ring.cuh"
#include "persistent/weight_geometry.cuh"
#include "ptx/memory.cuh"

namespace trigen::persistent::weight {

// The sums of a warpgroup's 64 rows and kColumns columns along their diagonals. A warp adds its 16 rows' in registers: the
// thread's two rows first, then what the rows 4, 2 and 1 below have, 4, 2 and 1 columns further right. The warps' meet in shared
// memory, where the output would be staged, and are added in their order: the same bits in every run.
template <Kernel C, int kColumns>
__device__ __forceinline__ void store_diagonals(const Ring<Geometry<C>>& ring, float* to, const float* sum,
                                                unsigned group) {
  using G = Geometry<C>;
  constexpr int kBefore = 16;  // columns left of the tile, where a warp's diagonals begin in its first row
  constexpr int kEights = (kBefore + kColumns) / 8;
  constexpr int kPitch = kBefore + kColumns, kDiagonals = kPanel + kColumns;
  static_assert(4 * kPitch * 4 <= G::kStorePanels * kPanelBytes, "four warps' diagonals are staged");
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, pair = lane % 4;
  // Diagonals through columns 8 i - kBefore + 2 pair and + 1 of the warp's first row. What a step adds comes from a lane that has
  // not done it for these or for what lies right of them; lanes without rows so far below get what nobody reads.
  float v[kEights + 1][2];
#pragma unroll
  for (int i = 0; i <= kEights; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      v[i][e] = i >= 2 && i < kEights ? sum[4 * (i - 2) + e] : 0.0f;
      if (i >= 1 && i < kEights - 1) v[i][e] += sum[4 * (i - 1) + 2 + e];
    }
#pragma unroll
  for (int i = 0; i < kEights; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) v[i][e] += __shfl_xor_sync(~0u, pair < 2 ? v[i + 1][e] : v[i][e], 4 * 4 + 2);
  const unsigned right = (lane & ~3u) + (pair + 1) % 4;  // the lane of the next two columns
#pragma unroll
  for (int i = 0; i < kEights; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      v[i][e] += __shfl_sync(~0u, pair < 1 ? v[i + 1][e] : v[i][e], (right + 2 * 4) % 32);
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const float next = __shfl_sync(~0u, v[i][1], (lane + 4) % 32),
                after = __shfl_sync(~0u, pair < 1 ? v[i + 1][0] : v[i][0], (right + 4) % 32);
    v[i][0] += next;
    v[i][1] += after;
  }
  const int barrier = 1 + static_cast<int>(group);
  const unsigned staged = ring.base + G::kStages * G::kStageBytes + group * G::kStorePanels * kPanelBytes;
  ptx::named_barrier(barrier, 128);  // those of the work tile before have been read
  if (lane < 4) {
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
      const unsigned words[2] = {__float_as_uint(v[i][0]), __float_as_uint(v[i][1])};
      ptx::store_shared<8>(staged + 4 * (warp * kPitch + 8 * i + 2 * lane), words);
    }
  }
  ptx::named_barrier(barrier, 128);
#pragma unroll
  for (int own = 0; own < kDiagonals; own += 128) {
    const int at = own + static_cast<int>(threadIdx.x % 128);
    float total = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = kColumns - 1 - at + 16 * i;  // of warp i's first row
      unsigned word = 0;
      if (column >= -kBefore && column < kColumns)
        ptx::load_shared<4>(&word, staged + 4 * (i * kPitch + kBefore + column));
      total += __uint_as_float(word);
    }
    if (at < kDiagonals) to[C.config.tile_n - kColumns + at] = total;
  }
}

}  // namespace trigen::persistent::weight
