// The launches that copy activations into the workspace and back (pack_activations.h). Grid: copy_blocks, one
// row of it for each tensor. Rows begin at any element; a warp reads and writes words of them all the same.
#pragma once

#include "pack_activations.h"
#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "types.cuh"

namespace trigen::packing {

// Word `lane` of a run of `count` elements from `from` on, in two steps, so that a warp has many loads under
// way. Of 16-bit types a word has the elements 2 * lane and + 1; where the run begins in the middle of a word
// of memory, neighbours make it of two. What lies behind the run is not read, and zero here.
template <DType kType>
struct RunLoad {
  unsigned word = 0, first = 0;

  __device__ __forceinline__ void issue(const Storage<kType>* from, int count, int lane) {
    if constexpr (kType == DType::kF32) {
      if (lane < count) ptx::load_global<4>(&word, from + lane);
    } else {
      const int at = 2 * lane + shift(from);
      if (at + 1 < count)
        ptx::load_global<4>(&word, from + at);
      else if (at < count)
        ptx::load_global<2>(&word, from + at);
      if (shift(from) && lane == 0 && count > 0) ptx::load_global<2>(&first, from);
    }
  }
  __device__ __forceinline__ unsigned take(const Storage<kType>* from, int lane) const {
    if constexpr (kType == DType::kF32) return word;
    if (!shift(from)) return word;
    const unsigned before = __shfl_up_sync(~0u, word, 1);
    return (lane == 0 ? first : before >> 16) | word << 16;
  }
  __device__ __forceinline__ static int shift(const Storage<kType>* at) {
    return static_cast<int>(reinterpret_cast<unsigned long long>(at) / 2 % 2);
  }
};

// The other way round: writes the run whose word `lane` is `word`.
template <DType kType>
__device__ __forceinline__ void store_run(Storage<kType>* to, unsigned word, int count, int lane) {
  if constexpr (kType == DType::kF32) {
    if (lane < count) ptx::store_global<4>(to + lane, &word);
  } else {
    const int shift = RunLoad<kType>::shift(to), at = 2 * lane + shift;
    if (shift) {
      if (lane == 0 && count > 0) ptx::store_global<2>(to, &word);
      const unsigned after = __shfl_down_sync(~0u, word, 1);
      word = word >> 16 | after << 16;
    }
    if (at + 1 < count && (!shift || lane < 31))
      ptx::store_global<4>(to + at, &word);
    else if (at < count)
      ptx::store_global<2>(to + at, &word);
  }
}

template <DType kType>
__device__ __forceinline__ Storage<kType>* element(const Activations& t, long long batch, long long head,
                                                   long long row, long long column) {
  return static_cast<Storage<kType>*>(t.data) + (batch * t.batch + head * t.head + row * t.row + column);
}

// Of a slot's rows, an even number of features is written: kernels read pairs. The last may be a zero.
template <bool kInto>
__device__ __forceinline__ int written(int features) {
  return kInto ? features + features % 2 : features;
}

// One tensor, features contiguous on both sides: every warp a piece of a row.
template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_rows(const Activations& from, const Activations& to, int B, int heads,
                                          int tokens, int features) {
  constexpr DType kType = C.shape.dtype;
  constexpr int kWidth = warp_width(kType);
  const int pieces = row_pieces(features, kType);
  const long long index = static_cast<long long>(blockIdx.x) * kCopyWarps + threadIdx.x / 32;
  const long long all = index / pieces, both = all / tokens;
  const int token = static_cast<int>(all - both * tokens), batch = static_cast<int>(both / heads),
            head = static_cast<int>(both - static_cast<long long>(batch) * heads);
  if (batch >= B) return;
  const int column = static_cast<int>(index - all * pieces) * (kSteps * kWidth),
            lane = static_cast<int>(threadIdx.x % 32), count = features - column,
            stored = written<kInto>(features) - column;
  const auto* const source = element<kType>(from, batch, head, token, column);
  auto* const target = element<kType>(to, batch, head, token, column);
  RunLoad<kType> load[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    load[i].issue(source + i * kWidth, schedule::min(count - i * kWidth, kWidth), lane);
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    store_run<kType>(target + i * kWidth, load[i].take(source + i * kWidth, lane),
                     schedule::min(stored - i * kWidth, kWidth), lane);
}

// One tensor, transposed: a block has kTileEdge rows of `from`, whose columns become rows of `to`. `rows` and
// `columns`: of the whole of `from`, of one head.
template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_tile(const Activations& from, const Activations& to, int B, int heads,
                                          int rows, int columns) {
  constexpr DType kType = C.shape.dtype;
  constexpr bool kWide = kType == DType::kF32;
  constexpr int kWidth = warp_width(kType), kRows = kTileEdge / kCopyWarps, kRuns = kTileEdge / kWidth;
  constexpr int kPitch = kTileEdge / (kWide ? 1 : 2) + 1;  // words of a row in shared memory
  extern __shared__ __align__(16) unsigned copied_shared[];
  const int across = schedule::ceil_div(columns, kTileEdge), down = schedule::ceil_div(rows, kTileEdge);
  const long long both = blockIdx.x / (static_cast<long long>(across) * down);
  const int tile = static_cast<int>(blockIdx.x - both * across * down),
            batch = static_cast<int>(both / heads),
            head = static_cast<int>(both - static_cast<long long>(batch) * heads);
  if (batch >= B) return;
  const int row = tile / across * kTileEdge, column = tile % across * kTileEdge;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);

  RunLoad<kType> load[kRows][kRuns];
  const auto source = [&](int r, int run) {
    return element<kType>(from, batch, head, row + warp * kRows + r, column + run * kWidth);
  };
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
      if (row + warp * kRows + r < rows)
        load[r][run].issue(source(r, run), schedule::min(columns - column - run * kWidth, kWidth), lane);
  if constexpr (kWide) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int run = 0; run < kRuns; ++run)
        copied_shared[(run * kWidth + lane) * kPitch + warp * kRows + r] = load[r][run].word;
  } else {
    // Two rows at once: words of two columns become words of two rows. Half of the lanes write their even
    // column first, so that 32 columns reach 32 banks.
    const int odd = lane / 16;
#pragma unroll
    for (int r = 0; r < kRows; r += 2) {
      const unsigned low = load[r][0].take(source(r, 0), lane),
                     high = load[r + 1][0].take(source(r + 1, 0), lane);
      const unsigned even_column = (low & 0xFFFF) | high << 16, odd_column = low >> 16 | (high & 0xFFFF0000);
      unsigned* const at = copied_shared + 2 * lane * kPitch + (warp * kRows + r) / 2;
      at[odd * kPitch] = odd ? odd_column : even_column;
      at[(1 - odd) * kPitch] = odd ? even_column : odd_column;
    }
  }
  __syncthreads();
  const int stored = written<kInto>(rows);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int line = warp * kRows + i;
    if (column + line >= columns) continue;
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
      store_run<kType>(element<kType>(to, batch, head, column + line, row + run * kWidth),
                       copied_shared[line * kPitch + run * 32 + lane],
                       schedule::min(stored - row - run * kWidth, kWidth), lane);
  }
}

template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_activations(const Params& p, const Activations& outside, int slot) {
  const int tokens = C.shape.T ? C.shape.T : p.T, features = C.shape.D ? C.shape.D : p.D,
            heads = C.shape.H ? C.shape.H : p.H;
  const Activations inside = slot_of(p, slot, C.shape.dtype);
  const Activations &from = kInto ? outside : inside, &to = kInto ? inside : outside;
  if constexpr (C.shape.layout == Layout::kBTD)
    copy_rows<C, kInto>(from, to, p.B, heads, tokens, features);
  else
    copy_tile<C, kInto>(from, to, p.B, heads, kInto ? features : tokens, kInto ? tokens : features);
}

// What the product reads: of forward x, gate, residual; of grad_input dy, residual; of grad_weight x, dy.
template <Kernel C>
__device__ __forceinline__ void pack_activations(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr Slots kSlots(s);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
  const int which = static_cast<int>(blockIdx.y);
  if (which == 0)
    copy_activations<C, true>(p, s.op == Op::kGradInput ? p.y : p.x,
                              s.op == Op::kGradInput ? kSlots.y : kSlots.x);
  else if (s.op == Op::kGradWeight)
    copy_activations<C, true>(p, p.y, kSlots.y);
  else if (s.gate && which == 1)
    copy_activations<C, true>(p, p.gate, kSlots.gate);
  else
    copy_activations<C, true>(p, p.residual, kSlots.residual);
}

// What it writes: y and pre, dx.
template <Kernel C>
__device__ __forceinline__ void unpack_activations(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr Slots kSlots(s);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
  if (blockIdx.y == 0)
    copy_activations<C, false>(p, s.op == Op::kGradInput ? p.x : p.y,
                               s.op == Op::kGradInput ? kSlots.x : kSlots.y);
  else
    copy_activations<C, false>(p, p.pre, kSlots.pre);
}

}  // namespace trigen::packing
