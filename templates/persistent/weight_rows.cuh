// grad_weight of rows that begin at any element, which TMA cannot take: threads bring dy and x. Warps ask for the
// aligned pieces of 16 bytes that have a stage's rows, each where TMA would put the row's own: piece i of a row lies where
// element 8 i has to be, the ninth beside the panels. Others shift the rows in place once they have landed, a row a thread. (Not the
// same warps: the fence between a shift and the products waits for all that its thread has asked for.)
#pragma once

#include "persistent/grad_weight.cuh"
#include "ptx/cp_async.cuh"

namespace trigen::persistent::weight {

// Rows of a stage, dy's and then x's, and warps that bring and that shift them, by groups of 32 rows.
inline constexpr int kStageRows = 256, kBringing = 4, kShifting = 4;
// Groups of 32 rows of an operand that have the tokens of one batch, in order: all of them, or those of each batch of the stage that
// is stacked.
template <Kernel C>
inline constexpr int kBatchGroups = (stacks(C.config) ? stack_rows(C.shape, C.config) : 128) / 32;
template <Kernel C>
__device__ __forceinline__ int token_of(int group) {
  return 32 * (group % kBatchGroups<C>);
}
template <Kernel C>
__device__ __forceinline__ int batch_of(const BlockBoxes<C>& at, int group) {
  return at.batch * (4 / kBatchGroups<C>)+group / kBatchGroups<C>;
}
template <Kernel C>
__device__ __forceinline__ unsigned rows_at(const Ring<Geometry<C>>& ring, int stage, int row) {
  return ring.a(stage) + row * 128;
}
template <Kernel C>
__device__ __forceinline__ unsigned ninth_at(const Ring<Geometry<C>>& ring, int stage, int row) {
  return ring.a(stage) + kStageRows * 128 + row * piece_bytes();
}
// Of 32 rows' ninth pieces that of row `row`: a place of its own bank among those that 8 lanes write, and that they read.
__device__ __forceinline__ unsigned ninth_place(int row) {
  return (row % 4 * 8 + (row / 4 ^ row % 4 * 2)) * piece_bytes();
}
// The barrier of a stage's pieces; full[stage] waits for the shift.
template <Kernel C>
__device__ __forceinline__ unsigned landed(const Ring<Geometry<C>>& ring, int stage) {
  return ring.empty(C.config.stages + stage);
}
// Pieces of a row that are multiplied: in a batch's last k block a half or a quarter may do.
inline constexpr int kPieces = 8;
template <Kernel C>
inline constexpr int kLastPieces = kLastSteps<C> > 2 ? kPieces : 2 * kLastSteps<C>;
template <Kernel C>
__device__ __forceinline__ bool is_short(const BlockBoxes<C>& at, int features) {
  return kLastPieces<C> < kPieces && at.feature + kPanel > features;
}

// An operand's rows in a stage, of dy those from 0 on, of x from 128 on.
struct OperandRows {
  const char* start;        // element 0 of the first one, of batch 0
  long long batch, stride;  // bytes from batch to batch, from row to row
  int left;                 // rows that there are

  __device__ __forceinline__ static OperandRows of(const Params& p, const WorkTile& work, int tokens,
                                                   bool x) {
    const Activations& t = x ? p.x : p.y;
    const int token = 128 * (x ? work.column : work.row);
    return {static_cast<const char*>(t.data) + 2 * (work.copy * t.head + token * t.row), 2 * t.batch,
            2 * t.row, schedule::min(tokens - token, 128)};
  }
};
// Bytes by which a row begins inside a piece.
__device__ __forceinline__ int skew_of(const char* row) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(row) % piece_bytes());
}

// A lane's pieces of 32 rows: piece lane % 8 of rows lane / 8 + 4 i, and the ninth one of that whose i is lane % 8.
struct RowPieces {
  const char* lines;      // row lane / 8
  long long batch, four;  // `four`: bytes of four rows
  int left;

  // From row `row` of the operand on.
  __device__ __forceinline__ void set(const OperandRows& rows, int row, int lane) {
    lines = rows.start + (row + lane / 8) * rows.stride;
    batch = rows.batch;
    four = 4 * rows.stride;
    left = rows.left - row;
  }
  // Piece `piece` of a row with `bytes` bytes from `row` on. No byte ahead of the row matters, those behind it become zeros.
  __device__ __forceinline__ static const char* aligned(const char* row, int piece) {
    return row - skew_of(row) + piece_bytes() * piece;
  }
  __device__ __forceinline__ static int valid(const char* row, int bytes, int piece) {
    return schedule::max(schedule::min(bytes + skew_of(row) - piece_bytes() * piece, piece_bytes()), 0);
  }
  // From feature `feature` of batch `in` on, of which a row has `bytes` bytes: `count` pieces and the one behind them. (Rows 8
  // apart begin alike.)
  __device__ __forceinline__ void bring(unsigned to, unsigned ninth, int in, int feature, int bytes,
                                        int count, int lane) const {
    const char* const first = lines + (in * batch + 2 * feature);
    if (left <= 0) return;
    if (bytes >= row_pieces() * piece_bytes())
      bring_group<true>(to, ninth, first, left, bytes, count, lane);
    else
      bring_group<false>(to, ninth, first, left, bytes, count, lane);
  }
  // kWhole: all bytes of all pieces are the rows'.
  template <bool kWhole>
  __device__ __forceinline__ void bring_group(unsigned to, unsigned ninth, const char* first, int rows,
                                              int bytes, int count, int lane) const {
    const int piece = lane % 8, line = lane / 8, last = line + 4 * piece;
    if (piece <= count) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const char* const row = first + odd * four;
        const char* from = aligned(row, piece);
        const int has = kWhole ? piece_bytes() : valid(row, bytes, piece);
        const unsigned place = to + line * 128 + ((piece ^ (line + 4 * odd)) << 4);
#pragma unroll
        for (int i = odd; i < 8; i += 2) {
          if (line + 4 * i < rows) ptx::cp_async<piece_bytes()>(place + i * 512, from, has);
          from += 2 * four;
        }
      }
    }
    if (count < kPieces || last >= rows) return;
    const char* const row = first + piece * four;
    ptx::cp_async<piece_bytes()>(ninth + ninth_place(last), aligned(row, 8),
                                 kWhole ? piece_bytes() : valid(row, bytes, 8));
  }
};

// A warp that brings: 32 rows of either operand. (Of few tokens each operand's are those of other schedulers' warps.)
template <Kernel C>
__device__ __forceinline__ void bring_rows(const Params& p, const Ring<Geometry<C>>& ring,
                                           const StreamK& stream_k, int features, int tokens, int warp,
                                           int lane) {
  const int groups[2] = {warp, warp ^ 2};  // of an operand
  RingPosition<C.config.stages> at;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    RowPieces dy, x;
    dy.set(OperandRows::of(p, work, tokens, false), token_of<C>(groups[0]), lane);
    x.set(OperandRows::of(p, work, tokens, true), token_of<C>(groups[1]), lane);
    BlockBoxes<C> from(features, work.origin + work.begin * work.step);
    const BlockBoxes<C> step(features, work.step);
    for (int block = work.begin; block < work.end; ++block) {
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      const int count = is_short<C>(from, features) ? kLastPieces<C> : kPieces;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 128 * i + 32 * groups[i], batch = batch_of<C>(from, groups[i]);
        const bool there = !stacks(C.config) || batch < p.B;  // else zeros
        (i == 0 ? dy : x)
            .bring(rows_at<C>(ring, at.stage, row), ninth_at<C>(ring, at.stage, row), there ? batch : 0,
                   from.feature, there ? 2 * (features - from.feature) : -piece_bytes(), count, lane);
      }
      ptx::cp_async_arrive(landed<C>(ring, at.stage));
      at.advance();
      from.advance(step);
    }
  }
}

// The first kCount pieces of row `lane` of 32 rows, `skew` bytes to the front. As many of them as make a turn are read before they are
// written, and the turn's last piece once.
template <int kCount>
__device__ __forceinline__ void shift_row(unsigned rows, unsigned ninth, int skew, int lane) {
  constexpr int kTurn = kCount < 4 ? kCount : 4;
  const unsigned row = rows + lane * 128, swizzle = lane % 8;
  const auto place = [&](unsigned piece) { return row + ((piece ^ swizzle) << 4); };
  unsigned word[4 * kTurn + 4];
  ptx::load_shared<16>(word + 4 * kTurn, place(0));
#pragma unroll
  for (int first = 0; first < kCount; first += kTurn) {
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = word[4 * kTurn + i];
#pragma unroll
    for (int i = 1; i <= kTurn; ++i)
      ptx::load_shared<16>(word + 4 * i, first + i < kPieces ? place(first + i) : ninth + ninth_place(lane));
    unsigned moved[4 * kTurn + 1];
#pragma unroll
    for (int i = 0; i < 4 * kTurn + 1; ++i) {
      const unsigned low = skew & 8 ? word[i + 2] : word[i], high = skew & 8 ? word[i + 3] : word[i + 1];
      moved[i] = skew & 4 ? high : low;
    }
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      unsigned out[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        out[j] = __byte_perm(moved[4 * i + j], moved[4 * i + j + 1], skew & 2 ? 0x5432 : 0x3210);
      ptx::store_shared<16>(place(first + i), out);
    }
  }
  // As it is, but by a thread that fences: a later tile without this row may read it, to no effect.
  if constexpr (kCount < kPieces) ptx::store_shared<16>(place(kCount), word + 4 * kTurn);
}

// What says how far an operand's rows begin inside pieces: bits of addresses.
struct Skews {
  unsigned start, batch, stride;
  int left;
  __device__ __forceinline__ explicit Skews(const OperandRows& rows)
      : start(static_cast<unsigned>(reinterpret_cast<unsigned long long>(rows.start))),
        batch(static_cast<unsigned>(rows.batch)),
        stride(static_cast<unsigned>(rows.stride)),
        left(rows.left) {}
  __device__ __forceinline__ int of(int row, int in) const {
    return static_cast<int>(
        (start + static_cast<unsigned>(in) * batch + static_cast<unsigned>(row) * stride) % piece_bytes());
  }
};

// A warp that shifts.
template <Kernel C>
__device__ __forceinline__ void shift_rows(const Params& p, const Ring<Geometry<C>>& ring,
                                           const StreamK& stream_k, int features, int tokens, int warp,
                                           int lane) {
  RingPosition<C.config.stages> at;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    const Skews dy(OperandRows::of(p, work, tokens, false)), x(OperandRows::of(p, work, tokens, true));
    BlockBoxes<C> from(features, work.origin + work.begin * work.step);
    const BlockBoxes<C> step(features, work.step);
    for (int block = work.begin; block < work.end; ++block) {
      ptx::mbarrier_wait(landed<C>(ring, at.stage), at.parity);
      const bool few = is_short<C>(from, features);
#pragma unroll 1
      for (int i = warp; i < kStageRows / 32; i += kShifting) {
        const int first = 32 * (i ^ (i / 4 * 2));
        const bool is_x = first >= 128;
        const int group = first % 128 / 32, row = token_of<C>(group), batch = batch_of<C>(from, group);
        if (row >= (is_x ? x.left : dy.left)) continue;
        const unsigned rows = rows_at<C>(ring, at.stage, first), ninth = ninth_at<C>(ring, at.stage, first);
        const int skew = is_x ? x.of(row + lane, batch) : dy.of(row + lane, batch);
        if (few)
          shift_row<kLastPieces<C>>(rows, ninth, skew, lane);
        else
          shift_row<kPieces>(rows, ninth, skew, lane);
      }
      ptx::fence_async_shared();
      ptx::mbarrier_arrive(ring.full(at.stage));
      at.advance();
      from.advance(step);
    }
  }
}

// Rows that the last tile of the tokens does not have become zeros, before the loads begin: none is brought there, but wgmma
// reads them, and their sums are dropped.
template <Kernel C>
__device__ __forceinline__ void clear_absent(const Ring<Geometry<C>>& ring, int tokens, int thread) {
  constexpr unsigned kZeros[4] = {};
  constexpr int kRows = 32 * kBatchGroups<C>;
  if (tokens % kRows == 0 || thread % kRows < tokens % kRows) return;
  for (int stage = 0; stage < C.config.stages; ++stage)
#pragma unroll
    for (int row = thread; row < kStageRows; row += 128) {
#pragma unroll
      for (int piece = 0; piece < 8; ++piece)
        ptx::store_shared<16>(rows_at<C>(ring, stage, row) + ((piece ^ (row & 7)) << 4), kZeros);
      ptx::store_shared<16>(ninth_at<C>(ring, stage, row / 32 * 32) + ninth_place(row % 32), kZeros);
    }
  ptx::fence_async_shared();
}

// Nothing looks at the map of a dW that does not leave by TMA: there is none then.
__device__ __forceinline__ const TensorMap& map_or_nothing(const Params&, const TensorMap& map) {
  return map;
}
__device__ __forceinline__ const TensorMap& map_or_nothing(const Params& p) {
  return reinterpret_cast<const TensorMap&>(p);
}

// The launch that multiplies.
template <Kernel C, class... Maps>
__device__ __forceinline__ void run_rows(const Params& p, const Maps&... map_dw) {
  using G = Geometry<C>;
  static_assert(sizeof...(Maps) == (C.config.vec_c == 8), "dW's map, where TMA stores it");
  const Extents<C> z(p);
  const StreamK stream_k = stream_k_of<C>(p, z, static_cast<int>(gridDim.x));
  const Ring<G> ring = ring_of_block<G>();
  const int warp = static_cast<int>(threadIdx.x / 32) - 4 * G::kConsumers,
            lane = static_cast<int>(threadIdx.x % 32);
  if constexpr (C.shape.bias) write_ones<C, G>();
  if (threadIdx.x < 128) clear_absent<C>(ring, z.tokens, static_cast<int>(threadIdx.x));
  prepare<G>(
      [&] {
        ring.init(32 * kShifting);
        for (int stage = 0; stage < G::kStages; ++stage)
          ptx::mbarrier_init(landed<C>(ring, stage), 32 * kBringing);
        ptx::mbarrier_fence_init();
      },
      map_dw...);
  if constexpr (lets_next_start(C.shape, C.config)) ptx::let_next_launch_start();
  ptx::wait_for_launches_before();
  const unsigned group = threadIdx.x / 128;
  if (group < G::kConsumers) {
    ptx::claim_registers<G::kSumRegisters>();
    multiply_grad_weight<C>(p, ring, stream_k, z.tokens, z.features, z.diag, 0, false, group,
                            map_or_nothing(p, map_dw...));
    return;
  }
  ptx::release_registers<G::kLoadRegisters>();
  const bool brings = warp < kBringing;
  if (brings)
    bring_rows<C>(p, ring, stream_k, z.features, z.tokens, warp, lane);
  else
    shift_rows<C>(p, ring, stream_k, z.features, z.tokens, warp - kBringing, lane);
  // Whose pieces have all been asked for writes zeros to the columns without a tile.
  if (C.shape.zero_outside && brings)
    write_zeros<C>(p, stream_k, z.heads, z.tokens, static_cast<int>(blockIdx.x) * kBringing + warp,
                   static_cast<int>(gridDim.x) * kBringing, lane);
}

}  // namespace trigen::persistent::weight
