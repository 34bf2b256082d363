// grad_weight whose operands are split inside the product's launch. TMA brings f32 rows into slots, two warpgroups make planes
// and scales of them in the stages that the others multiply, and nothing is written to memory but sums. Every tile splits its
// rows again, so this is for the few tiles of short contexts. The stages are those of grad_weight.cuh, so are the products; one set
// of block sums leaves registers for the threads that split.
//
// grad_bias: the first tile of a row sums the rows of dy that it splits.
#pragma once

#include "ptx/approximate.cuh"
#include "wgmma_split_sm90/grad_weight.cuh"
#include "wgmma_split_sm90/split.cuh"

namespace trigen::wgmma_split_sm90 {

// The walk over a block's work tiles. Between two of them only its position stays in registers.
struct TileWalk {
  int part, tile;
  __device__ __forceinline__ TileWalk() : part(static_cast<int>(blockIdx.x)), tile(part) {}
  __device__ __forceinline__ bool next(const persistent::StreamK& stream_k, persistent::WorkTile& work) {
    persistent::StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
    walk.part = part, walk.tile = tile;
    walk.at = walk.stop = 0;  // no tile is narrow
    const bool more = walk.next(work);
    part = walk.part, tile = walk.tile;
    return more;
  }
};

// k blocks: panels of each batch. The last panel may have no more than one box of features, which is then all that is loaded,
// split and multiplied.
template <Kernel C>
struct KBlocks {
  static constexpr bool kHalves = C.shape.D == 0 || ends_in_half(C.shape.D);
  int panels, features;
  __device__ __forceinline__ explicit KBlocks(const WeightSizes<C>& z)
      : panels(schedule::ceil_div(z.features, kPanel)), features(z.features) {}
  struct Place {
    int batch, panel;
  };
  // `place`: the half of a tile. Of an odd number of blocks the last one has no other beside it, zeros come in its place.
  __device__ __forceinline__ Place at(int k, int place) const {
    const int block = Geometry<C>::kStacks ? 2 * k + place : k, batch = block / panels;
    return {batch, block - batch * panels};
  }
  __device__ __forceinline__ int halves(const persistent::WorkTile& work, int i, int place) const {
    return kHalves ? halves(at(work.origin + i * work.step, place).panel) : 2;
  }
  __device__ __forceinline__ int halves(int panel) const {
    return kHalves && features - kPanel * panel <= kBox ? 1 : 2;
  }
};

// The first of a warp's rows of an operand whose tile begins at row `first`, and whether there are any.
template <Kernel C>
__device__ __forceinline__ int first_row(int first, int warp) {
  return first + kSplitRows * (Geometry<C>::kStacks ? warp % 4 : warp);
}

// The loads of a splitting warp's slots, in the order in which they are split: of a k block dy's, then x's. One thread.
template <Kernel C>
struct SlotLoader {
  const SplitRing<Geometry<C>>& ring;
  const KBlocks<C>& blocks;
  const persistent::StreamK& stream_k;
  const TensorMap& y;
  const TensorMap& x;
  int tokens, warp;
  TileWalk walk;
  int copy, row, column, k, step;  // of the next k block
  int left;                        // k blocks of its tile; 0: there is none

  __device__ __forceinline__ void next_tile() {
    persistent::WorkTile work;
    left = walk.next(stream_k, work) ? work.end - work.begin : 0;
    copy = work.copy, row = 128 * work.row, column = 128 * work.column;
    k = work.origin + work.begin * work.step, step = work.step;
  }
  template <bool kIsB>
  __device__ __forceinline__ void load(int slot) const {
    if (left == 0) return;
    const auto [batch, panel] = blocks.at(k, warp / 4);
    const int token = first_row<C>(kIsB ? column : row, warp), halves = blocks.halves(panel);
    const unsigned to = ring.raw(warp, slot), full = ring.raw_full(warp, slot);
    ptx::mbarrier_arrive_expect(full, token < tokens ? halves * kRawBoxBytes : 0);
    if (token >= tokens) return;
    ptx::tma_load(to, kIsB ? x : y, full, kPanel * panel, token, copy, batch);
    if (halves == 2)
      ptx::tma_load(to + kRawBoxBytes, kIsB ? x : y, full, kPanel * panel + kBox, token, copy, batch);
  }
  __device__ __forceinline__ void next_block() {
    k += step;
    if (left > 0 && --left == 0) next_tile();
  }
};

// A splitting thread: half of the 64 elements of one of its warp's 16 rows, those of one box. Eight lanes beside each other have
// rows whose swizzled pieces lie in different banks.
template <Kernel C>
struct Splitter {
  using G = Geometry<C>;
  const SplitRing<G>& ring;
  SlotLoader<C>& loader;
  int thread;
  persistent::RingPosition<kRawSlots> slot;
  persistent::RingPosition<G::kStages> at;

  __device__ __forceinline__ Splitter(const SplitRing<G>& r, SlotLoader<C>& l, int t)
      : ring(r), loader(l), thread(t) {}
  __device__ __forceinline__ int warp() const { return thread / 32; }
  __device__ __forceinline__ int half() const { return thread / 16 % 2; }
  __device__ __forceinline__ int place() const { return thread / 128; }  // of 64 rows in the tile
  __device__ __forceinline__ int row() const { return kSplitRows * (warp() % 4) + thread % kSplitRows; }

  // Loads dy's and x's rows of the first k block, and dy's of the next one. Rows that no tile of the block has are zeros, whatever
  // becomes of their products.
  __device__ __forceinline__ void begin() {
    if (thread % 32 == 0) {
      loader.next_tile();
      loader.template load<false>(0);
      loader.template load<true>(1);
      loader.next_block();
      loader.template load<false>(2);
    }
    __syncwarp();
    const float none[kBox] = {};
#pragma unroll 1
    for (at.stage = 0; at.stage < G::kStages; ++at.stage) {
      write<false, true>(none, 0, true);
      write<true, true>(none, 0, true);
    }
    at.stage = 0;
  }
  // One operand of a k block. Returns the sum of the thread's elements.
  template <bool kIsB, bool kSums>
  __device__ __forceinline__ float split(int first, int tokens, int halves) {
    const bool there = half() < halves, has = first_row<C>(first, warp()) < tokens;  // has: all lanes agree
    float v[kBox], most = 0, sum = 0;
    ptx::mbarrier_wait(ring.raw_full(warp(), slot.stage), slot.parity);
    if (has) {
      const unsigned from =
          ring.raw(warp(), slot.stage) + half() * kRawBoxBytes + 128 * (thread % kSplitRows);
      unsigned bits[kBox] = {};
      if (there) {
#pragma unroll
        for (int j = 0; j < kBox / 4; ++j)
          ptx::load_shared<16>(bits + 4 * j, from + ((j ^ (thread & 7)) << 4));
      }
      float largest[4] = {};
#pragma unroll
      for (int j = 0; j < kBox; ++j) {
        v[j] = __uint_as_float(bits[j]);
        largest[j % 4] = ptx::max_or_nan(largest[j % 4], fabsf(v[j]));
      }
      most =
          ptx::max_or_nan(ptx::max_or_nan(largest[0], largest[1]), ptx::max_or_nan(largest[2], largest[3]));
      most = ptx::max_or_nan(most, __shfl_xor_sync(0xffffffffu, most, 16));
    }
    // The slot is free. Three loads later than dy's (x's) are x's of the next k block (dy's of the one behind it).
    __syncwarp();
    if (thread % 32 == 0) {
      loader.template load<!kIsB>(slot.stage);
      if constexpr (!kIsB) loader.next_block();
    }
    __syncwarp();
    slot.advance();
    if constexpr (!kIsB) ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
    if (has) {
      if constexpr (kSums) {
#pragma unroll
        for (int j = 0; j < kBox; j += 4) sum += (v[j] + v[j + 1]) + (v[j + 2] + v[j + 3]);
      }
      if (__all_sync(0xffffffffu, __float_as_uint(most) < 0x7f800000u))
        write<kIsB, true>(v, __float_as_uint(most), there);
      else
        write<kIsB, false>(v, finite_most(v), there);
    }
    return sum;
  }
  // The stage has both operands.
  __device__ __forceinline__ void finish() {
    ptx::fence_async_shared();
    __syncwarp();
    if (thread % 32 == 0) ptx::mbarrier_arrive(ring.full(at.stage));
    at.advance();
  }

 private:
  // Of the row's magnitudes that are finite.
  __device__ __forceinline__ static unsigned finite_most(const float (&v)[kBox]) {
    unsigned most = 0;
#pragma unroll
    for (int j = 0; j < kBox; ++j) most = max(most, finite_magnitude(v[j]));
    return max(most, __shfl_xor_sync(0xffffffffu, most, 16));
  }
  template <bool kFinite>
  __device__ __forceinline__ static float rest(float scaled, unsigned high) {
    if (!kFinite && (__float_as_uint(scaled) & 0x7f800000u) == 0x7f800000u) return 0.0f;
    return scaled - ptx::f16_to_f32(static_cast<unsigned short>(high));
  }
  // `most`: bits of the row's largest magnitude.
  template <bool kIsB, bool kFinite>
  __device__ __forceinline__ void write(const float (&v)[kBox], unsigned most, bool there) const {
    constexpr int kPlane = kIsB ? G::kPlaneB : G::kPlaneA;
    const unsigned exponent = scale_of(most);
    const float scale = __uint_as_float((254 - exponent) << 23);  // the exponents add up to that of one
    if (half() == 0) {
      const unsigned to = (kIsB ? ring.scales_b(at.stage) : ring.scales_a(at.stage)) + place() * kScaleBytes;
      persistent::shared_memory()[to + scale_place<kIsB>(row()) - ring.base] =
          static_cast<unsigned char>(exponent);
    }
    if (!there) return;
    const unsigned to = (kIsB ? ring.b(at.stage) : ring.a(at.stage)) + place() * kPanelBytes + 128 * row();
#pragma unroll
    for (int i = 0; i < kBox / 8; ++i) {
      unsigned high[4], low[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float s0 = v[8 * i + 2 * j] * scale, s1 = v[8 * i + 2 * j + 1] * scale;
        high[j] = ptx::f32x2_to_f16x2(s0, s1);
        low[j] = ptx::f32x2_to_f16x2(rest<kFinite>(s0, high[j]), rest<kFinite>(s1, high[j] >> 16));
      }
      const int piece = (4 * half() + i ^ (thread & 7)) << 4;
      ptx::store_shared<16>(to + piece, high);
      ptx::store_shared<16>(to + kPlane + piece, low);
    }
  }
};

// The splitting warpgroups: `thread` of both.
template <Kernel C>
__device__ __forceinline__ void split_inside(const Params& p, const SplitRing<Geometry<C>>& ring,
                                             const persistent::StreamK& stream_k, const WeightSizes<C>& z,
                                             const KBlocks<C>& blocks, const TensorMap& y, const TensorMap& x,
                                             int thread) {
  SlotLoader<C> loader{ring, blocks, stream_k, y, x, z.tokens, thread / 32};
  Splitter<C> splitter(ring, loader, thread);
  splitter.begin();
  TileWalk walk;
  for (persistent::WorkTile work; walk.next(stream_k, work);) {
    float sum = 0;
    for (int i = work.begin; i < work.end; ++i) {
      const int halves = blocks.halves(work, i, splitter.place());
      sum += splitter.template split<false, C.shape.bias>(128 * work.row, z.tokens, halves);
      splitter.template split<true, false>(128 * work.column, z.tokens, halves);
      splitter.finish();
    }
    if constexpr (C.shape.bias) {
      if (work.column != stream_k.first(work.row)) continue;
      sum += __shfl_xor_sync(0xffffffffu, sum, 16);
      const int row = kPanel * splitter.place() + splitter.row();
      if (splitter.half() != 0) continue;
      if (work.number >= 0)
        static_cast<float*>(p.workspace)[stream_k.bias_slot(work.number) + row] = sum;
      else
        write_bias<C>(p, work.copy, z.tokens, 128 * work.row + row, sum);
    }
  }
  if constexpr (C.shape.zero_outside)
    persistent::weight::write_zeros<C>(p, stream_k, z.heads, z.tokens,
                                       static_cast<int>(blockIdx.x) * kSplitWarps + thread / 32,
                                       static_cast<int>(gridDim.x) * kSplitWarps, thread % 32);
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_inside(const Params& p, const SplitRing<Geometry<C>>& ring,
                                                const persistent::StreamK& stream_k, const WeightSizes<C>& z,
                                                const KBlocks<C>& blocks, unsigned group) {
  using G = Geometry<C>;
  Multiplier<C, 0, 0> multiplier(ring, group);
  for (TileWalk walk;;) {
    TileWalk here = walk;
    persistent::WorkTile work;
    if (!walk.next(stream_k, work)) break;
    const int count = work.end - work.begin;
    if (G::kStacks || 128 * work.row + kPanel * static_cast<int>(group) < z.tokens)
      multiplier.multiply_one_by_one(
          count, [&](int i) { return blocks.halves(work, work.begin + i, static_cast<int>(group)); });
    else
      multiplier.multiply(0, count);
    here.next(stream_k, work);  // again: while it multiplies its registers hold sums
    store_sums<C>(p, stream_k, work, z, static_cast<float4*>(p.workspace), group, multiplier);
  }
}

template <Kernel C>
__device__ __forceinline__ void run_inside(const Params& p, const TensorMap& y, const TensorMap& x) {
  using G = Geometry<C>;
  const WeightSizes<C> z(p);
  const KBlocks<C> blocks(z);
  const SplitRing<G> ring = start<C>(stream_k_of<C>(z, static_cast<int>(gridDim.x)), y, x);
  const auto& stream_k = shared_plan<C, persistent::StreamK>();
  ptx::wait_for_launches_before();
  constexpr int kSplitRegisters = split_registers(G::kStacks);
  const unsigned group = threadIdx.x / 128;
  if (group < G::kConsumers) {
    ptx::claim_registers<256 - kSplitRegisters>();
    multiply_inside<C>(p, ring, stream_k, z, blocks, group);
  } else {
    ptx::release_registers<kSplitRegisters>();
    split_inside<C>(p, ring, stream_k, z, blocks, y, x, static_cast<int>(threadIdx.x) - 128 * G::kConsumers);
  }
}

// The launch after it: sums of parts, runs of which are added by one thread each and then in order. kReduceThreads threads; the
// grid has kReduceBlocks blocks for each of the product's.
template <Kernel C>
__device__ __forceinline__ void reduce_inside(const Params& p) {
  using G = Geometry<C>;
  // Two k blocks beside each other are two parts of half as many rows.
  constexpr int kBeside = G::kStacks ? 2 : 1, kRowThreads = 256 / kBeside;
  constexpr int kQuads = 128 * 128 / 4;                 // of a part
  constexpr int kHeld = kRowThreads * G::kColumns / 8;  // of these, those of one k block
  constexpr int kRuns = reduce_runs(kBeside * C.config.split_k), kWidth = kReduceThreads / kRuns;
  constexpr int kRows = 32, kBiasRuns = kReduceThreads / kRows;  // of grad_bias, of an item
  __shared__ float4 partial[kReduceThreads];
  const WeightSizes<C> z(p);
  const persistent::StreamK stream_k = stream_k_of<C>(z, static_cast<int>(gridDim.x) / kReduceBlocks);
  const int tile_items = (stream_k.wide - stream_k.whole_tiles) * (kHeld / kWidth);
  constexpr int kBiasItems = 128 / kBeside / kRows;  // of a row of tiles
  const int bias_items = C.shape.bias ? z.heads * stream_k.rows * kBiasItems : 0,
            parts = kBeside * stream_k.split;
  const int thread = static_cast<int>(threadIdx.x);
  ptx::wait_for_launches_before();
  for (int item = static_cast<int>(blockIdx.x); item < tile_items + bias_items;
       item += static_cast<int>(gridDim.x), __syncthreads()) {
    if (item < tile_items) {
      const int tile = item / (kHeld / kWidth), run = thread / kWidth;
      const int position = item % (kHeld / kWidth) * kWidth + thread % kWidth;
      const int eight = position / kRowThreads, own = position % kRowThreads;  // of columns; of threads
      const auto* from = static_cast<const float4*>(p.workspace) +
                         static_cast<long long>(tile) * stream_k.split * kQuads + eight * 256 + own;
      const int end = parts * (run + 1) / kRuns;
      float4 sum = make_float4(0, 0, 0, 0);
      const auto add = [&](const float4& v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; };
#pragma unroll 8
      for (int i = parts * run / kRuns; i < end; ++i)
        add(from[static_cast<long long>(i / kBeside) * kQuads + i % kBeside * kRowThreads]);
      if constexpr (kRuns > 1) {
        partial[thread] = sum;
        __syncthreads();
        if (run != 0) continue;
#pragma unroll
        for (int i = 1; i < kRuns; ++i) add(partial[i * kWidth + thread]);
      }
      int place, row, column;
      const int copy = stream_k.copy_of(false, tile + stream_k.whole_tiles, place);
      stream_k.locate(false, place, row, column);
      const int warp = own / 32, lane = own % 32;
      const int r = 128 * row + 16 * warp + lane / 4, c = 128 * column + 8 * eight + lane % 4 * 2;
      write_pair<C>(p, copy, 0, z.tokens, z.diag, r, c, sum.x, sum.y);
      write_pair<C>(p, copy, 0, z.tokens, z.diag, r + 8, c, sum.z, sum.w);
    } else if constexpr (C.shape.bias) {
      const int rest = (item - tile_items) / kBiasItems, head = rest / stream_k.rows;
      const int row = rest - head * stream_k.rows;
      const int own = (item - tile_items) % kBiasItems * kRows + thread % kRows, run = thread / kRows;
      const int tile = stream_k.index_of(false, stream_k.before(false, row), head) - stream_k.whole_tiles;
      if (tile < 0) continue;  // one block has written it
      const float* from =
          static_cast<const float*>(p.workspace) + stream_k.bias_slot(tile * stream_k.split) + own;
      const int end = parts * (run + 1) / kBiasRuns;
      float sum = 0;
#pragma unroll 8
      for (int i = parts * run / kBiasRuns; i < end; ++i) sum += from[i * (128 / kBeside)];
      auto* const sums = reinterpret_cast<float*>(partial);
      sums[thread] = sum;
      __syncthreads();
      if (run != 0) continue;
#pragma unroll
      for (int i = 1; i < kBiasRuns; ++i) sum += sums[i * kRows + thread];
      write_bias<C>(p, head, z.tokens, 128 * row + own, sum);
    }
  }
}

}  // namespace trigen::wgmma_split_sm90
