// The launches that copy activations into the workspace and back (pack_activations.h). Grid: copy_blocks, one
// row of it for each tensor. Rows begin at any element; a warp reads and writes words of them all the same.
#pragma once

#include "matrices.cuh"
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

template <Kernel C>
__device__ __forceinline__ Storage<C.shape.dtype>* element(const Activations& t, long long batch, int head,
                                                           long long row, long long column) {
  if constexpr (C.shape.pointers)
    return static_cast<Storage<C.shape.dtype>*>(first_of<C, C.shape.dtype>(t.data, t.head, head)) +
           (batch * t.batch + row * t.row + column);
  else
    return static_cast<Storage<C.shape.dtype>*>(t.data) +
           (batch * t.batch + head * t.head + row * t.row + column);
}

template <Kernel C>
inline constexpr bool kJoins = joins_batches(C.shape.op, C.shape.K);
// Rows of a slot that are not joined begin at lines. An even number of features of them is written: kernels
// read pairs. The last may be a zero.
template <Kernel C, bool kInto>
inline constexpr bool kLines = kInto && !kJoins<C>;
template <Kernel C, bool kInto>
__device__ __forceinline__ int written(int features) {
  return kLines<C, kInto> ? features + features % 2 : features;
}

// kSteps runs, of which `count` elements are there and `stored` are written. kWhole: all, and one more behind
// them, so that nothing has to be compared.
template <DType kType, bool kWhole>
__device__ __forceinline__ void copy_piece(const Storage<kType>* source, Storage<kType>* target, int count,
                                           int stored, int lane) {
  constexpr int kWidth = warp_width(kType);
  RunLoad<kType> load[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    load[i].issue(source + i * kWidth, kWhole ? kWidth + 1 : schedule::min(count - i * kWidth, kWidth), lane);
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    store_run<kType>(target + i * kWidth, load[i].take(source + i * kWidth, lane),
                     kWhole ? kWidth : schedule::min(stored - i * kWidth, kWidth), lane);
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
            stored = written<C, kInto>(features) - column;
  const auto* const source = element<C>(from, batch, head, token, column);
  auto* const target = element<C>(to, batch, head, token, column);
  if (count > kSteps * kWidth)
    copy_piece<kType, true>(source, target, count, stored, lane);
  else
    copy_piece<kType, false>(source, target, count, stored, lane);
}

// One tensor whose slot's rows join the batches: every warp a piece of such a row. Batches of few features
// would leave most lanes of a warp idle that copies one at a time.
template <Kernel C>
__device__ __forceinline__ void copy_joined(const Activations& from, const Activations& to, int B, int heads,
                                            int tokens, int features) {
  constexpr DType kType = C.shape.dtype;
  constexpr int kWidth = warp_width(kType), kEach = kWidth / 32;  // elements of a word
  const int pieces = row_pieces(B * features, kType), lane = static_cast<int>(threadIdx.x % 32);
  const long long index = static_cast<long long>(blockIdx.x) * kCopyWarps + threadIdx.x / 32,
                  row = index / pieces;
  const int head = static_cast<int>(row / tokens),
            token = static_cast<int>(row - static_cast<long long>(head) * tokens),
            first = static_cast<int>(index - row * pieces) * (kSteps * kWidth) + kEach * lane,
            end = B * features;
  if (head >= heads) return;
  const auto* const source = element<C>(from, 0, head, token, 0);
  auto* const target = element<C>(to, 0, head, token, 0);
  // Words of memory do not cross batches.
  const bool words =
      (from.batch | (C.shape.pointers ? 0 : from.head) | from.row | features) % kEach == 0 &&
      reinterpret_cast<unsigned long long>(C.shape.pointers ? static_cast<const void*>(source) : from.data) %
              4 ==
          0;
  unsigned word[kSteps] = {};
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int at = first + i * kWidth, batch = at / features, feature = at - batch * features;
    if (at >= end) continue;
    const auto* const own = source + batch * from.batch + feature;
    if (words) {
      ptx::load_global<4>(&word[i], own);
    } else {
      unsigned low = 0, high = 0;
      ptx::load_global<2>(&low, own);
      const bool crosses = feature + 1 == features;
      if (at + 1 < end) ptx::load_global<2>(&high, crosses ? source + (batch + 1) * from.batch : own + 1);
      word[i] = low | high << 16;
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int at = first + i * kWidth;
    if (at + kEach <= end)
      ptx::store_global<4>(target + at, &word[i]);
    else if (at < end)
      ptx::store_global<2>(target + at, &word[i]);
  }
}

// A block's tile of a transposed tensor.
struct TilePlace {
  int batch, head, row, column;
  __device__ __forceinline__ TilePlace(int heads, int rows, int columns) {
    const int across = schedule::ceil_div(columns, kTileEdge), down = schedule::ceil_div(rows, kTileEdge);
    const long long both = blockIdx.x / (static_cast<long long>(across) * down);
    const int tile = static_cast<int>(blockIdx.x - both * across * down);
    batch = static_cast<int>(both / heads);
    head = static_cast<int>(both - static_cast<long long>(batch) * heads);
    row = tile / across * kTileEdge;
    column = tile % across * kTileEdge;
  }
};

// One tensor, transposed: a block has kTileEdge rows of `from`, whose columns become rows of `to`. `rows` and
// `columns`: of the whole of `from`, of one head. 16-bit elements: rows of shared memory hold the words of
// memory as they lie, so that element c of a row is half word c, or c + 1 where the row begins inside a word.
template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_tile(const Activations& from, const Activations& to, int B, int heads,
                                          int rows, int columns) {
  constexpr DType kType = C.shape.dtype;
  constexpr int kRows = kTileEdge / kCopyWarps, kPitch = kTileEdge / 2 + 1;  // words
  extern __shared__ __align__(16) unsigned copied_shared[];
  auto* const halves = reinterpret_cast<unsigned short*>(copied_shared);
  const TilePlace tile(heads, rows, columns);
  if (tile.batch >= B) return;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            line = warp * kRows;  // of the tile
  const auto shift = RunLoad<kType>::shift;
  const Storage<kType>* const source = element<C>(from, tile.batch, tile.head, tile.row, tile.column);
  const int count = columns - tile.column, least = tile.column > 0 ? -1 : 0;
  unsigned word[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const auto* const own = source + (line + r) * from.row;
    const int at = 2 * lane - shift(own);
    word[r] = 0;
    if (tile.row + line + r >= rows) continue;
    if (at >= least && at + 1 < count) {
      ptx::load_global<4>(&word[r], own + at);
    } else if (at >= 0 && at < count) {
      ptx::load_global<2>(&word[r], own + at);
    } else if (at == -1) {
      ptx::load_global<2>(&word[r], own);
      word[r] <<= 16;
    }
  }
  // The last element of a row that begins inside a word, one row for each of the first lanes.
  unsigned last = 0;
  const auto* const mine = source + (line + lane % kRows) * from.row;
  const bool has_last = lane < kRows && shift(mine);
  if (has_last && tile.row + line + lane < rows && kTileEdge <= count)
    ptx::load_global<2>(&last, mine + kTileEdge - 1);
#pragma unroll
  for (int r = 0; r < kRows; ++r) copied_shared[(line + r) * kPitch + lane] = word[r];
  if (has_last) copied_shared[(line + lane) * kPitch + kPitch - 1] = last;
  __syncthreads();

  // `line` is now a column of the tile. A lane makes words of rows 2 * lane and + 1, one more where the row
  // of `to` begins inside a word. Half of the lanes read the second one first: 32 rows, 32 banks.
  const int end = schedule::min(written<C, kInto>(rows) - tile.row, kTileEdge), swaps = lane / 16;
  Storage<kType>* const target = element<C>(to, tile.batch, tile.head, tile.column, tile.row);
  const auto at = [&](int row, int c) {
    return (row * kPitch * 2) + c + (kInto ? shift(source + row * from.row) : 0);
  };
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    auto* const own = target + (line + i) * to.row;
    const int row = 2 * lane + (kLines<C, kInto> ? 0 : shift(own)),
              next = schedule::min(row + 1, kTileEdge - 1);
    if (tile.column + line + i >= columns) continue;
    const unsigned one = halves[at(swaps ? next : row, line + i)],
                   other = halves[at(swaps ? row : next, line + i)];
    const unsigned both = __byte_perm(one, other, swaps ? 0x1054 : 0x5410);
    if (row + 1 < end)
      ptx::store_global<4>(own + row, &both);
    else if (row < end)
      ptx::store_global<2>(own + row, &both);
  }
  if constexpr (!kLines<C, kInto>) {  // the first element of such rows
    auto* const own = target + (line + lane % kRows) * to.row;
    if (lane < kRows && shift(own) && tile.column + line + lane < columns) {
      const unsigned first = halves[at(0, line + lane)];
      ptx::store_global<2>(own, &first);
    }
  }
}

// f32: a run of a row is a word for each lane.
template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_wide_tile(const Activations& from, const Activations& to, int B,
                                               int heads, int rows, int columns) {
  constexpr DType kType = C.shape.dtype;
  constexpr int kRows = kTileEdge / kCopyWarps, kRuns = kTileEdge / 32, kPitch = kTileEdge + 1;  // words
  extern __shared__ __align__(16) unsigned copied_shared[];
  const TilePlace tile(heads, rows, columns);
  if (tile.batch >= B) return;
  const int line = static_cast<int>(threadIdx.x / 32) * kRows, lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int column = 32 * run + lane;
      unsigned word = 0;
      if (tile.row + line + r < rows && tile.column + column < columns)
        ptx::load_global<4>(
            &word, element<C>(from, tile.batch, tile.head, tile.row + line + r, tile.column + column));
      copied_shared[column * kPitch + line + r] = word;
    }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int row = 32 * run + lane;
      if (tile.column + line + i < columns && tile.row + row < written<C, kInto>(rows))
        ptx::store_global<4>(element<C>(to, tile.batch, tile.head, tile.column + line + i, tile.row + row),
                             &copied_shared[(line + i) * kPitch + row]);
    }
}

template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_activations(const Params& p, const Activations& outside, int slot) {
  const int tokens = C.shape.T ? C.shape.T : p.T, features = C.shape.D ? C.shape.D : p.D,
            heads = C.shape.H ? C.shape.H : p.H;
  const Activations inside = slot_of(p, slot, C.shape.dtype, kJoins<C>);
  const Activations &from = kInto ? outside : inside, &to = kInto ? inside : outside;
  if constexpr (C.shape.layout == Layout::kBTD && kJoins<C>)
    copy_joined<C>(from, to, p.B, heads, tokens, features);
  else if constexpr (C.shape.layout == Layout::kBTD)
    copy_rows<C, kInto>(from, to, p.B, heads, tokens, features);
  else if constexpr (C.shape.dtype == DType::kF32)
    copy_wide_tile<C, kInto>(from, to, p.B, heads, kInto ? features : tokens, kInto ? tokens : features);
  else
    copy_tile<C, kInto>(from, to, p.B, heads, kInto ? features : tokens, kInto ? tokens : features);
}

// A tensor of the call and its slot.
struct Tensor {
  Activations outside;
  int slot;
};

// Tensors that the product reads: of forward x, gate, residual; of grad_input dy, residual; of grad_weight x,
// dy.
template <Kernel C>
__device__ __forceinline__ void pack_activations(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr Slots kSlots(s);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
  const int which = static_cast<int>(blockIdx.y);
  Tensor tensor = s.op == Op::kGradInput ? Tensor{.outside = p.y, .slot = kSlots.y}
                                         : Tensor{.outside = p.x, .slot = kSlots.x};
  if (makes_weights(s.op) && which == 1) tensor = {.outside = p.y, .slot = kSlots.y};
  if (s.gate && which == 1) tensor = {.outside = p.gate, .slot = kSlots.gate};
  if (kSlots.residual >= 0 && which == 1 + s.gate) tensor = {.outside = p.residual, .slot = kSlots.residual};
  copy_activations<C, true>(p, tensor.outside, tensor.slot);
}

// Tensors that the product writes: y and pre, dx.
template <Kernel C>
__device__ __forceinline__ void unpack_activations(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr Slots kSlots(s);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
  Tensor tensor = s.op == Op::kGradInput ? Tensor{.outside = p.x, .slot = kSlots.x}
                                         : Tensor{.outside = p.y, .slot = kSlots.y};
  if (s.pre && blockIdx.y == 1) tensor = {.outside = p.pre, .slot = kSlots.pre};
  copy_activations<C, false>(p, tensor.outside, tensor.slot);
}

}  // namespace trigen::packing
