// The second kernel of grad_weight: adds the parts of every shared tile.
#pragma once

#include "wgmma_sm90/grad_weight.cuh"

namespace trigen::wgmma_sm90 {

// In shared memory: what one thread works out for the block.
struct ReduceItem {
  const float4* source;  // the tile's first part
  long long second;      // from the first part to the second, in float4
  long long stride;      // from there on to the next
  int count, row, column, head, position, log;
};
struct ReduceShared {
  float4 partial[kReduceThreads];
  Shares shares;
  ReduceItem item;
  int wide_items, items;
};
static_assert(sizeof(ReduceShared) <= kReduceSharedBytes, "the host asks for this much");

// 256 threads; the grid is kReduceBlocks times that of run_grad_weight. With few parts a thread adds kRun
// quadruples of sums; with many, 2 to 8 threads take consecutive runs of a quadruple's parts, and their sums
// are then added in order.
template <Kernel C>
__device__ __forceinline__ void reduce_grad_weight(const Params& p) {
  constexpr int kRun = 4, kSums = 128 * C.config.tile_n;
  const int tokens = C.shape.T ? C.shape.T : p.T;
  const int features = C.shape.D ? C.shape.D : p.D;
  const int heads = C.shape.H ? C.shape.H : p.H;
  const int diag = C.shape.T ? C.shape.diag : p.diag;
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  ReduceShared& here = *reinterpret_cast<ReduceShared*>(wgmma_shared);
  Shares& shares = here.shares;
  ReduceItem& item = here.item;
  // log2 of the threads that share a sum, so that each adds about 8 parts and every item is under way at
  // once.
  const auto spread = [](int parts) { return parts > 64 ? 3 : parts > 32 ? 2 : parts > 12 ? 1 : 0; };
  // Items of a tile: one covers kRun * 256 positions, or 256 / 2^log.
  const auto cut = [](bool narrow, int log) {
    const int positions = (narrow ? kNarrowSums : kSums) / 4;
    return log ? positions / kReduceThreads << log : positions / (kRun * kReduceThreads);
  };
  if (threadIdx.x == 0) {
    shares = shares_of<C>(p, tokens, features, diag, static_cast<int>(gridDim.x) / kReduceBlocks);
    here.wide_items = (shares.wide - shares.whole) * cut(false, spread(shares.split));
    here.items = here.wide_items +
                 (shares.narrow ? shares.narrow * cut(true, spread(shares.sharers() / shares.narrow)) : 0);
  }
  __syncthreads();
  const int wide_items = here.wide_items, items = here.items;
  ptx::wait_for_launches_before();
  for (int all = static_cast<int>(blockIdx.x); all < heads * items; all += static_cast<int>(gridDim.x)) {
    if (threadIdx.x == 0) {
      item.head = all / items;
      int index = all - item.head * items;
      const bool narrow = index >= wide_items;
      if (narrow) index -= wide_items;
      item.log = spread(narrow ? shares.sharers() / shares.narrow : shares.split);
      const int each = cut(narrow, item.log), tile = index / each;
      item.position = (index - tile * each) * (item.log ? kReduceThreads >> item.log : kRun * kReduceThreads);
      const float4* base = reinterpret_cast<const float4*>(static_cast<const float*>(p.workspace) +
                                                           item.head * shares.workspace());
      if (narrow) {
        const int first = shares.owner(tile * shares.depth);
        item.count = shares.owner((tile + 1) * shares.depth - 1) - first + 1;
        item.source = base + shares.narrow_slot(first, true) / 4;
        item.second = (shares.narrow_slot(first + 1, false) - shares.narrow_slot(first, true)) / 4;
        item.stride = 2 * kNarrowSums / 4;
        if (item.count == 1) item.count = 0;  // was written whole
      } else {
        item.count = shares.split;
        item.source = base + static_cast<long long>(tile) * shares.split * (kSums / 4);
        item.second = item.stride = kSums / 4;
      }
      shares.locate(narrow, narrow ? tile : shares.whole + tile, item.row, item.column);
    }
    __syncthreads();
    const ReduceItem now = item;
    const int thread = static_cast<int>(threadIdx.x);
    const auto part = [&](int i) {
      return i == 0 ? now.source : now.source + now.second + (i - 1) * now.stride;
    };
    const auto add = [](float4& sum, const float4& v) {
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    };
    const auto write = [&](int position, const float4& sum) {
      const int warp = position / 32 % 8, lane = position % 32;  // of run_grad_weight
      const int r = 128 * now.row + 16 * warp + lane / 4,
                c = 128 * now.column + 8 * (position / 256) + lane % 4 * 2;
      write_pair<C>(p, now.head, tokens, diag, r, c, sum.x, sum.y);
      write_pair<C>(p, now.head, tokens, diag, r + 8, c, sum.z, sum.w);
    };
    if (now.count > 0 && now.log == 0) {
      float4 sum[kRun];
#pragma unroll
      for (int j = 0; j < kRun; ++j) sum[j] = part(0)[now.position + kReduceThreads * j + thread];
#pragma unroll 4
      for (int i = 1; i < now.count; ++i)
#pragma unroll
        for (int j = 0; j < kRun; ++j) add(sum[j], part(i)[now.position + kReduceThreads * j + thread]);
#pragma unroll
      for (int j = 0; j < kRun; ++j) write(now.position + kReduceThreads * j + thread, sum[j]);
    } else if (now.count > 0) {
      const int width = kReduceThreads >> now.log, run = thread / width,
                position = now.position + thread % width;
      float4 sum = make_float4(0, 0, 0, 0);
      const int end = now.count * (run + 1) >> now.log;
#pragma unroll 8
      for (int i = now.count * run >> now.log; i < end; ++i) add(sum, part(i)[position]);
      here.partial[thread] = sum;
      __syncthreads();
      if (run == 0) {
        for (int i = 1; i < 1 << now.log; ++i) add(sum, here.partial[i * width + thread]);
        write(position, sum);
      }
    }
    __syncthreads();
  }
}

}  // namespace trigen::wgmma_sm90
