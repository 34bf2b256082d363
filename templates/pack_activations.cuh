// The launches that copy activations into the workspace and back (pack_activations.h). Grid: copy_tiles, or the
// blocks of CopyPieces; one row of it for each tensor. Rows begin at any element; threads write aligned pieces all the same, whose elements are
// loaded one by one.
#pragma once

#include "matrices.cuh"
#include "pack_activations.h"
#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "types.cuh"

namespace trigen::packing {

// Elements of its word of memory ahead of `at`: 1 or 0.
template <class T>
__device__ __forceinline__ int shift(const T* at) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(at) % 4 / sizeof(T));
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

// One tensor, features contiguous on both sides. A block's pieces of `to` lie behind each other, and so do those of the threads of a
// warp; every thread has kSteps of them, of which all are loaded before the first is stored.
template <Kernel C, bool kInto, int kSteps>
__device__ __forceinline__ void copy_pieces(const Activations& from, const Activations& to,
                                            const CopyPieces<kInto>& pieces, int heads, int features) {
  constexpr DType kType = C.shape.dtype;
  constexpr int kSize = size_of(kType), kBytes = CopyPieces<kInto>::kBytes, kEach = kBytes / kSize,
                kOfBlock = kCopyThreads * kSteps;
  const unsigned blocks = static_cast<unsigned>(pieces.blocks(kSteps)), both = blockIdx.x / blocks,
                 first = (blockIdx.x - both * blocks) * kOfBlock + threadIdx.x,
                 row_pieces = static_cast<unsigned>(pieces.row);
  const int batch = static_cast<int>(both) / heads, head = static_cast<int>(both) - batch * heads;
  const long long rest = pieces.of_head - first;
  const int left = rest < kOfBlock ? static_cast<int>(rest) : kOfBlock;
  const unsigned line = first / row_pieces, lines = kCopyThreads / row_pieces;  // of a step
  const int piece_step = static_cast<int>(kCopyThreads - lines * row_pieces);
  int piece = static_cast<int>(first - line * row_pieces);
  // Bytes: a row's, a step's, and from a batch's last element to the next one's first.
  const long long from_row = from.row * kSize, to_row = to.row * kSize, from_step = lines * from_row,
                  to_step = lines * to_row, gap = (from.batch - features) * kSize;
  const char* source = reinterpret_cast<const char*>(element<C>(from, batch, head, line, 0));
  char* target = reinterpret_cast<char*>(element<C>(to, batch, head, line, 0));
  unsigned value[kSteps][kBytes / 4];
  char* place[kSteps];  // of the piece
  int at[kSteps];       // its first element: -1, or the last one, where the piece has one element of the row
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int ahead = kInto ? 0 : shift(reinterpret_cast<Storage<kType>*>(target));
    at[i] = kEach * piece - ahead;
    place[i] = target + (kBytes * piece - kSize * ahead);
    const char* own = source + (kBytes * piece - kSize * ahead);
    int next_batch = 0;  // the element of the piece that begins one
    if constexpr (kJoins<C>) {
      const unsigned of = static_cast<unsigned>(at[i]) / static_cast<unsigned>(features);
      own += of * gap;
      next_batch = static_cast<int>(of + 1) * features - at[i];
    }
#pragma unroll
    for (int w = 0; w < kBytes / 4; ++w) value[i][w] = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if constexpr (kJoins<C>)
        if (e == next_batch) {
          own += gap;
          next_batch += features;
        }
      if (i * kCopyThreads >= left || at[i] + e >= pieces.length || (!kInto && at[i] + e < 0)) continue;
      unsigned read;
      ptx::load_global<kSize>(&read, own + e * kSize);
      value[i][e * kSize / 4] |= read << e * kSize % 4 * 8;
    }
    piece += piece_step;
    source += from_step;
    target += to_step;
    if (piece >= pieces.row) {
      piece -= pieces.row;
      source += from_row;
      target += to_row;
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const bool there = i * kCopyThreads < left, begins = at[i] >= 0 && at[i] < pieces.length,
               ends = at[i] + kEach <= pieces.length;
    if (there && (kInto || (begins && ends))) ptx::store_global<kBytes>(place[i], value[i]);
    if constexpr (!kInto && kEach > 1) {
      const unsigned high = value[i][0] >> 16;
      if (there && begins && !ends) ptx::store_global<2>(place[i], value[i]);
      if (there && !begins && ends) ptx::store_global<2>(place[i] + 2, &high);
    }
  }
}

template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_rows(const Activations& from, const Activations& to, int B, int heads,
                                          int tokens, int features) {
  using Pieces = CopyPieces<kInto>;
  const Pieces pieces(kJoins<C> ? B * features : features, tokens, C.shape.dtype);
  const unsigned both = static_cast<unsigned>(kJoins<C> ? heads : B * heads);
  if (gridDim.x == both * static_cast<unsigned>(pieces.blocks(Pieces::kMostSteps)))
    copy_pieces<C, kInto, Pieces::kMostSteps>(from, to, pieces, heads, features);
  else
    copy_pieces<C, kInto, Pieces::kMostSteps / 2>(from, to, pieces, heads, features);
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
  if constexpr (C.shape.layout == Layout::kBTD)
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
