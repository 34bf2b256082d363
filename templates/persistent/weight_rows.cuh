// grad_weight of rows that begin at any element, which TMA cannot take: threads bring dy and x. A warp has the same 32
// rows of every stage. It asks for the aligned pieces of 16 bytes that have them, where TMA would put the rows' own: piece i
// of a row lies where element 8 i has to be, the ninth beside the panels. Once they have landed each lane shifts one
// row in place. So a stage is loaded, shifted and multiplied without a move from place to place, and no warp waits
// for another one's loads.
#pragma once

#include "persistent/grad_weight.cuh"
#include "ptx/cp_async.cuh"

namespace trigen::persistent::weight {

// 32 rows of an operand, as a lane brings them: pieces `piece` of rows lane / 8 + 4 i, and the ninth one of row `lane`, which
// is the row that it shifts.
struct RowGroup {
  const char* lines;      // row lane / 8
  const char* own;        // row `lane`
  long long batch, four;  // bytes from batch to batch, of four rows
  int left;               // rows that there are, 0 or less: none is brought

  RowGroup() = default;
  __device__ __forceinline__ RowGroup(const Activations& t, int head, int row, int tokens, int lane)
      : batch(2 * t.batch), four(8 * t.row), left(tokens - row) {
    own = static_cast<const char*>(t.data) + 2 * (head * t.head + (row + lane) * t.row);
    lines = own + 2 * (lane / 8 - lane) * t.row;
  }
  __device__ __forceinline__ static unsigned skew(const char* at) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(at)) % piece_bytes();
  }
  // Of a row with `bytes` bytes from `at` on, those that piece `piece` has, its first ones but for what lies ahead of the row.
  __device__ __forceinline__ static int valid(const char* at, int bytes, int piece) {
    return schedule::max(
        schedule::min(bytes + static_cast<int>(skew(at)) - piece_bytes() * piece, piece_bytes()), 0);
  }
  __device__ __forceinline__ static const char* aligned(const char* at, int piece) {
    return at - skew(at) + piece_bytes() * piece;
  }

  // From batch `in` and feature `feature` on, of which a row has `bytes` bytes; the first `pieces` pieces. Returns the bytes
  // by which row `lane` begins inside a piece. (Rows 8 apart begin alike.)
  __device__ __forceinline__ unsigned bring(unsigned to, unsigned ninth, int in, int feature, int bytes,
                                            int pieces, int lane) const {
    const long long ahead = in * batch + 2 * feature;
    const int piece = lane % 8, line = lane / 8;
    const char* from[2];
    int has[2];
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const char* const at = lines + ahead + odd * four;
      from[odd] = aligned(at, piece);
      has[odd] = valid(at, bytes, piece);
    }
    if (piece < pieces) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int odd = i % 2, row = line + 4 * i;
        ptx::cp_async<piece_bytes()>(to + row * 128 + ((piece ^ (line + 4 * odd)) << 4), from[odd],
                                   row < left ? has[odd] : 0);
        from[odd] += 2 * four;
      }
    }
    const char* const at = own + ahead;
    if (pieces > 8)
      ptx::cp_async<piece_bytes()>(ninth + lane * piece_bytes(), aligned(at, 8),
                                 lane < left ? valid(at, bytes, 8) : 0);
    return skew(at);
  }
};

// Row `lane` of 32 rows, `skew` bytes to the front. Half of the row is read before it is written, and its last piece once.
__device__ __forceinline__ void shift_row(unsigned rows, unsigned ninth, unsigned skew, bool half,
                                          int lane) {
  const unsigned row = rows + lane * 128, swizzle = lane % 8;
  const auto place = [&](unsigned piece) { return row + ((piece ^ swizzle) << 4); };
  unsigned word[20];
  ptx::load_shared<16>(word + 16, place(0));
#pragma unroll
  for (int first = 0; first < 8; first += 4) {
    if (first > 0 && half) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = word[16 + i];
#pragma unroll
    for (int i = 1; i <= 4; ++i)
      ptx::load_shared<16>(word + 4 * i, first + i < 8 ? place(first + i) : ninth + lane * piece_bytes());
    unsigned moved[17];
#pragma unroll
    for (int i = 0; i < 17; ++i) {
      const unsigned low = skew & 8 ? word[i + 2] : word[i], high = skew & 8 ? word[i + 3] : word[i + 1];
      moved[i] = skew & 4 ? high : low;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned out[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        out[j] = __byte_perm(moved[4 * i + j], moved[4 * i + j + 1], skew & 2 ? 0x5432 : 0x3210);
      ptx::store_shared<16>(place(first + i), out);
    }
  }
}

// Rows of a stage, warps that load, and groups of 32 rows that one of them has.
template <Kernel C>
inline constexpr int kStageRows = 128 + C.config.tile_n;
template <Kernel C>
inline constexpr int kRowWarps = 4 * loaders(C.config);
template <Kernel C>
inline constexpr int kRowGroups = kStageRows<C> / 32 / kRowWarps<C>;
// The first row of a warp's group `i` in a stage. Each operand's first rows, which are all that there are of few tokens, are those of
// other schedulers' warps.
template <Kernel C>
__device__ __forceinline__ int first_row(int warp, int i) {
  const int group = warp + kRowWarps<C> * i;
  return 32 * (group ^ (group / 4 % 2 * 2));
}

// Groups without a row in the last tile of the tokens become zeros, before the loads begin: none is brought there, but
// wgmma reads them, and their sums are dropped.
template <Kernel C>
__device__ __forceinline__ void clear_absent(unsigned ring, int tokens, int warp, int lane) {
  constexpr unsigned kZeros[4] = {};
#pragma unroll
  for (int i = 0; i < kRowGroups<C>; ++i) {
    const int row = first_row<C>(warp, i);
    if (tokens % 128 == 0 || row % 128 < tokens % 128) continue;
    for (int stage = 0; stage < C.config.stages; ++stage)
#pragma unroll
      for (int j = 0; j < 8; ++j)
        ptx::store_shared<16>(ring + stage * stage_bytes(C.config) + row * 128 + (32 * j + lane) * 16,
                              kZeros);
  }
  __syncwarp();
}

// A warp of the loading warpgroups, number `warp` of them.
template <Kernel C>
__device__ __forceinline__ void load_rows(const Params& p, const Ring<Geometry<C>>& ring,
                                          const StreamK& stream_k, int features, int tokens, int warp,
                                          int lane) {
  using G = Geometry<C>;
  constexpr int kGroups = kRowGroups<C>, kAhead = G::kStages - 1;  // kAhead: stages under way
  constexpr unsigned kHalf = 1u << 31, kNone = 1;  // of a group: no number of bytes is odd
  constexpr bool kHalves = 2 * kLastSteps<C> <= block_steps();  // a batch's last block needs half of its pieces
  const auto rows_of = [&](int stage, int i) { return ring.a(stage) + first_row<C>(warp, i) * 128; };
  const auto ninth_of = [&](int stage, int i) {
    return ring.a(stage) + kStageRows<C> * 128 + first_row<C>(warp, i) * piece_bytes();
  };
  RingPosition<G::kStages> to, at;
  unsigned begun[kAhead] = {};  // of the stages under way, oldest first: bytes by which rows begin inside pieces
  int under_way = 0;
  const auto finish = [&](unsigned how) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
      if ((how >> 4 * i & kNone) == 0)
        shift_row(rows_of(at.stage, i), ninth_of(at.stage, i), how >> 4 * i & 15, how & kHalf, lane);
    ptx::fence_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(ring.full(at.stage));
    at.advance();
  };
  const auto advance = [&](unsigned how) {
#pragma unroll
    for (int i = 0; i + 1 < kAhead; ++i) begun[i] = begun[i + 1];
    begun[kAhead - 1] = how;
  };
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    const auto group_of = [&](int i) {
      const int row = first_row<C>(warp, i);
      return row < 128 ? RowGroup(p.y, work.copy, 128 * work.row + row, tokens, lane)
                       : RowGroup(p.x, work.copy, 128 * work.column + row - 128, tokens, lane);
    };
    RowGroup group[kGroups];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      group[i] = group_of(i);
      if (work.narrow && first_row<C>(warp, i) >= 256) group[i].left = 0;
    }
    BlockBoxes<C> from(features, work.origin + work.begin * work.step);
    const BlockBoxes<C> step(features, work.step);
    for (int block = work.begin; block < work.end; ++block) {
      if (under_way == kAhead) {
        ptx::cp_async_wait<kAhead - 1>();
        finish(begun[0]);
      } else {
        ++under_way;
      }
      ptx::mbarrier_wait(ring.empty(to.stage), to.parity ^ 1);
      const bool half = kHalves && from.feature + kPanel > features;
      unsigned how = half ? kHalf : 0;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        unsigned skew = kNone;  // what is no row is left as it is: its sums are dropped, but for those along diagonals
        if (schedule::sums_diagonals(C.shape) || group[i].left > 0)
          skew = group[i].bring(rows_of(to.stage, i), ninth_of(to.stage, i), from.batch, from.feature,
                                2 * (features - from.feature), half ? row_pieces() / 2 + 1 : row_pieces(), lane);
        how |= skew << 4 * i;
      }
      ptx::cp_async_commit();
      advance(how);
      to.advance();
      from.advance(step);
    }
  }
  ptx::cp_async_wait<0>();
#pragma unroll 1
  for (int i = kAhead; i > 0; --i) {
    if (i <= under_way) finish(begun[0]);
    advance(0);
  }
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
  if constexpr (C.shape.bias) write_ones<C, G>();
  const Ring<G> ring = ring_of_block<G>();
  prepare<G>([&] { ring.init(kRowWarps<C>); }, map_dw...);
  if constexpr (lets_next_start(C.shape, C.config)) ptx::let_next_launch_start();
  const unsigned group = threadIdx.x / 128;
  const int warp = static_cast<int>(threadIdx.x / 32) - 4 * G::kConsumers,
            lane = static_cast<int>(threadIdx.x % 32);
  if (warp >= 0) clear_absent<C>(ring.base, z.tokens, warp, lane);
  ptx::wait_for_launches_before();
  if (group < G::kConsumers) {
    ptx::claim_registers<G::kSumRegisters>();
    multiply_grad_weight<C>(p, ring, stream_k, z.tokens, z.features, z.diag, 0, false, group,
                            map_or_nothing(p, map_dw...));
    return;
  }
  ptx::release_registers<G::kLoadRegisters>();
  load_rows<C>(p, ring, stream_k, z.features, z.tokens, warp, lane);
  if (C.shape.zero_outside && !schedule::sums_diagonals(C.shape))
    write_zeros<C>(p, stream_k, z.heads, z.tokens, static_cast<int>(blockIdx.x) * kRowWarps<C> + warp,
                   static_cast<int>(gridDim.x) * kRowWarps<C>, lane);
}

}  // namespace trigen::persistent::weight
