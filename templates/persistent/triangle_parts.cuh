// Parts of gram's whole triangles (whole_triangle.cuh) and the launch that adds them. A part is a row of pieces of 16 rows and 8 columns,
// as a warp of wgmma has them, those alone that the triangle meets: four sums a lane, 512 bytes.
#pragma once

#include "persistent/grad_weight.cuh"

namespace trigen::persistent::weight {

// Pieces of rows 16 `row` and on: columns 8 first(row) to 8 end(row).
template <Kernel C>
struct TrianglePieces {
  static constexpr int kRows = schedule::ceil_div(C.shape.T, 16), kColumns = schedule::ceil_div(C.shape.T, 8);
  __device__ __forceinline__ static constexpr int first(int row) {
    return C.shape.fill == Fill::kLower ? 0 : 2 * row;
  }
  __device__ __forceinline__ static constexpr int end(int row) {
    return C.shape.fill == Fill::kLower ? schedule::min(2 * row + 2, kColumns) : kColumns;
  }
  // Those of rows before, of all pieces of a part.
  __device__ __forceinline__ static constexpr int before(int row) {
    return C.shape.fill == Fill::kLower ? row * (row + 1) : row * kColumns - row * (row - 1);
  }
  static constexpr int kCount = before(kRows - 1) + end(kRows - 1) - first(kRows - 1);
};

// Warps that share a piece's parts, and parts that one has under way.
template <Kernel C>
inline constexpr int kPieceWarps = C.config.split_k > 32   ? 8
                                   : C.config.split_k > 16 ? 4
                                   : C.config.split_k > 8  ? 2
                                                           : 1;
template <Kernel C>
inline constexpr int kPieceLoads = schedule::min(schedule::ceil_div(C.config.split_k, kPieceWarps<C>), 8);

// 256 threads.
template <Kernel C>
__device__ __forceinline__ void reduce_triangles(const Params& p) {
  using Pieces = TrianglePieces<C>;
  constexpr int kWarps = kReduceThreads / 32, kShare = kPieceWarps<C>, kAtOnce = kWarps / kShare,
                kLoads = kPieceLoads<C>;
  ptx::let_next_launch_start();  // it waits for the end of this one, which waits for the product's
  auto* const partial = reinterpret_cast<float4*>(shared_memory());
  const Extents<C> z(p);
  const StreamK stream_k = stream_k_of<C>(p, z, static_cast<int>(gridDim.x) / reduce_blocks(C.config));
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int share = warp % kShare;
  ptx::wait_for_launches_before();
#pragma unroll 1
  for (int base = static_cast<int>(blockIdx.x) * kAtOnce; base < z.heads * Pieces::kCount;
       base += static_cast<int>(gridDim.x) * kAtOnce) {
    const int all = base + warp / kShare;
    const bool any = all < z.heads * Pieces::kCount;
    const int head = all / Pieces::kCount, piece = all - head * Pieces::kCount;
    float4 sum = make_float4(0, 0, 0, 0);
    if (any) {
      const int begin = stream_k.split * share / kShare, end = stream_k.split * (share + 1) / kShare;
      const float4* from = reinterpret_cast<const float4*>(static_cast<const float*>(p.workspace) +
                                                           stream_k.slot(head * stream_k.split + begin)) +
                           piece * 32 + lane;
      const int size = stream_k.wide_sums() / 4;
#pragma unroll 1
      for (int left = end - begin; left > 0; left -= kLoads) {
        float4 v[kLoads];
#pragma unroll
        for (int j = 0; j < kLoads; ++j) v[j] = j < left ? from[j * size] : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < kLoads; ++j) sum.x += v[j].x, sum.y += v[j].y, sum.z += v[j].z, sum.w += v[j].w;
        from += kLoads * size;
      }
    }
    if constexpr (kShare > 1) {
      __syncthreads();  // the pieces before have been read
      partial[threadIdx.x] = sum;
      __syncthreads();
      if (share != 0) continue;
#pragma unroll
      for (int i = 1; i < kShare; ++i) {
        const float4 v = partial[threadIdx.x + 32 * i];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
    }
    if (!any) continue;
    int row = 0;
#pragma unroll 1
    while (row + 1 < Pieces::kRows && Pieces::before(row + 1) <= piece) ++row;
    const int column = 8 * (piece - Pieces::before(row) + Pieces::first(row)) + lane % 4 * 2,
              first_row = 16 * row + lane / 4;
    write_pair<C>(p, head, 0, z.tokens, 0, first_row, column, sum.x, sum.y);
    write_pair<C>(p, head, 0, z.tokens, 0, first_row + 8, column, sum.z, sum.w);
  }
}

}  // namespace trigen::persistent::weight
