// Family newton_schulz_sm90: all steps of Newton-Schulz iterations of a matrix of up to 256 rows by a block or a cluster of them,
// by wgmma, sm_90a only.
//
//   X = x / max(|x|, eps), or x itself where eps is below 0
//   for each step:  R = X X^T,  Z = a I + b R + c R R,  X = Z X
//
// In rounds of several steps as newton_schulz_sm80 makes them: R <- R Z Z and Q <- Q Z take the place of X, and a round ends with
// X <- Q X, whose panels make the next R as they come.
//
// X, R, Z and Q are f16, normalised they are within its range; products are summed in f32, and factors, R and the identity
// are applied there. Every sum has one order: the same bits in every run, and in all blocks of a cluster.
#pragma once

#include "newton_schulz.cuh"
#include "newton_schulz_sm90/tiles.cuh"
#include "operand.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/tma.cuh"

namespace trigen::newton_schulz_sm90 {

using newton_schulz::thread_now;

template <Kernel C>
inline constexpr int kThreads = kThreadsOfBlock;

template <Kernel C>
class Block {
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr bool kBTD = s.layout == Layout::kBTD, kStays = c.stages == 1, kDivides = divides(c);
  static constexpr DType kD = s.dtype;
  static constexpr int kVec = c.vec_b, kBlock = kThreadsOfBlock, kBlocks = blocks(c), kSides = sides(c),
                       kTiles = tiles(c), kTurns = turns(c), kSquareTurns = square_turns(c),
                       kPairs = kSums / 2;
  static constexpr int kOuter = kBTD ? c.tile_m : kSide, kInner = kBTD ? kSide : c.tile_m;  // of a panel
  static constexpr int kEach = kOuter * kInner / kVec / kBlock;
  static_assert(c.tile_m == 128 || c.tile_m == 192 || c.tile_m == 256, "tiles of 64 rows for two warpgroups");
  static_assert(c.tile_n == kSide && c.warps_m == 8 && c.warps_n == 1,
                "two warpgroups, panels of 64 columns");
  static_assert(c.split_k == 1 || c.split_k == kBlocks,
                "all blocks of a cluster have tiles, or each has all");

  using Halves = unsigned[kPairs];

 public:
  __device__ __forceinline__ Block(const Params& p, unsigned char* shared)
      : p_(p),
        z_(sizes_of<C>(p)),
        shared_(ptx::shared_address(shared)),
        sums_(reinterpret_cast<float*>(shared)),
        matrix_(static_cast<int>(blockIdx.x) / kBlocks),
        rank_(static_cast<int>(blockIdx.x) % kBlocks),
        first_panel_(first_panel(c, z_.D, rank_)),
        count_(first_panel(c, z_.D, rank_ + 1) - first_panel_),
        x_(newton_schulz::begin_of<kD>(p.x, matrix_, z_.H)),
        y_(newton_schulz::begin_of<kD>(p.y, matrix_, z_.H)),
        kept_(static_cast<unsigned char*>(p.workspace) + (kStays ? 0 : matrix_ * kept_bytes(c, z_.D))) {}

  __device__ __forceinline__ void run() {
    const float* const steps = static_cast<const float*>(p_.w);
    scale_ = newton_schulz::scale_of(norm(), steps[3 * z_.K]);
    if constexpr (kStays) {
      for (int i = 0; i < count_; ++i) bring(i);
      meet_block();
    }
    const int round = round_steps(c, z_.T, z_.D);
#pragma unroll 1
    for (int first = 0;; first += round) {
      square_pass(first > 0, first <= round);
      const int last = schedule::min(first + round, z_.K) - 1;
#pragma unroll 1
      for (int step = first; step <= last; ++step) make_step(steps + 3 * step, step == first, step == last);
      if (last + 1 == z_.K) break;
    }
    last_pass(z_.K <= round);
  }

 private:
  __device__ __forceinline__ unsigned q() const { return shared_; }
  __device__ __forceinline__ unsigned r() const { return shared_ + r_begin(c); }
  // Panel i of the block's; a panel of Q X: where R lies, which no pass needs, or behind the panels that pass.
  __device__ __forceinline__ unsigned panel(int i) const {
    return shared_ + panels_begin(c) + (kStays ? i : i % 2) * panel_bytes(c);
  }
  __device__ __forceinline__ unsigned product_panel() const {
    return kStays ? r() : shared_ + panels_begin(c) + 2 * panel_bytes(c);
  }
  __device__ __forceinline__ static int group_now() { return __shfl_sync(~0u, thread_now() / 128, 0); }

  // What this block's threads stored is there for all of them, and for wgmma.
  __device__ __forceinline__ static void meet_block() {
    ptx::fence_async_shared();
    __syncthreads();
  }
  // The same of what all blocks pushed.
  __device__ __forceinline__ static void meet_cluster() {
    ptx::cluster_sync();
    ptx::fence_async_shared();
  }

  __device__ __forceinline__ float norm() {
    const int first = first_panel_ * kSide, columns = schedule::min(count_ * kSide, z_.D - first);
    const float sum = newton_schulz::sum_of_squares<kD, kVec, kBlock>(
        x_ + first * (kBTD ? 1 : p_.x.row), p_.x.row, kBTD ? z_.T : columns, kBTD ? columns : z_.T);
    return sqrtf(newton_schulz::sum_of_threads<kBlock, kBlocks>(sum, sums_));
  }

  // Panel i of the block's from x, zeros where that has ended, some vectors of a thread at a time.
  __device__ __forceinline__ void bring(int i) const {
    using Vector = Raw<kD, kVec>;
    constexpr int kAtOnce = divisor(kEach, (c.tile_m == 256 ? 16 : 32) / Vector::kWords);
    const int column = (first_panel_ + i) * kSide;
#pragma unroll 1
    for (int begin = thread_now(); begin < kEach * kBlock; begin += kAtOnce * kBlock) {
      Vector x[kAtOnce];
#pragma unroll
      for (int e = 0; e < kAtOnce; ++e) {
        const int vector = begin + e * kBlock, outer = vector / (kInner / kVec) + (kBTD ? 0 : column),
                  inner = vector % (kInner / kVec) * kVec + (kBTD ? column : 0);
        if (outer < (kBTD ? z_.T : z_.D) && inner < (kBTD ? z_.D : z_.T))
          ptx::load_global_nc<Vector::kSize>(x[e].w, x_ + (outer * p_.x.row + inner));
        else
          x[e].clear();
      }
#pragma unroll
      for (int e = 0; e < kAtOnce; ++e) {
        const int vector = begin + e * kBlock, outer = vector / (kInner / kVec),
                  inner = vector % (kInner / kVec) * kVec;
        float v[kVec];
#pragma unroll
        for (int j = 0; j < kVec; ++j) v[j] = to_float<kD>(x[e].get(j)) * scale_;
        Raw<DType::kF16, kVec> out;
        out.from_floats(v);
        ptx::store_shared<2 * kVec>(at(panel(i) + inner / kSide * kTileBytes, outer, inner % kSide), out.w);
      }
    }
  }
  // Panels of earlier rounds, as they lie in shared memory.
  __device__ __forceinline__ unsigned char* kept(int i) const {
    return kept_ + static_cast<long long>(first_panel_ + i) * panel_bytes(c);
  }
  __device__ __forceinline__ void bring_kept(int i) const {
#pragma unroll 4
    for (int byte = 16 * thread_now(); byte < panel_bytes(c); byte += 16 * kBlock)
      ptx::cp_async<16>(panel(i) + byte, kept(i) + byte, 16);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  }
  // Panel i of Q X to where the next pass looks for it.
  __device__ __forceinline__ void keep(int i) const {
#pragma unroll 4
    for (int byte = 16 * thread_now(); byte < panel_bytes(c); byte += 16 * kBlock) {
      unsigned w[4];
      ptx::load_shared<16>(w, product_panel() + byte);
      if constexpr (kStays)
        ptx::store_shared<16>(panel(i) + byte, w);
      else
        ptx::store_global<16>(kept(i) + byte, w);
    }
  }

  // The next panel, x itself or what an earlier round left.
  __device__ __forceinline__ void bring_next(int i, bool from_x) const {
    if (kStays || i >= count_) return;
    if (from_x)
      bring(i);
    else
      bring_kept(i);
  }
  // Walks over the panels of X: X <- Q X but in the first round, and R = X X^T of what is X then.
  __device__ __forceinline__ void square_pass(bool multiplies, bool from_x) const {
    const int group = group_now();
    float square[kSquareTurns][kSums];
#pragma unroll
    for (int turn = 0; turn < kSquareTurns; ++turn) {
#pragma unroll
      for (int e = 0; e < kSums; ++e) square[turn][e] = 0.0f;
    }
    // The first turn has no panel yet.
#pragma unroll 1
    for (int i = kStays ? 0 : -1; i < count_; ++i) {
      if (i >= 0) {
        if (multiplies) multiply_by_q(i, group);
        add_square(square, multiplies ? product_panel() : panel(i), group);
      }
      bring_next(i + 1, from_x);
      if (multiplies && i >= 0) keep(i);
      ptx::wgmma_wait<0>();
#pragma unroll
      for (int turn = 0; turn < kSquareTurns; ++turn) ptx::pin(square[turn]);
      meet_block();
    }
    if constexpr (kBlocks > 1) {
      add_blocks(square, group);
    } else {
#pragma unroll
      for (int turn = 0; turn < kSquareTurns; ++turn) {
        const int tile = kGroups * turn + group;
        Halves halves;
        round(halves, square[turn]);
        if (tile < kTiles) store_tile(halves, r() + tile * kTileBytes);
      }
      meet_block();
    }
  }
  // Panel i of Q X, in rolled turns: R's sums leave no registers for two tiles.
  __device__ __forceinline__ void multiply_by_q(int i, int group) const {
    float sum[kSums] = {};
#pragma unroll 1
    for (int tile = group; tile < kSides; tile += kGroups) {
      multiply_panel<kSides, kBTD>(sum, q(), panel(i), tile);
      Halves halves;
      round(halves, sum);
      store_tile(halves, product_panel() + tile * kTileBytes);
    }
    meet_block();
  }
  // y = Q X.
  __device__ __forceinline__ void last_pass(bool from_x) const {
    const int group = group_now();
#pragma unroll 1
    for (int i = kStays ? 0 : -1; i < count_; ++i) {
      bring_next(i + 1, from_x);
      if (i >= 0) {
        float sum[kSums] = {};
#pragma unroll 1
        for (int tile = group; tile < kSides; tile += kGroups) {
          multiply_panel<kSides, kBTD>(sum, q(), panel(i), tile);
          store_y(sum, i, tile);
        }
      }
      if constexpr (!kStays) meet_block();
    }
  }
  // The last turn of a group may have no tile of its own: it makes the last one, too, which nobody stores.
  __device__ __forceinline__ static void add_square(float (&square)[kSquareTurns][kSums], unsigned x,
                                                    int group) {
#pragma unroll
    for (int turn = 0; turn < kSquareTurns; ++turn) ptx::pin(square[turn]);
#pragma unroll
    for (int turn = 0; turn < kSquareTurns; ++turn) {
      const int tile = schedule::min(kGroups * turn + group, kTiles - 1), row = row_of(tile),
                column = tile - tiles_above(row);
      add_product<!kBTD, !kBTD>(square[turn], x + row * kTileBytes, x + column * kTileBytes);
    }
    ptx::wgmma_commit();
  }

  __device__ __forceinline__ static void round(Halves& halves, const float (&sum)[kSums]) {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair)
      halves[pair] = ptx::f32x2_to_f16x2(sum[2 * pair], sum[2 * pair + 1]);
  }
  __device__ __forceinline__ static void store_tile(const Halves& halves, unsigned tile) {
    const Pairs pairs(tile, thread_now());
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) ptx::store_shared<4>(pairs[pair], &halves[pair]);
  }
  // Of a tile on the diagonal: what is on and below that, to both of its places. Roundings that differ in the two triangles
  // would grow in later steps (newton_schulz_sm80.cuh).
  __device__ __forceinline__ static void store_symmetric(const Halves& halves, unsigned tile) {
    const int thread = thread_now();
    const Pairs pairs(tile, thread);
    const Mirrored mirrored(tile, thread);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const Place place = in_tile(thread, pair);
      const int m = place.row, n = place.column;
      const unsigned both = halves[pair], other = both >> 16;
      if (m > n) {
        ptx::store_shared<4>(pairs[pair], &both);
        ptx::store_shared<2>(mirrored.at_pair(pair, 0), &both);
      } else if (m == n) {
        ptx::store_shared<2>(pairs[pair], &both);
      }
      if (m > n + 1) ptx::store_shared<2>(mirrored.at_pair(pair, 1), &other);
    }
  }
  // A warp's strip of a tile, f16, to the other blocks.
  __device__ __forceinline__ void push(unsigned strip) const {
    const unsigned lane = thread_now() % 32, rank = rank_;
#pragma unroll
    for (int part = 0; part < kStripHalfBytes / 512; ++part) {
      const unsigned piece = strip + 512 * part + 16 * lane;
      unsigned w[4];
      ptx::load_shared<16>(w, piece);
#pragma unroll
      for (int next = 1; next < kBlocks; ++next)
        ptx::store_cluster(ptx::cluster_address(piece, (rank + next) % kBlocks), w);
    }
  }

  // R of the sums of all blocks. Strip t of R is a warp's 16 rows of tile t / 4. Block t % kBlocks gets what all have of it,
  // fragments as they are, adds it up in the order of the ranks, rounds it and passes it on. All strips of a warp have one
  // owner, as their numbers differ by 8.
  __device__ __forceinline__ void add_blocks(const float (&square)[kSquareTurns][kSums], int group) const {
    constexpr int kStrips = 4 * kTiles, kOwned = owned_strips(c), kWarps = kBlock / 32,
                  kOwnTurns = ceil_div(kOwned, kWarps);
    const unsigned lane = thread_now() % 32, warp = thread_now() / 32, rank = rank_, owner = warp % kBlocks;
    ptx::cluster_sync();  // nobody reads Q, Z, panels that pass and the norm's sums any more
    const unsigned there = ptx::cluster_address(shared_ + rank * (kOwned * kStripBytes) + 16 * lane, owner);
#pragma unroll
    for (int turn = 0; turn < kSquareTurns; ++turn) {
      if (kGroups * turn + group >= kTiles) continue;
      const unsigned strip = there + (turn * kWarps + warp) / kBlocks * kStripBytes;
#pragma unroll
      for (int part = 0; part < kSums / 4; ++part)
        ptx::store_cluster(strip + 512 * part, square[turn][4 * part], square[turn][4 * part + 1],
                           square[turn][4 * part + 2], square[turn][4 * part + 3]);
    }
    ptx::cluster_sync();
    Halves halves[kOwnTurns];
#pragma unroll
    for (int turn = 0; turn < kOwnTurns; ++turn) {
      const unsigned own = turn * kWarps + warp;
      if (own * kBlocks + rank >= kStrips) continue;
      float sum[kSums];
#pragma unroll
      for (int e = 0; e < kSums; ++e) sum[e] = 0.0f;
#pragma unroll 1
      for (int from = 0; from < kBlocks; ++from) {
#pragma unroll
        for (int part = 0; part < kSums / 4; ++part) {
          unsigned w[4];
          ptx::load_shared<16>(w, shared_ + (from * kOwned + own) * kStripBytes + 512 * part + 16 * lane);
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[4 * part + e] += __uint_as_float(w[e]);
        }
      }
      round(halves[turn], sum);
    }
    if constexpr (matrices(c) == 2) ptx::cluster_sync();  // R lies where sums do
#pragma unroll
    for (int turn = 0; turn < kOwnTurns; ++turn) {
      const unsigned strip = (turn * kWarps + warp) * kBlocks + rank;
      if (strip >= kStrips) continue;
      const unsigned begin = r() + strip * kStripHalfBytes;
      const Pairs pairs(begin, lane);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) ptx::store_shared<4>(pairs[pair], &halves[turn][pair]);
      __syncwarp();
      push(begin);
    }
    meet_cluster();
  }

  // Z of the step, then Q <- Q Z, the first of a round Z itself; unless it is the last of the round R <- R Z Z. Z of a round's
  // last step takes the place of R.
  __device__ __forceinline__ void make_step(const float* abc, bool first, bool last) const {
    const float a = abc[0], b = abc[1], cc = abc[2];
    const unsigned z = first ? q() : last ? r() : shared_ + matrix_bytes(c);
    // One place in the code for all products: they are thousands of instructions.
#pragma unroll 1
    for (int of = 0; of < (last ? 2 : 4); ++of) {
      if (of == 1 && first) continue;
      const unsigned left = of == 1 ? q() : r(), to = of == 0 ? z : left;
      product(left, of == 0 ? r() : z, to, [&](float(&sum)[kSums], unsigned own, bool diagonal) {
        if (of > 0) return;
        const int thread = thread_now();
        const Pairs pairs(own, thread);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          const Place place = in_tile(thread, pair);
          unsigned both;
          ptx::load_shared<4>(&both, pairs[pair]);
          const float r0 = ptx::f16_to_f32(static_cast<unsigned short>(both)),
                      r1 = ptx::f16_to_f32(static_cast<unsigned short>(both >> 16));
          const int right = diagonal ? place.row - place.column : -1;  // of the diagonal's element
          sum[2 * pair] = fmaf(cc, sum[2 * pair], fmaf(b, r0, right == 0 ? a : 0.0f));
          sum[2 * pair + 1] = fmaf(cc, sum[2 * pair + 1], fmaf(b, r1, right == 1 ? a : 0.0f));
        }
      });
    }
  }
  // A matrix from the tiles of a product of two; in place of the left one all are read before one is stored. use(sums, the
  // left one's tile there, whether it is on the diagonal).
  template <class Use>
  __device__ __forceinline__ void product(unsigned left, unsigned right, unsigned to, const Use& use) const {
    Halves halves[kTurns];
    float sum[kSums] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int tile = tile_of_turn(turn), i = row_of(tile), j = tile - tiles_above(i);
      if (tile >= kTiles) continue;
      multiply<kSides>(sum, left, right, i, j);
      use(sum, left + tile * kTileBytes, i == j);
      round(halves[turn], sum);
    }
    if (to == left) {
      if constexpr (kDivides)
        ptx::cluster_sync();
      else
        __syncthreads();
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int tile = tile_of_turn(turn), i = row_of(tile);
      if (tile >= kTiles) continue;
      const unsigned begin = to + tile * kTileBytes;
      if (tile - tiles_above(i) == i)
        store_symmetric(halves[turn], begin);
      else
        store_tile(halves[turn], begin);
      if constexpr (kDivides) {
        ptx::named_barrier(1 + group_now(), 128);
        push(begin + thread_now() % 128 / 32 * kStripHalfBytes);
      }
    }
    if constexpr (kDivides)
      meet_cluster();
    else
      meet_block();
  }
  __device__ __forceinline__ int tile_of_turn(int turn) const {
    return kDivides ? (turn * kBlocks + rank_) * kGroups + group_now() : turn * kGroups + group_now();
  }

  // Tile `tile` of panel i of the block's.
  __device__ __forceinline__ void store_y(const float (&sum)[kSums], int i, int tile) const {
    const int thread = thread_now(), column = (first_panel_ + i) * kSide;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const Place place = in_tile(thread, pair);
      const int outer = place.row + (kBTD ? tile * kSide : column),
                inner = place.column + (kBTD ? column : tile * kSide);
      const int inners = kBTD ? z_.D : z_.T;
      if (outer >= (kBTD ? z_.T : z_.D) || inner >= inners) continue;
      Storage<kD>* const to = y_ + outer * p_.y.row + inner;
      if constexpr (c.vec_c == 2) {
        newton_schulz::store<kD, 2>(to, {sum[2 * pair], sum[2 * pair + 1]});
      } else {
        newton_schulz::store<kD, 1>(to, {sum[2 * pair]});
        if (inner + 1 < inners) newton_schulz::store<kD, 1>(to + 1, {sum[2 * pair + 1]});
      }
    }
  }

  const Params& p_;
  const Sizes z_;
  const unsigned shared_;
  float* const sums_;
  const int matrix_, rank_, first_panel_, count_;  // the block's panels
  const Storage<kD>* const x_;
  Storage<kD>* const y_;
  unsigned char* const kept_;
  float scale_ = 0.0f;
};

// Grid {blocks of a cluster of every matrix}.
template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  static_assert(C.shape.op == Op::kNewtonSchulz, "this family makes newton_schulz only");
  extern __shared__ __align__(1024) unsigned char newton_schulz_shared[];
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
  Block<C>(p, newton_schulz_shared).run();
}

}  // namespace trigen::newton_schulz_sm90
