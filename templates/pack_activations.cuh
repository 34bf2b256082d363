// The launches that copy activations into the workspace and back (pack_activations.h). Grid: copy_blocks, one
// row of it for each tensor. Rows begin at any element; a thread writes aligned pieces of 16 bytes all the same,
// each from the two aligned ones that have it.
#pragma once

#include "matrices.cuh"
#include "pack_activations.h"
#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "types.cuh"

namespace trigen::packing {

// Elements of a 16-byte piece of memory, and of those that lie ahead of `at` in its own.
template <DType kType>
inline constexpr int kEach = kPieceBytes / size_of(kType);
template <DType kType>
__device__ __forceinline__ int elements_into_piece(const Storage<kType>* at) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(at) / size_of(kType) % kEach<kType>);
}
// Does a 16-bit element lie in the upper half of its word?
__device__ __forceinline__ int shift(const unsigned short* at) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(at) / 2 % 2);
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

// The aligned piece that begins at element `first` of a run of `count`, if it has something of the run. `whole`: what lies
// beside the run in it may be read, too; else its elements are loaded one by one where it ends inside.
template <DType kType>
__device__ __forceinline__ void load_piece(unsigned* word, const Storage<kType>* row, int first, int count,
                                           bool whole) {
  constexpr int kOfWord = 4 / size_of(kType);
  if (first + kEach<kType> <= 0 || first >= count) return;
  if (whole || (first >= 0 && first + kEach<kType> <= count)) {
    ptx::load_global<kPieceBytes>(word, row + first);
    return;
  }
#pragma unroll
  for (int i = 0; i < kEach<kType>; ++i) {
    if (first + i < 0 || first + i >= count) continue;
    unsigned value;
    ptx::load_global<size_of(kType)>(&value, row + first + i);
    word[i / kOfWord] |= kOfWord == 1 ? value : value << 16 * (i % 2);
  }
}

// kEach<kType> elements from element `at` of a run of `count` on, which begins at `row`: what two aligned pieces of
// memory have of them. Elements outside the run are anything. `before`, `behind`: neighbours may be read there.
template <DType kType>
struct PieceLoad {
  unsigned word[8] = {};
  int skew = 0;  // elements of the first piece ahead

  __device__ __forceinline__ void issue(const Storage<kType>* row, int at, int count, bool before,
                                        bool behind) {
    skew = elements_into_piece<kType>(row + at);
    const auto load = [&](unsigned* to, int first) {
      load_piece<kType>(to, row, first, count,
                        (before || first >= 0) && (behind || first + kEach<kType> <= count));
    };
    load(word, at - skew);
    if (skew > 0) load(word + 4, at - skew + kEach<kType>);
  }
  // The same one by one: get(i) loads element i.
  template <class Get>
  __device__ __forceinline__ void gather(const Get& get) {
    constexpr int kOfWord = 4 / size_of(kType);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[i] = get(kOfWord * i);
      if constexpr (kOfWord == 2) word[i] |= get(kOfWord * i + 1) << 16;
    }
  }
  __device__ __forceinline__ void take(unsigned (&out)[4]) const {
    const int bytes = skew * size_of(kType);
    unsigned moved[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      const unsigned low = bytes & 8 ? word[i + 2] : word[i],
                     high = bytes & 8 ? word[i + 3 & 7] : word[i + 1];
      moved[i] = bytes & 4 ? high : low;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out[i] =
          kType == DType::kF32 ? moved[i] : __byte_perm(moved[i], moved[i + 1], bytes & 2 ? 0x5432 : 0x3210);
  }
};

// Writes elements `at` and behind of a run of `count` from `row` on, as far as they are of it: one aligned piece.
template <DType kType>
__device__ __forceinline__ void store_piece(Storage<kType>* row, int at, int count,
                                            const unsigned (&word)[4]) {
  if (at >= 0 && at + kEach<kType> <= count) {
    ptx::store_global<kPieceBytes>(row + at, word);
    return;
  }
  constexpr unsigned kAll = (1u << kEach<kType>)-1;
  // Bit i: element i is of the run.
  const unsigned inside = kAll << schedule::max(-at, 0) & kAll >> schedule::max(at + kEach<kType> - count, 0);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DType::kF32) {
      if (inside >> i & 1) ptx::store_global<4>(row + at + i, &word[i]);
    } else {
      const unsigned high = word[i] >> 16, own = inside >> 2 * i & 3;
      if (own == 3) ptx::store_global<4>(row + at + 2 * i, &word[i]);
      if (own == 1) ptx::store_global<2>(row + at + 2 * i, &word[i]);
      if (own == 2) ptx::store_global<2>(row + at + 2 * i + 1, &high);
    }
  }
}

// Zeros behind element `count` of a piece that begins at element `at`.
template <DType kType>
__device__ __forceinline__ void clear_behind(unsigned (&word)[4], int at, int count) {
  constexpr int kOfWord = 4 / size_of(kType);
  if (at + kEach<kType> <= count) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (at + kOfWord * i >= count) word[i] = 0;
    if (kOfWord == 2 && at + kOfWord * i + 1 >= count) word[i] &= 0xFFFF;
  }
}

// Where a block's pieces begin: in a row of so many of them.
struct FirstPiece {
  long long row;
  int piece;
  __device__ __forceinline__ explicit FirstPiece(int row_pieces) {
    const long long index = static_cast<long long>(blockIdx.x) * (kCopyThreads * kSteps);
    row = index / row_pieces;
    piece = static_cast<int>(index - row * row_pieces);
  }
};

// One tensor, features contiguous on both sides: every thread kSteps aligned pieces of `to`.
template <Kernel C, bool kInto>
__device__ __forceinline__ void copy_rows(const Activations& from, const Activations& to, int B, int heads,
                                          int tokens, int features) {
  constexpr DType kType = C.shape.dtype;
  const int pieces = row_pieces(features, kType, kInto);
  const FirstPiece first(pieces);
  const long long both = first.row / tokens, batch = both / heads;
  const int token = static_cast<int>(first.row - both * tokens),
            head = static_cast<int>(both - batch * heads);
  PieceLoad<kType> load[kSteps];
  Storage<kType>* target[kSteps];
  int at[kSteps];  // of the row; B * heads * tokens rows are there
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int index = first.piece + i * kCopyThreads + static_cast<int>(threadIdx.x), line = index / pieces,
              own_token = token + line, heads_on = own_token / tokens, own_head = head + heads_on,
              batches_on = own_head / heads, t = own_token - heads_on * tokens,
              h = own_head - batches_on * heads;
    target[i] = nullptr;
    if (batch + batches_on >= B) continue;
    target[i] = element<C>(to, batch + batches_on, h, t, 0);
    at[i] = (index - line * pieces) * kEach<kType> - (kInto ? 0 : elements_into_piece<kType>(target[i]));
    // A row's neighbours are those of its head, or what the product left in a slot of 16-bit data.
    const bool dense = from.row == features && features >= kEach<kType>,
               left = !kInto && kType != DType::kF32;
    load[i].issue(element<C>(from, batch + batches_on, h, t, 0), at[i], features, left || (dense && t > 0),
                  left || (dense && t + 1 < tokens));
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (target[i] == nullptr) continue;
    unsigned word[4];
    load[i].take(word);
    if constexpr (kInto) {  // a slot's rows have room for whole pieces
      clear_behind<kType>(word, at[i], features);
      ptx::store_global<kPieceBytes>(target[i] + at[i], word);
    } else {
      store_piece<kType>(target[i], at[i], features, word);
    }
  }
}

// One tensor whose slot's rows join the batches: every thread kSteps pieces of such rows. A piece within a batch is two
// pieces of memory, as above; others are gathered.
template <Kernel C>
__device__ __forceinline__ void copy_joined(const Activations& from, const Activations& to, int B, int heads,
                                            int tokens, int features) {
  constexpr DType kType = C.shape.dtype;
  const int end = B * features, pieces = row_pieces(end, kType, true);
  const FirstPiece first(pieces);
  PieceLoad<kType> load[kSteps];
  Storage<kType>* target[kSteps];
  int at[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int index = first.piece + i * kCopyThreads + static_cast<int>(threadIdx.x), line = index / pieces;
    const long long row = first.row + line;
    const int head = static_cast<int>(row / tokens),
              token = static_cast<int>(row - static_cast<long long>(head) * tokens);
    target[i] = nullptr;
    if (head >= heads) continue;
    at[i] = (index - line * pieces) * kEach<kType>;
    target[i] = element<C>(to, 0, head, token, at[i]);
    const auto* const source = element<C>(from, 0, head, token, 0);
    const int batch = at[i] / features, feature = at[i] - batch * features;
    if (feature + kEach<kType> <= features)
      load[i].issue(source + batch * from.batch, feature, features, from.row == features && token > 0,
                    from.row == features && token + 1 < tokens);
    else
      load[i].gather([&](int k) {
        const int own = at[i] + k, of = own / features;
        unsigned value = 0;
        if (own < end)
          ptx::load_global<size_of(kType)>(&value, source + of * from.batch + (own - of * features));
        return value;
      });
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (target[i] == nullptr) continue;
    unsigned word[4];
    load[i].take(word);
    ptx::store_global<kPieceBytes>(target[i], word);
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
