// grad_weight on planes: A = dy, B = x, both K-major, k = (b, d) in blocks of 64 features. persistent/stream_k.h divides the work among
// the blocks, with tiles of 128 x 128 of which none is narrow. Here the planes are those that the first launch wrote, and grad_bias
// comes from the row sums that it left; inside.cuh splits in the product's own launch.
#pragma once

#include "params.h"
#include "persistent/weight_store.cuh"
#include "wgmma_split_sm90/pipeline.cuh"

namespace trigen::wgmma_split_sm90 {

using persistent::weight::write_bias;
using persistent::weight::write_pair;

template <Kernel C>
struct WeightSizes : persistent::Extents<C> {
  int depth;
  __device__ __forceinline__ explicit WeightSizes(const Params& p)
      : persistent::Extents<C>(p), depth(p.B * schedule::ceil_div(this->features, kPanel)) {}
};

template <Kernel C>
__device__ __forceinline__ persistent::StreamK stream_k_of(const WeightSizes<C>& z, int blocks) {
  return persistent::StreamK(
      persistent::StreamKArguments{.T = z.tokens,
                                   .diag = z.diag,
                                   .lower = C.shape.fill == Fill::kLower,
                                   .depth = Geometry<C>::kStacks ? (z.depth + 1) / 2 : z.depth,
                                   .split = C.config.split_k,
                                   .blocks = blocks,
                                   .tile_n = C.config.tile_n,
                                   .edge = 128,
                                   .copies = z.heads,
                                   .every_row = Geometry<C>::kInside && C.shape.bias,
                                   .interleaves = Geometry<C>::kInside,
                                   .parts_alone = Geometry<C>::kStacks});
}

// The loading thread. Boxes beyond the last token: any, their sums are not stored.
template <Kernel C>
__device__ __forceinline__ void load_grad_weight(const BoxLoader<C>& loader,
                                                 const persistent::StreamK& stream_k, int heads) {
  using G = Geometry<C>;
  const Workspace& ws = loader.ws;
  persistent::RingPosition<G::kStages> at;
  persistent::StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (persistent::WorkTile work; walk.next(work);) {
    const int batch = work.begin / ws.panels;
    int panel = work.begin - batch * ws.panels;
    int a[G::kConsumers], b[G::kPanels];
#pragma unroll
    for (int i = 0; i < G::kConsumers; ++i)
      a[i] = ws.activation(heads, batch, work.copy, schedule::min(2 * work.row + i, ws.blocks - 1), panel);
#pragma unroll
    for (int i = 0; i < G::kPanels; ++i)
      b[i] = ws.activation(heads, batch, work.copy, schedule::min(2 * work.column + i, ws.blocks - 1), panel);
    int ahead = 0;  // boxes from there to this block's
    for (int k = work.begin; k < work.end; ++k) {
      ptx::mbarrier_wait(loader.ring.empty(at.stage), at.parity ^ 1);
      ptx::mbarrier_arrive_expect(loader.ring.full(at.stage),
                                  (G::kConsumers + G::kPanels) * (kBoxBytes + kScaleBytes));
#pragma unroll
      for (int i = 0; i < G::kConsumers; ++i) loader.load_a(at.stage, i, a[i] + ahead);
#pragma unroll
      for (int i = 0; i < G::kPanels; ++i) loader.load_b(at.stage, i, b[i] + ahead);
      ++ahead;
      if (++panel == ws.panels) panel = 0, ahead += (heads * ws.blocks - 1) * ws.panels;
      at.advance();
    }
  }
}

// A thread's sums of a work tile: a part, or elements of dW.
template <Kernel C>
__device__ __forceinline__ void store_sums(const Params& p, const persistent::StreamK& stream_k,
                                           const persistent::WorkTile& work, const WeightSizes<C>& z,
                                           float4* parts, unsigned group,
                                           const Multiplier<C, 0, 0>& multiplier) {
  using G = Geometry<C>;
  const auto& own = at_head<C>(p, work.copy);
  const float(&sum)[G::kSums] = multiplier.sum;
  if (work.number >= 0) {
    float4* to = parts + stream_k.slot(work.number) / 4 + threadIdx.x;
#pragma unroll
    for (int i = 0; i < G::kSums / 4; ++i)
      to[i * 256] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    return;
  }
  const int row = 128 * work.row + static_cast<int>(64 * group + 16 * multiplier.warp + multiplier.lane / 4);
  const int column = 128 * work.column + static_cast<int>(multiplier.lane % 4 * 2);
#pragma unroll
  for (int i = 0; i < G::kSums / 4; ++i) {
    write_pair<C>(own, work.copy, 0, z.tokens, z.diag, row, column + 8 * i, sum[4 * i], sum[4 * i + 1]);
    write_pair<C>(own, work.copy, 0, z.tokens, z.diag, row + 8, column + 8 * i, sum[4 * i + 2],
                  sum[4 * i + 3]);
  }
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_grad_weight(const Params& p, const SplitRing<Geometry<C>>& ring,
                                                     const persistent::StreamK& stream_k,
                                                     const WeightSizes<C>& z, float4* parts, unsigned group) {
  Multiplier<C, 0, 0> multiplier(ring, group);
  // Between two work tiles only the walk's position stays in registers.
  int part = static_cast<int>(blockIdx.x), tile = part;
  for (;;) {
    persistent::StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
    persistent::WorkTile work;
    walk.part = part, walk.tile = tile;
    if (!walk.next(work)) break;
    part = walk.part, tile = walk.tile;
    multiplier.multiply(work.end - work.begin, 0);
    store_sums<C>(p, stream_k, work, z, parts, group, multiplier);
  }
}

// grad_bias: `lanes` lanes of a warp take a row's sums of 64 features in turn, and add up theirs in a fixed order.
template <Kernel C>
__device__ __forceinline__ void add_row_sums(const Params& p, const float* sums, const WeightSizes<C>& z,
                                             int blocks, int warp, int warps, int lane) {
  const long long rows = static_cast<long long>(z.heads) * z.tokens, pitch = 64ll * blocks;
  const int lanes = bias_lanes(rows, static_cast<int>(gridDim.x)), beside = 32 / lanes;  // rows of a warp
  for (long long first = static_cast<long long>(warp) * beside; first < rows; first += warps * beside) {
    const long long all = first + lane % beside;
    const auto head = static_cast<int>(all / z.tokens), row = static_cast<int>(all % z.tokens);
    const float* from = sums + head * z.depth * pitch + row;
    float sum = 0;
    if (all < rows) {
#pragma unroll 8
      for (int k = lane / beside; k < z.depth; k += lanes) sum += from[k * pitch];
    }
    for (int step = beside; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (all < rows && lane < beside) write_bias<C>(p, head, z.tokens, row, sum);
  }
}

template <Kernel C>
__device__ __forceinline__ void run_grad_weight(const Params& p) {
  using G = Geometry<C>;
  const WeightSizes<C> z(p);
  const Workspace ws(C.shape.op, C.shape.bias, p.B, z.heads, z.tokens, z.features, 0);
  const SplitRing<G> ring = start<C>(stream_k_of<C>(z, static_cast<int>(gridDim.x)));
  const auto& stream_k = shared_plan<C, persistent::StreamK>();
  auto* const workspace = static_cast<unsigned char*>(p.workspace);
  ptx::wait_for_launches_before();
  persistent::split_roles<G>(
      [&](unsigned thread) {
        const int other = static_cast<int>(thread) - 32;  // threads that load nothing
        if (thread == 0) load_grad_weight<C>({ring, workspace, ws}, stream_k, z.heads);
        if (C.shape.zero_outside && other >= 0)
          persistent::weight::write_zeros<C>(p, stream_k, z.heads, z.tokens,
                                             static_cast<int>(blockIdx.x) * 3 + other / 32,
                                             static_cast<int>(gridDim.x) * 3, other % 32);
        if (C.shape.bias && other >= 0)
          add_row_sums<C>(p, reinterpret_cast<const float*>(workspace + ws.row_sums), z, ws.blocks,
                          static_cast<int>(blockIdx.x) * (kBiasThreads / 32) + other / 32,
                          static_cast<int>(gridDim.x) * (kBiasThreads / 32), other % 32);
      },
      [&](unsigned group) {
        multiply_grad_weight<C>(p, ring, stream_k, z, reinterpret_cast<float4*>(workspace + ws.parts), group);
      });
}

// The launch after it: adds the parts of every shared tile, in order. kReduceThreads threads; the grid has
// kReduceBlocks blocks for each of the product's.
template <Kernel C>
__device__ __forceinline__ void reduce_grad_weight(const Params& p) {
  constexpr int kQuads = 128 * 128 / 4;  // of a part
  const WeightSizes<C> z(p);
  const persistent::StreamK stream_k = stream_k_of<C>(z, static_cast<int>(gridDim.x) / kReduceBlocks);
  const Workspace ws(C.shape.op, C.shape.bias, p.B, z.heads, z.tokens, z.features, 0);
  const auto* parts =
      reinterpret_cast<const float4*>(static_cast<const unsigned char*>(p.workspace) + ws.parts);
  const int tiles = stream_k.wide - stream_k.whole_tiles;
  ptx::wait_for_launches_before();
  for (int item = static_cast<int>(blockIdx.x); item < tiles * (kQuads / kReduceThreads);
       item += static_cast<int>(gridDim.x)) {
    const int tile = item / (kQuads / kReduceThreads), group = item % (kQuads / kReduceThreads);
    const float4* from =
        parts + static_cast<long long>(tile) * stream_k.split * kQuads + group * kReduceThreads + threadIdx.x;
    float4 sum = from[0];
#pragma unroll 4
    for (int i = 1; i < stream_k.split; ++i) {
      const float4 v = from[static_cast<long long>(i) * kQuads];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    int place, row, column;
    const int copy = stream_k.copy_of(false, tile + stream_k.whole_tiles, place);
    stream_k.locate(false, place, row, column);
    const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int r = 128 * row + 16 * warp + lane / 4, c = 128 * column + 8 * group + lane % 4 * 2;
    const auto& own = at_head<C>(p, copy);
    write_pair<C>(own, copy, 0, z.tokens, z.diag, r, c, sum.x, sum.y);
    write_pair<C>(own, copy, 0, z.tokens, z.diag, r + 8, c, sum.z, sum.w);
  }
}

}  // namespace trigen::wgmma_split_sm90
