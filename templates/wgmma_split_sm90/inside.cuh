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
  __device__ __forceinline__ Place at(int k) const {
    const int batch = k / panels;
    return {batch, k - batch * panels};
  }
  __device__ __forceinline__ int halves(const persistent::WorkTile& work, int i) const {
    return kHalves ? halves(at(work.origin + i * work.step).panel) : 2;
  }
  __device__ __forceinline__ int halves(int panel) const {
    return kHalves && features - kPanel * panel <= kBox ? 1 : 2;
  }
};

// 64 rows of a tile are there from row `first` on. B's are filled with zeros, so that what is multiplied is always written.
template <Kernel C, bool kIsB>
__device__ __forceinline__ bool has_rows(int first, int place, int tokens) {
  return kIsB ? place < Geometry<C>::kPanels : first + kPanel * place < tokens;
}

// Loads of the slots in the order in which they are split: of a k block dy's, then x's. One thread, which splits beside that: where
// it is lies in shared memory, registers are the splitting's.
template <Kernel C>
struct SlotLoader {
  using G = Geometry<C>;
  struct alignas(16) Position {
    TileWalk walk;
    int copy, row, column, end, origin, step, block;  // of the work tile, with its k block
    int more, of_x, slot;
    unsigned parity;
    int unused[3];
  };
  static_assert(sizeof(Position) == kLoaderBytes, "no gaps");
  const SplitRing<G>& ring;
  const KBlocks<C>& blocks;
  const persistent::StreamK& stream_k;
  int tokens;

  __device__ __forceinline__ static Position& shared() {
    return *reinterpret_cast<Position*>(persistent::shared_memory() + G::kSharedBytes - kBarrierBytes -
                                        kLoaderBytes);
  }
  __device__ __forceinline__ void next_tile(Position& at) const {
    persistent::WorkTile work;
    at.more = at.walk.next(stream_k, work);
    at.copy = work.copy, at.row = work.row, at.column = work.column;
    at.end = work.end, at.origin = work.origin, at.step = work.step, at.block = work.begin;
  }
  __device__ __forceinline__ void begin() const {
    Position at{};
    next_tile(at);
    shared() = at;
  }
  __device__ __forceinline__ void load(const TensorMap& y, const TensorMap& x) const {
    Position at = shared();
    if (!at.more) return;
    const auto [batch, panel] = blocks.at(at.origin + at.block * at.step);
    const int first = 128 * (at.of_x ? at.column : at.row), halves = blocks.halves(panel);
    const int rows = at.of_x ? G::kPanels : has_rows<C, false>(first, 1, tokens) ? 2 : 1;
    const unsigned full = ring.raw_full(at.slot);
    ptx::mbarrier_wait(ring.raw_empty(at.slot), at.parity ^ 1);
    ptx::mbarrier_arrive_expect(full, rows * halves * kPanelBytes);
#pragma unroll 1
    for (int r = 0; r < rows; ++r) {
#pragma unroll 1
      for (int h = 0; h < halves; ++h)
        ptx::tma_load(ring.raw(at.slot) + (2 * r + h) * kPanelBytes, at.of_x ? x : y, full,
                      kPanel * panel + kBox * h, first + kPanel * r, at.copy, batch);
    }
    if (++at.slot == kRawSlots) at.slot = 0, at.parity ^= 1;
    if (at.of_x && ++at.block == at.end) next_tile(at);
    at.of_x ^= 1;
    shared() = at;
  }
};

// A splitting thread: half of the 64 elements of one of 128 rows, those of one box. Eight lanes beside each other have rows
// whose swizzled pieces lie in different banks.
template <Kernel C>
struct Splitter {
  using G = Geometry<C>;
  const SplitRing<G>& ring;
  int thread;
  persistent::RingPosition<kRawSlots> slot;
  persistent::RingPosition<G::kStages> at;

  __device__ __forceinline__ Splitter(const SplitRing<G>& r, int t) : ring(r), thread(t) {}
  __device__ __forceinline__ int lane() const { return thread % 32; }
  __device__ __forceinline__ int half() const { return thread / 16 % 2; }
  __device__ __forceinline__ int place() const { return thread / 128; }  // of the 64 rows in the tile
  __device__ __forceinline__ int row() const { return 16 * (thread / 32 % 4) + thread % 16; }

  // One operand of a k block. Returns the sum of the thread's elements.
  template <bool kIsB, bool kSums>
  __device__ __forceinline__ float split(int first, int tokens, int halves) {
    const bool there = half() < halves;
    const int swizzle = row() & 7;
    float v[kBox], sum = 0;
    ptx::mbarrier_wait(ring.raw_full(slot.stage), slot.parity);
    const bool has = has_rows<C, kIsB>(first, place(), tokens);  // all lanes agree
    float most = 0;
    if (has) {
      const unsigned from = ring.raw(slot.stage) + (2 * place() + half()) * kPanelBytes + 128 * row();
      unsigned bits[kBox] = {};
      if (there) {
#pragma unroll
        for (int j = 0; j < kBox / 4; ++j) ptx::load_shared<16>(bits + 4 * j, from + ((j ^ swizzle) << 4));
      }
      float largest[4] = {};
#pragma unroll
      for (int j = 0; j < kBox; ++j) {
        v[j] = __uint_as_float(bits[j]);
        largest[j % 4] = ptx::max_or_nan(largest[j % 4], fabsf(v[j]));
      }
      most = ptx::max_or_nan(ptx::max_or_nan(largest[0], largest[1]),
                             ptx::max_or_nan(largest[2], largest[3]));
      most = ptx::max_or_nan(most, __shfl_xor_sync(0xffffffffu, most, 16));
    }
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(ring.raw_empty(slot.stage));
    slot.advance();
    if constexpr (!kIsB) ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
    if (has) {
      if constexpr (kSums) {
#pragma unroll
        for (int j = 0; j < kBox; j += 4) sum += (v[j] + v[j + 1]) + (v[j + 2] + v[j + 3]);
      }
      write<kIsB>(v, most, there);
    }
    return sum;
  }
  // The stage has both operands.
  __device__ __forceinline__ void finish() {
    ptx::fence_async_shared();
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(ring.full(at.stage));
    at.advance();
  }

 private:
  // `most`: of the row's 64 magnitudes, NaN where any element is.
  template <bool kIsB>
  __device__ __forceinline__ void write(const float (&v)[kBox], float most, bool there) const {
    constexpr int kPlane = kIsB ? G::kPlaneB : G::kPlaneA;
    unsigned bits = __float_as_uint(most);
    const bool finite = __all_sync(0xffffffffu, bits < 0x7f800000u);
    if (!finite) {
      bits = 0;
#pragma unroll
      for (int j = 0; j < kBox; ++j) bits = max(bits, finite_magnitude(v[j]));
      bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, 16));
    }
    const unsigned exponent = scale_of(bits);
    const float scale = __uint_as_float((254 - exponent) << 23);  // the exponents of both add up to that of one
    if (half() == 0) {
      const unsigned to =
          (kIsB ? ring.scales_b(at.stage) : ring.scales_a(at.stage)) + place() * kScaleBytes;
      persistent::shared_memory()[to + scale_place<kIsB>(row()) - ring.base] =
          static_cast<unsigned char>(exponent);
    }
    if (!there) return;
    const unsigned to =
        (kIsB ? ring.b(at.stage) : ring.a(at.stage)) + place() * kPanelBytes + 128 * row();
#pragma unroll
    for (int i = 0; i < kBox / 8; ++i) {
      unsigned high[4], low[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float s0 = v[8 * i + 2 * j] * scale, s1 = v[8 * i + 2 * j + 1] * scale;
        high[j] = ptx::f32x2_to_f16x2(s0, s1);
        float l0 = s0 - ptx::f16_to_f32(static_cast<unsigned short>(high[j])),
              l1 = s1 - ptx::f16_to_f32(static_cast<unsigned short>(high[j] >> 16));
        if (!finite) {
          if ((__float_as_uint(s0) & 0x7f800000u) == 0x7f800000u) l0 = 0.0f;
          if ((__float_as_uint(s1) & 0x7f800000u) == 0x7f800000u) l1 = 0.0f;
        }
        low[j] = ptx::f32x2_to_f16x2(l0, l1);
      }
      const int piece = (4 * half() + i ^ (row() & 7)) << 4;
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
  const SlotLoader<C> loader{ring, blocks, stream_k, z.tokens};
  if (thread == 0) {
    loader.begin();
#pragma unroll 1
    for (int i = 0; i < kRawSlots; ++i) loader.load(y, x);
  }
  Splitter<C> splitter(ring, thread);
  TileWalk walk;
  for (persistent::WorkTile work; walk.next(stream_k, work);) {
    float sum = 0;
    for (int i = work.begin; i < work.end; ++i) {
      const int halves = blocks.halves(work, i);
      sum += splitter.template split<false, C.shape.bias>(128 * work.row, z.tokens, halves);
      if (thread == 0) loader.load(y, x);
      splitter.template split<true, false>(128 * work.column, z.tokens, halves);
      splitter.finish();
      if (thread == 0) loader.load(y, x);
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
                                       static_cast<int>(gridDim.x) * kSplitWarps, splitter.lane());
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_inside(const Params& p, const SplitRing<Geometry<C>>& ring,
                                                const persistent::StreamK& stream_k, const WeightSizes<C>& z,
                                                const KBlocks<C>& blocks, unsigned group) {
  Multiplier<C, 0, 0> multiplier(ring, group);
  for (TileWalk walk;;) {
    TileWalk here = walk;
    persistent::WorkTile work;
    if (!walk.next(stream_k, work)) break;
    const int count = work.end - work.begin;
    if (has_rows<C, false>(128 * work.row, static_cast<int>(group), z.tokens))
      multiplier.multiply_one_by_one(count, [&](int i) { return blocks.halves(work, work.begin + i); });
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
  constexpr int kSplitRegisters = split_registers(G::kColumns);
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
  constexpr int kQuads = 128 * 128 / 4;         // of a part
  constexpr int kHeld = 128 * G::kColumns / 4;  // of these, those that there are
  constexpr int kRuns = reduce_runs(C.config.split_k), kWidth = kReduceThreads / kRuns;
  constexpr int kRows = 32, kBiasRuns = kReduceThreads / kRows;  // of grad_bias, of an item
  __shared__ float4 partial[kReduceThreads];
  const WeightSizes<C> z(p);
  const persistent::StreamK stream_k = stream_k_of<C>(z, static_cast<int>(gridDim.x) / kReduceBlocks);
  const int tile_items = (stream_k.wide - stream_k.whole_tiles) * (kHeld / kWidth);
  const int bias_items = C.shape.bias ? z.heads * stream_k.rows * (128 / kRows) : 0;
  const int thread = static_cast<int>(threadIdx.x);
  ptx::wait_for_launches_before();
  for (int item = static_cast<int>(blockIdx.x); item < tile_items + bias_items;
       item += static_cast<int>(gridDim.x), __syncthreads()) {
    if (item < tile_items) {
      const int tile = item / (kHeld / kWidth), run = thread / kWidth;
      const int position = item % (kHeld / kWidth) * kWidth + thread % kWidth;
      const auto* from = static_cast<const float4*>(p.workspace) +
                         static_cast<long long>(tile) * stream_k.split * kQuads + position;
      const int end = stream_k.split * (run + 1) / kRuns;
      float4 sum = make_float4(0, 0, 0, 0);
      const auto add = [&](const float4& v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; };
#pragma unroll 8
      for (int i = stream_k.split * run / kRuns; i < end; ++i) add(from[static_cast<long long>(i) * kQuads]);
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
      const int own = position % 256, warp = own / 32, lane = own % 32;
      const int r = 128 * row + 16 * warp + lane / 4, c = 128 * column + position / 256 * 8 + lane % 4 * 2;
      write_pair<C>(p, copy, 0, z.tokens, z.diag, r, c, sum.x, sum.y);
      write_pair<C>(p, copy, 0, z.tokens, z.diag, r + 8, c, sum.z, sum.w);
    } else if constexpr (C.shape.bias) {
      const int rest = (item - tile_items) / (128 / kRows), head = rest / stream_k.rows;
      const int row = rest - head * stream_k.rows;
      const int own = (item - tile_items) % (128 / kRows) * kRows + thread % kRows, run = thread / kRows;
      const int tile = stream_k.index_of(false, stream_k.before(false, row), head) - stream_k.whole_tiles;
      if (tile < 0) continue;  // one block has written it
      const float* from = static_cast<const float*>(p.workspace) + stream_k.bias_slot(tile * stream_k.split) + own;
      const int end = stream_k.split * (run + 1) / kBiasRuns;
      float sum = 0;
#pragma unroll 8
      for (int i = stream_k.split * run / kBiasRuns; i < end; ++i) sum += from[i * 128];
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
