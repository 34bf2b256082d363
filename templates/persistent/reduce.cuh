// The second kernel of grad_weight: adds the parts of every shared tile, or of a Toeplitz matrix what tiles and parts have
// of each diagonal.
#pragma once

#include "diagonals.cuh"
#include "persistent/triangle_parts.cuh"

namespace trigen::persistent::weight {

// The incomplete sums of a tile, by number: `first`, then `second` and every `stride`th. None where one block
// wrote it whole.
struct Parts {
  int first = 0, second = 0, stride = 1, count = 0;
  __device__ __forceinline__ Parts(const StreamK& s, bool narrow, int tile) {
    if (narrow) {
      const int from = s.owner(tile * s.depth);
      count = s.owner((tile + 1) * s.depth - 1) - from + 1;
      first = s.narrow_number(from, true);
      second = s.narrow_number(from + 1, false);
      stride = 2;
      if (count == 1) count = 0;
    } else if (tile >= s.whole_tiles) {
      count = s.split;
      first = (tile - s.whole_tiles) * s.split;
      second = first + 1;
    }
  }
  __device__ __forceinline__ int number(int i) const { return i == 0 ? first : second + (i - 1) * stride; }
};

// In shared memory: a thread's results for the whole block.
struct ReduceItem {
  const float4* source;  // the tile's first part
  int size;              // of a part, in float4
  Parts parts;
  int row, column, copy, position, log;
};
// A thread's own copy of it; in kernels that would spill it is read where it lies.
template <bool kCopied>
struct Held {
  using Type = ReduceItem;
};
template <>
struct Held<false> {
  using Type = ReduceItem&;
};
template <Kernel C>
using HeldItem = typename Held<!C.shape.bias && !kShifts<C>>::Type;

struct ReduceShared {
  float4 partial[kReduceThreads];
  StreamK stream_k;  // these members leave no gaps, which wide loads would read
  int wide_items, tile_items, items, wide_log, narrow_log;
  ReduceItem item;
};
static_assert(sizeof(ReduceShared) <= kReduceSharedBytes, "the host asks for this much");

// Rows of grad_bias that a block adds at a time, and threads for each of them: hundreds of parts in few
// rounds of loads.
inline constexpr int kBiasRows = 32, kBiasRuns = kReduceThreads / kBiasRows;

// kBiasRows rows of grad_bias of one head, `first` of the matrix on, from the parts of their row tile's tile at the
// diagonal. Runs of parts are added by one thread each, their sums then in order.
template <Kernel C>
__device__ __forceinline__ void reduce_bias(const Params& p, const StreamK& stream_k, float* partial,
                                            int head, int first, int tokens, int thread) {
  const int row = first / kEdge<C>;
  const bool narrow = stream_k.bias_is_narrow(row);
  const int tap = kTaps<C> == 1 ? 0 : C.shape.pad;
  const Parts parts(stream_k, narrow,
                    stream_k.index_of(narrow, stream_k.bias_place(row), head * kTaps<C> + tap));
  if (parts.count == 0) return;
  const int own = thread % kBiasRows, run = thread / kBiasRows;
  const float* const from = static_cast<const float*>(p.workspace) + stream_k.bias_slot(parts.first) +
                            (first - kEdge<C> * row + own);
  const int end = parts.count * (run + 1) / kBiasRuns;
  float sum = 0;
#pragma unroll 8
  for (int i = parts.count * run / kBiasRuns; i < end; ++i)
    sum += from[kEdge<C> * (parts.number(i) - parts.first)];
  partial[thread] = sum;
  __syncthreads();
  if (run != 0) return;
#pragma unroll
  for (int i = 1; i < kBiasRuns; ++i) sum += partial[i * kBiasRows + own];
  write_bias<C>(p, head, tokens, first + own, sum);
}

// 256 threads; the grid is reduce_blocks times that of run. What a block does at a time, an item:
// `log` < 0: a thread adds the parts of 2^-log quadruples of sums. Else 2^log threads take consecutive runs
// of a quadruple's parts, and their sums are then added in order.
template <Kernel C>
__device__ __forceinline__ void reduce_tiles(const Params& p) {
  constexpr int kWidth = part_columns(C.config);
  // Quadruples of a thread; loads that are under way at a time (with taps, more than two would spill), and those of a tile's parts
  // that lie behind each other.
  constexpr int kRun = 2, kLoads = kShifts<C> ? 2 : 4, kWideLoads = wide_loads(C.config);
  constexpr int kSums = kEdge<C> * kWidth;
  constexpr bool kNarrow =
      stream_k_columns(C.config) == 2 * stream_k_scale(C.config) * kEdge<C>;  // there are
  const Extents<C> z(p);
  const int tokens = z.tokens, heads = z.heads, diag = z.diag;
  ptx::let_next_launch_start();  // it waits for the end of this one, which waits for the product's
  ReduceShared& here = *reinterpret_cast<ReduceShared*>(shared_memory());
  const int bias_items = schedule::ceil_div(tokens, kBiasRows);  // of a head
  StreamK& stream_k = here.stream_k;
  ReduceItem& item = here.item;
  // Items of a tile, as a power of two.
  static_assert(kRun == 2 && kNarrowSums == 128 * 128 && kReduceThreads == 256, "powers of two");
  const auto cut = [](bool narrow, int log) {
    return (narrow || kSums == kNarrowSums ? 4 : kSums == 2 * kNarrowSums ? 5 : 6) + log;
  };
  static_assert(kSums == kNarrowSums || kSums == 2 * kNarrowSums || kSums == 4 * kNarrowSums);
  // The one of -1, 0, 1, 2, 3 that takes the least time: rounds of kLoads loads, an item's start counted
  // as 12. Without divisions of 64 bits: where a block starts after the product has ended, all wait for this.
  const auto spread = [&](int parts, int tiles, bool narrow) {
    float least = 1e30f;
    int best = 0;
#pragma unroll
    for (int log = -1; log <= 3; ++log) {
      const int items = schedule::min(tiles, 1 << 20) << cut(narrow, log);
      const int loads = log < 0 ? parts * kRun : (parts + (1 << log) - 1) >> log;
      const int at_once = log < 0 || narrow ? kLoads : kWideLoads;
      const float cost = static_cast<float>(schedule::ceil_div(items, static_cast<int>(gridDim.x))) *
                         static_cast<float>(schedule::ceil_div(loads, at_once) * at_once + 12);
      if (cost < least) least = cost, best = log;
    }
    return best;
  };
  if (threadIdx.x == 0) {
    stream_k =
        stream_k_of<C>(p, z, static_cast<int>(gridDim.x) / (reduce_blocks(C.config) * C.config.cluster));
    here.wide_log = spread(stream_k.split, stream_k.wide - stream_k.whole_tiles, false);
    here.narrow_log =
        stream_k.narrow ? spread(stream_k.sharers() / stream_k.narrow, stream_k.narrow, true) : 0;
    here.wide_items = (stream_k.wide - stream_k.whole_tiles) << cut(false, here.wide_log);
    here.tile_items = here.wide_items + (stream_k.narrow << cut(true, here.narrow_log));
    here.items = here.tile_items + (C.shape.bias ? heads * bias_items : 0);
  }
  __syncthreads();
  for (int all = static_cast<int>(blockIdx.x); all < here.items; all += static_cast<int>(gridDim.x)) {
    if (C.shape.bias && all >= here.tile_items) {
      const int head = (all - here.tile_items) / bias_items, item = all - here.tile_items - head * bias_items;
      ptx::wait_for_launches_before();
      reduce_bias<C>(p, stream_k, reinterpret_cast<float*>(here.partial), head, kBiasRows * item, tokens,
                     static_cast<int>(threadIdx.x));
      __syncthreads();
      continue;
    }
    if (threadIdx.x == 0) {
      const bool narrow = kNarrow && all >= here.wide_items;
      const int index = narrow ? all - here.wide_items : all;
      item.log = narrow ? here.narrow_log : here.wide_log;
      const int each = cut(narrow, item.log), tile = (index >> each) + (narrow ? 0 : stream_k.whole_tiles);
      item.position =
          (index & ((1 << each) - 1)) * (item.log < 0 ? kRun * kReduceThreads : kReduceThreads >> item.log);
      const Parts parts(stream_k, narrow, tile);
      item.parts = parts;
      item.source = reinterpret_cast<const float4*>(static_cast<const float*>(p.workspace) +
                                                    stream_k.slot(parts.first));
      item.size = (narrow ? kNarrowSums : kSums) / 4;
      int place;
      item.copy = stream_k.copy_of(narrow, tile, place);
      stream_k.locate(narrow, place, item.row, item.column);
    }
    __syncthreads();
    const HeldItem<C> now = item;
    ptx::wait_for_launches_before();  // addresses are worked out meanwhile
    const int thread = static_cast<int>(threadIdx.x);
    const int head = now.copy / kTaps<C>, tap = now.copy - head * kTaps<C>;
    const auto part = [&](int i) {
      return now.source + (kNarrow ? now.size * (now.parts.number(i) - now.parts.first) : i * (kSums / 4));
    };
    const auto add = [](float4& sum, const float4& v) {
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    };
    constexpr int kBlock = 128 * kWidth / 4;  // quadruples of 128 rows
    // Quarters of 256 x 256 outside the triangle have no parts; zeros may be asked for there.
    const auto is_touched = [&](int position) {
      return kEdge<C> == 128 ||
             touched<C>(p, kEdge<C> * now.row + position / kBlock * 128,
                        kEdge<C> * now.column + position % kBlock / 4096 * 128, tokens, diag);
    };
    const auto row_of = [&](int position) {
      return kEdge<C> * now.row + position / kBlock * 128 + position / 32 % 8 * 16 + position % 32 / 4;
    };
    const auto column_of = [&](int position) {
      return kEdge<C> * now.column + position % kBlock / 256 * 8 + position % 4 * 2;
    };
    const auto has = [&](int position) {
      return is_held<C>(p, row_of(position), column_of(position), tokens, diag);
    };
    const auto write = [&](int position, const float4& sum) {
      const int r = row_of(position), c = column_of(position);
      write_pair<C>(p, head, tap, tokens, diag, r, c, sum.x, sum.y);
      write_pair<C>(p, head, tap, tokens, diag, r + 8, c, sum.z, sum.w);
    };
    if (now.parts.count > 0 && !is_touched(now.position)) {
      if constexpr (fills_outside(C.shape))
        for (int i = 0; i < (now.log < 0 ? kRun : 1); ++i)
          if (const int each = now.log < 0 ? kReduceThreads : kReduceThreads >> now.log; thread < each)
            write(now.position + each * i + thread, make_float4(0, 0, 0, 0));
    } else if (now.parts.count > 0 && now.log < 0) {
      float4 sum[kRun] = {};
      for (int i = 0; i < now.parts.count; i += kLoads / kRun) {
        float4 v[kLoads];
#pragma unroll
        for (int j = 0; j < kLoads; ++j)
          if (i + j / kRun < now.parts.count && has(now.position + kReduceThreads * (j % kRun) + thread))
            v[j] = part(i + j / kRun)[now.position + kReduceThreads * (j % kRun) + thread];
#pragma unroll
        for (int j = 0; j < kLoads; ++j)
          if (i + j / kRun < now.parts.count && has(now.position + kReduceThreads * (j % kRun) + thread))
            add(sum[j % kRun], v[j]);
      }
#pragma unroll
      for (int j = 0; j < kRun; ++j) write(now.position + kReduceThreads * j + thread, sum[j]);
    } else if (now.parts.count > 0) {
      const int width = kReduceThreads >> now.log, run = thread / width,
                position = now.position + thread % width;
      float4 sum = make_float4(0, 0, 0, 0);
      const int begin = now.parts.count * run >> now.log,
                end = has(position) ? now.parts.count * (run + 1) >> now.log : 0;
      if (!kNarrow || now.parts.stride == 1) {
        const float4* from = now.source + begin * (kSums / 4) + position;
#pragma unroll 1
        for (int left = end - begin; left > 0; left -= kWideLoads) {
          float4 v[kWideLoads];
#pragma unroll
          for (int j = 0; j < kWideLoads; ++j)
            v[j] = j < left ? from[j * (kSums / 4)] : make_float4(0, 0, 0, 0);
#pragma unroll
          for (int j = 0; j < kWideLoads; ++j) add(sum, v[j]);
          from += kWideLoads * (kSums / 4);
        }
      } else {
        for (int i = begin; i < end; i += kLoads) {
          float4 v[kLoads];
#pragma unroll
          for (int j = 0; j < kLoads; ++j)
            if (i + j < end) v[j] = part(i + j)[position];
#pragma unroll
          for (int j = 0; j < kLoads; ++j)
            if (i + j < end) add(sum, v[j]);
        }
      }
      here.partial[thread] = sum;
      __syncthreads();
      if (run == 0) {
#pragma unroll 8
        for (int i = 1; i < 1 << now.log; ++i) add(sum, here.partial[i * width + thread]);
        write(position, sum);
      }
    }
    __syncthreads();
  }
  // A block without items waits, too: this launch must not end, and let the stream go on, before the product.
  ptx::wait_for_launches_before();
}

// A work tile's place in the grid of blocks that made it: the 64 rows of a Toeplitz matrix from `row` on, around column `at`.
template <Kernel C>
struct DiagonalTile {
  int tile, row, rank;  // of StreamK, without copies; its row; the block in its cluster
  int column, width;    // the block's first column, and how many it has
  bool narrow;
  __device__ __forceinline__ DiagonalTile(const StreamK& s, int first_row, int at) {
    row = first_row / kEdge<C>;
    const int place = at / kEdge<C> - s.first(row), below = first_row % kEdge<C> / 128;
    narrow = s.unit == 2 && place % 2 == 0 && place == s.span(row) - 1;
    tile = s.before(narrow, row) + (narrow ? 0 : place / s.unit);
    column = kEdge<C> * (s.first(row) + place / s.unit * s.unit);
    width = narrow ? 128 : C.config.tile_n;
    rank = below;
    if constexpr (Geometry<C>::kSquares) {
      const int beside = at % kEdge<C> / 128;
      column += 128 * beside;
      rank = 2 * below + beside;
    }
  }
};

// What the blocks that made a Toeplitz matrix's tiles have of its diagonals (diagonals.cuh). A block adds kReduceDiagonals of
// one head at a time, by lanes: of as many rows of 64 as there are, up to all lanes, and of as many parts as that leaves.
template <Kernel C>
__device__ __forceinline__ void reduce_diagonals(const Params& p) {
  constexpr int kHere = schedule::kReduceDiagonals;
  static_assert(kReduceThreads == schedule::kReduceThreads && kPanel % kHere == 0,
                "diagonals of one first row");
  ptx::let_next_launch_start();  // it waits for the end of this one, which waits for the product's
  auto* const partial = reinterpret_cast<float*>(shared_memory());
  const Extents<C> z(p);
  const StreamK stream_k =
      stream_k_of<C>(p, z, static_cast<int>(gridDim.x) / (reduce_blocks(C.config) * C.config.cluster));
  const int thread = static_cast<int>(threadIdx.x), place = thread % kHere, lane = thread / kHere;
  const int items = schedule::ceil_div(z.tokens, kHere), all_rows = schedule::ceil_div(z.tokens, kPanel);
  const int bias_items = C.shape.bias ? schedule::ceil_div(z.tokens, kBiasRows) : 0;
  const auto* const workspace = static_cast<const float*>(p.workspace);
  ptx::wait_for_launches_before();
  for (int all = static_cast<int>(blockIdx.x); all < z.heads * (items + bias_items);
       all += static_cast<int>(gridDim.x)) {
    const int head = all / (items + bias_items), item = all - head * (items + bias_items);
    if (C.shape.bias && item >= items) {
      reduce_bias<C>(p, stream_k, partial, head, kBiasRows * (item - items), z.tokens, thread);
      __syncthreads();
      continue;
    }
    const int distance = item * kHere + place, first = item * kHere / kPanel;
    int rows = kDiagonalLanes;
    while (rows > all_rows - first) rows /= 2;
    const int own = lane / rows, sharers = kDiagonalLanes / rows;
    float sum = 0;
    for (int i = first + lane % rows; distance < z.tokens && i < all_rows; i += rows) {
      const int row = kPanel * i, last = schedule::min(row + kPanel, z.tokens) - 1 - distance;
      int next;
      for (int at = schedule::max(row - distance, 0); at <= last; at = next) {
        const DiagonalTile<C> tile(stream_k, row, at);
        next = tile.column + tile.width;
        const int index = stream_k.index_of(tile.narrow, tile.tile, head);
        const Parts parts(stream_k, tile.narrow, index);
        const float* const from = workspace +
                                  (tile.rank * kConsumers + i % kConsumers) * group_diagonals(C.config) +
                                  (distance - row + tile.column + C.config.tile_n - 1);
        if (parts.count == 0) {
          if (own == 0) sum += from[stream_k.slot(stream_k.whole_number(tile.narrow, index))];
          continue;
        }
#pragma unroll 4
        for (int j = own; j < parts.count; j += sharers) sum += from[stream_k.slot(parts.number(j))];
      }
    }
    write_diagonal<C>(p, partial, head, distance, z.tokens, sum);
    __syncthreads();
  }
}

template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  if constexpr (schedule::sums_diagonals(C.shape))
    reduce_diagonals<C>(p);
  else if constexpr (stacks(C.config))
    reduce_stacked<C>(p);
  else if constexpr (adds_triangles(C.shape, C.config))
    reduce_triangles<C>(p);
  else
    reduce_tiles<C>(p);
}

}  // namespace trigen::persistent::weight
