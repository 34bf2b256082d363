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

#include "newton_schulz_sm90/panels.cuh"
#include "newton_schulz_sm90/square.cuh"
#include "ptx/cluster.cuh"

namespace trigen::newton_schulz_sm90 {

template <Kernel C>
inline constexpr int kThreads = threads(C.config);

template <Kernel C>
class Block {
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr bool kBTD = s.layout == Layout::kBTD;
  static constexpr DType kD = s.dtype;
  static constexpr int kBlock = threads(c), kGroups = groups(c), kBlocks = blocks(c), kSides = sides(c),
                       kTiles = tiles(c), kTurns = turns(c), kPanelTurns = panel_turns(c),
                       kSquareTiles = square_tiles(c), kPieces = pieces(kSides), kPairs = kSums / 2;
  static_assert(c.tile_m == 128 || c.tile_m == 192 || c.tile_m == 256, "tiles of 64 rows");
  static_assert(c.tile_n == kSide && c.warps_m == (c.tile_m == 192 ? 12 : 8) && c.warps_n == 1,
                "warpgroups that share the pieces of X X^T, panels of 64 columns");

  using Halves = unsigned[kPairs];
  using Sums = Square<kSides, kBTD>;

 public:
  __device__ __forceinline__ Block(const Params& p, unsigned char* shared)
      : p_(p),
        z_(sizes_of<C>(p)),
        shared_(ptx::shared_address(shared) + kControlBytes),
        sums_(reinterpret_cast<float*>(shared + kSumsBegin)),
        matrix_(static_cast<int>(blockIdx.x) / kBlocks),
        rank_(static_cast<int>(blockIdx.x) % kBlocks),
        panels_(p, z_, ptx::shared_address(shared), shared_, matrix_, rank_) {}

  __device__ __forceinline__ void run() {
    const float* const steps = static_cast<const float*>(p_.w);
    panels_.begin();
    panels_.stage(0);
    const float factor = begin_x(steps[3 * z_.K]);
    const int round = round_steps(c, z_.T, z_.D);
#pragma unroll 1
    for (int first = 0;; first += round) {
      if (first > 0) square_pass(first == round ? factor : 1.0f);
      const int last = schedule::min(first + round, z_.K) - 1;
#pragma unroll 1
      for (int step = first; step <= last; ++step)
        make_step(steps + 3 * step, step == first, step == last, step == 0 ? factor : 1.0f);
      if (last + 1 == z_.K) break;
    }
    last_pass(z_.K <= round ? factor : 1.0f);
  }

 private:
  __device__ __forceinline__ unsigned q() const { return shared_; }
  __device__ __forceinline__ unsigned r() const { return shared_ + r_begin(c); }
  __device__ __forceinline__ static int group_now() { return __shfl_sync(~0u, thread_now() / 128, 0); }

  // What this block's threads stored is there for all of them, and for wgmma.
  __device__ __forceinline__ static void meet_block() {
    ptx::fence_async_shared();
    __syncthreads();
  }
  // All threads, each warpgroup at a place of its own in the code: there __syncthreads is not defined, and of a named barrier for
  // all synccheck reports that threads diverge. Each waits at one of its own, where the others arrive; meetings without another
  // barrier between them alternate kTurn, as one that has met may come to the next before another has left this one.
  template <int kGroup, int kTurn = 0>
  __device__ __forceinline__ static void meet_groups() {
    constexpr int kFirst = 1 + kTurn * kGroups;
#pragma unroll
    for (int other = 0; other < kGroups; ++other)
      if (other != kGroup) ptx::named_barrier_arrive(kFirst + other, kBlock);
    ptx::named_barrier(kFirst + kGroup, kBlock);
  }
  // The same of what all blocks pushed.
  __device__ __forceinline__ static void meet_cluster() {
    ptx::cluster_sync();
    ptx::fence_async_shared();
  }

  // R of X but for a factor, which is returned: reading all of x for the norm alone would take as long as this. By what the
  // blocks' first panels have X gets a norm of about 4, so that more of f16 is normal; the diagonal of R says what it is. Where
  // that is far off, zero or no number, x is read for its norm and comes once more.
  __device__ __forceinline__ float begin_x(float eps) const {
    float scale = 1.0f;
    if (eps >= 0.0f) {
      const float sampled = schedule::min(kBlocks * kSide, z_.D),
                  sum = sum_of_cluster(panels_.sum_of_staged());
      scale = 4.0f * rsqrtf(sum * (z_.D / sampled));
    }
#pragma unroll 1
    for (bool sure = eps < 0.0f;; sure = true) {
      first_pass(scale);
      if (sure) return 1.0f;
      const float square = diagonal_of_r();
      if (square >= 1.0f && square <= 256.0f) return 1.0f / fmaxf(sqrtf(square), scale * eps);
      panels_.wait_stored();
      __syncthreads();  // all have read the sums of before
      scale = newton_schulz::scale_of(sqrtf(sum_of_cluster(panels_.sum_of_squares())), eps);
      panels_.stage(0);
    }
  }
  __device__ __forceinline__ float sum_of_cluster(float sum) const {
    return newton_schulz::sum_of_threads<kBlock, kBlocks>(sum, sums_);
  }
  __device__ __forceinline__ float diagonal_of_r() const {
    float element = 0.0f;
    if (const int row = thread_now(); row < c.tile_m) {
      unsigned v;
      ptx::load_shared<2>(&v, at(tile_of(r(), row / kSide, row / kSide), row % kSide, row % kSide));
      element = ptx::f16_to_f32(static_cast<unsigned short>(v));
    }
    return newton_schulz::sum_of_threads<kBlock, 1>(element, sums_);
  }
  // R = X X^T of x: a panel is multiplied while the next one comes.
  __device__ __forceinline__ void first_pass(float scale) const {
    const int group = group_now();
    Sums square;
    square.clear();
#pragma unroll 1
    for (int i = 0; i < panels_.count(); ++i) {
      panels_.take(i, scale);
      panels_.template wait_kept<1>();
      meet_block();
      panels_.keep(i);
      square.template add<0, kPieces>(panels_[i], group);
      ptx::wgmma_wait<1>();  // so the place of the panel before is free behind the next barrier
    }
    square.finish();
    make_r(square, group);
  }
  // X <- `factor` Q X panel by panel, each in its own place, and R = X X^T of what is X then. A panel is squared while the sums
  // of the next one's Q X become f16.
  __device__ __forceinline__ void square_pass(float factor) {
    const int group = group_now(), count = panels_.count();
    Sums square;
    square.clear();
    panels_.begin_pass();
    if (group == 0) {
      square_panels<0>(square, factor);
    } else if (kGroups == 2 || group == 1) {
      square_panels<1>(square, factor);
    } else if constexpr (kGroups == 3) {
      square_panels<2>(square, factor);
    }
    panels_.end_pass();
    make_r(square, group);
  }
  template <int kGroup>
  __device__ __forceinline__ void square_panels(Sums& square, float factor) const {
    const int count = panels_.count();
#pragma unroll 1
    for (int i = 0; i < count; ++i) multiply_and_square<kGroup>(square, i, factor);
    square.template add<0, kPieces>(panels_[count - 1], kGroup);
    square.finish();
  }
  // Panel i <- Q X, and the one before squared.
  template <int kGroup>
  __device__ __forceinline__ void multiply_and_square(Sums& square, int i, float factor) const {
    Halves halves[kPanelTurns];
    panels_.wait(i);
    multiply_turn<kGroup, 0>(halves[0], square, i, factor);
    if constexpr (kPanelTurns == 2) {
      multiply_turn<kGroup, 1>(halves[1], square, i, factor);
    }
    meet_groups<kGroup>();  // all have multiplied this panel, and squared the one two before
    panels_.load_next(i);
#pragma unroll
    for (int turn = 0; turn < kPanelTurns; ++turn)
      store_tile(halves[turn], panels_[i] + (turn * kGroups + kGroup) * kTileBytes);
    ptx::fence_async_shared();
    meet_groups<kGroup, 1>();
    panels_.keep(i);
  }
  template <int kGroup, int kTurn>
  __device__ __forceinline__ void multiply_turn(Halves& halves, Sums& square, int i, float factor) const {
    float sum[kSums];
    multiply_panel<kSides, kBTD, kTurn * kGroups + kGroup>(sum, q(), panels_[i]);
    square.template add<kTurn == 0 ? 0 : 1, kTurn + 1 == kPanelTurns ? kPieces : 1>(panels_[i - 1], kGroup,
                                                                                    i > 0);
    ptx::wgmma_wait<1>();
    ptx::pin(sum);
    scale(sum, factor);
    round(halves, sum);
    ptx::pin(halves);
  }
  // y = `factor` Q X.
  __device__ __forceinline__ void last_pass(float factor) const {
    const int group = group_now();
    panels_.begin_pass();
    if (group == 0) {
      multiply_last<0>(factor);
    } else if (kGroups == 2 || group == 1) {
      multiply_last<1>(factor);
    } else if constexpr (kGroups == 3) {
      multiply_last<2>(factor);
    }
  }
  template <int kGroup>
  __device__ __forceinline__ void multiply_last(float factor) const {
    Storage<kD>* const y = newton_schulz::begin_of<kD>(p_.y, matrix_, z_.H);
#pragma unroll 1
    for (int i = 0; i < panels_.count(); ++i) {
      panels_.load_released(i);
      panels_.wait(i);
      float sum[kPanelTurns][kSums];
      multiply_panel<kSides, kBTD, kGroup>(sum[0], q(), panels_[i]);
      if constexpr (kPanelTurns == 2) {
        multiply_panel<kSides, kBTD, kGroups + kGroup>(sum[1], q(), panels_[i]);
      }
#pragma unroll
      for (int turn = 0; turn < kPanelTurns; ++turn) {
        if (turn + 1 < kPanelTurns) {
          ptx::wgmma_wait<1>();
        } else {
          ptx::wgmma_wait<0>();
          panels_.release(i);
        }
        ptx::pin(sum[turn]);
        scale(sum[turn], factor);
        store_y(y, sum[turn], i, turn * kGroups + kGroup);
      }
    }
  }

  __device__ __forceinline__ void make_r(Sums& square, int group) const {
    panels_.template wait_kept<0>();
    if constexpr (kBlocks > 1) {
      add_blocks(square, group);
    } else {
      __syncthreads();  // R may lie where panels did
#pragma unroll
      for (int i = 0; i < kSquareTiles; ++i) {
        const int tile = Sums::tile(group, i);
        if (tile < 0) continue;
        Halves halves;
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
          halves[pair] = ptx::f32x2_to_f16x2(square.sum(i, 2 * pair), square.sum(i, 2 * pair + 1));
        store_tile(halves, r() + tile * kTileBytes);
      }
      meet_block();
    }
  }

  __device__ __forceinline__ static void scale(float (&sum)[kSums], float factor) {
#pragma unroll
    for (float& of : sum) of *= factor;
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
  // fragments as they are, adds it up in the order of the ranks, rounds it and passes it on.
  __device__ __forceinline__ void add_blocks(const Sums& square, int group) const {
    constexpr int kStrips = 4 * kTiles, kOwned = owned_strips(c), kWarps = kBlock / 32,
                  kOwnTurns = ceil_div(kOwned, kWarps);
    const unsigned lane = thread_now() % 32, warp = thread_now() / 32, rank = rank_;
    ptx::cluster_sync();  // nobody reads Q, Z and panels that pass any more
#pragma unroll
    for (int i = 0; i < kSquareTiles; ++i) {
      const int tile = Sums::tile(group, i);
      if (tile < 0) continue;
      const unsigned thread = thread_now(), of = 4 * tile + thread / 32 % 4;
      const unsigned to = ptx::cluster_address(
          shared_ + (rank_ * kOwned + of / kBlocks) * kStripBytes + 16 * (thread % 32), of % kBlocks);
#pragma unroll
      for (int part = 0; part < kSums / 4; ++part) {
        const int e = 4 * part;
        ptx::store_cluster(to + 512 * part, square.sum(i, e), square.sum(i, e + 1), square.sum(i, e + 2),
                           square.sum(i, e + 3));
      }
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

  // What becomes of the sums of a product: a I + b times the left matrix + c times them.
  struct With {
    float a, b, c;
  };
  // Z of the step, then Q <- Q Z, the first of a round Z itself; unless it is the last of the round R <- R Z Z. Z of a round's
  // last step takes the place of R. R comes without the square of `factor`.
  __device__ __forceinline__ void make_step(const float* abc, bool first, bool last, float factor) const {
    const unsigned z = first ? q() : last ? r() : shared_ + matrix_bytes(c);
    const int group = group_now();
    // One place in the code for all products: they are thousands of instructions.
#pragma unroll 1
    for (int of = 0; of < (last ? 2 : 4); ++of) {
      if (of == 1 && first) continue;
      const unsigned left = of == 1 ? q() : r(), right = of == 0 ? r() : z, to = of == 0 ? z : left;
      With with = {0.0f, 0.0f, of == 2 ? factor * factor : 1.0f};
      if (of == 0) with = {abc[0], abc[1] * factor * factor, abc[2] * (factor * factor) * (factor * factor)};
      if (group == 0) {
        product<0>(left, right, to, with);
      } else if (kGroups == 2 || group == 1) {
        product<1>(left, right, to, with);
      } else if constexpr (kGroups == 3) {
        product<2>(left, right, to, with);
      }
      meet_block();
    }
  }
  // A matrix from the tiles of a product of two; in place of the left one all are read before one is stored.
  template <int kGroup>
  __device__ __forceinline__ void product(unsigned left, unsigned right, unsigned to,
                                          const With& with) const {
    Halves halves[kTurns];
    float sum[2][kSums];  // of two tiles: one is multiplied while the other one's sums become f16
    begin_turn<kGroup, 0>(sum[0], left, right);
    finish_turn<kGroup, 0>(halves, sum, left, right, with);
    if (to == left) meet_groups<kGroup>();
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int tile = product_tile(kSides, kGroup, turn), i = row_of(tile);
      if (tile < 0) continue;
      if (tile - tiles_above(i) == i)
        store_symmetric(halves[turn], to + tile * kTileBytes, thread_now());
      else
        store_tile(halves[turn], to + tile * kTileBytes);
    }
  }
  template <int kGroup, int kTurn>
  __device__ __forceinline__ static void begin_turn(float (&sum)[kSums], unsigned left, unsigned right) {
    constexpr int kTile = product_tile(kSides, kGroup, kTurn), kRow = row_of(kTile);
    if constexpr (kTile >= 0) {
      multiply<kSides, kRow, kTile - tiles_above(kRow)>(sum, left, right);
    }
  }
  template <int kGroup, int kTurn>
  __device__ __forceinline__ static void finish_turn(Halves (&halves)[kTurns], float (&sum)[2][kSums],
                                                     unsigned left, unsigned right, const With& with) {
    constexpr int kTile = product_tile(kSides, kGroup, kTurn), kRow = row_of(kTile);
    constexpr bool kIsLast = kTurn + 1 == kTurns || product_tile(kSides, kGroup, kTurn + 1) < 0;
    if constexpr (!kIsLast) {
      begin_turn<kGroup, kTurn + 1>(sum[(kTurn + 1) % 2], left, right);
      ptx::wgmma_wait<1>();
    } else {
      ptx::wgmma_wait<0>();
    }
    float(&own)[kSums] = sum[kTurn % 2];
    ptx::pin(own);
    if (with.a != 0.0f || with.b != 0.0f || with.c != 1.0f)
      add_polynomial(own, left + kTile * kTileBytes, kTile - tiles_above(kRow) == kRow, with);
    round(halves[kTurn], own);
    ptx::pin(halves[kTurn]);
    if constexpr (!kIsLast) {
      finish_turn<kGroup, kTurn + 1>(halves, sum, left, right, with);
    }
  }
  __device__ __forceinline__ static void add_polynomial(float (&sum)[kSums], unsigned r, bool diagonal,
                                                        const With& with) {
    const int thread = thread_now();
    const Pairs pairs(r, thread);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const Place place = in_tile(thread, pair);
      unsigned both;
      ptx::load_shared<4>(&both, pairs[pair]);
      const float r0 = ptx::f16_to_f32(static_cast<unsigned short>(both)),
                  r1 = ptx::f16_to_f32(static_cast<unsigned short>(both >> 16));
      const int right = diagonal ? place.row - place.column : -1;  // of the diagonal's element
      sum[2 * pair] = fmaf(with.c, sum[2 * pair], fmaf(with.b, r0, right == 0 ? with.a : 0.0f));
      sum[2 * pair + 1] = fmaf(with.c, sum[2 * pair + 1], fmaf(with.b, r1, right == 1 ? with.a : 0.0f));
    }
  }

  // Tile `tile` of panel i of the block's.
  __device__ __forceinline__ void store_y(Storage<kD>* y, const float (&sum)[kSums], int i, int tile) const {
    const int thread = thread_now(), column = (panels_.first() + i) * kSide;
    const int outer_begin = kBTD ? tile * kSide : column, inner_begin = kBTD ? column : tile * kSide,
              outers = kBTD ? z_.T : z_.D, inners = kBTD ? z_.D : z_.T;
    if constexpr (c.vec_c == 4) {
      // Of two squares of 8 x 8 side by side an even thread takes four elements of a row of the first, an odd one of the second.
      const bool odd = thread % 2 == 1;
#pragma unroll
      for (int pair = 0; pair < kPairs; pair += pair % 2 == 0 ? 1 : 3) {
        const int e = 2 * pair, f = 2 * (pair + 2);
        const float other0 = __shfl_xor_sync(~0u, odd ? sum[e] : sum[f], 1),
                    other1 = __shfl_xor_sync(~0u, odd ? sum[e + 1] : sum[f + 1], 1);
        const int outer = outer_begin + in_tile(thread, pair).row,
                  inner = inner_begin + pair / 2 * 8 + (odd ? 8 : 0) + thread % 4 / 2 * 4;
        if (outer >= outers || inner >= inners) continue;
        Storage<kD>* const to = y + outer * p_.y.row + inner;
        newton_schulz::store<kD, 4>(to, {odd ? other0 : sum[e], odd ? other1 : sum[e + 1],
                                         odd ? sum[f] : other0, odd ? sum[f + 1] : other1});
      }
    } else {
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const Place place = in_tile(thread, pair);
        const int outer = outer_begin + place.row, inner = inner_begin + place.column;
        if (outer >= outers || inner >= inners) continue;
        Storage<kD>* const to = y + outer * p_.y.row + inner;
        if constexpr (c.vec_c == 2) {
          newton_schulz::store<kD, 2>(to, {sum[2 * pair], sum[2 * pair + 1]});
        } else {
          newton_schulz::store<kD, 1>(to, {sum[2 * pair]});
          if (inner + 1 < inners) newton_schulz::store<kD, 1>(to + 1, {sum[2 * pair + 1]});
        }
      }
    }
  }

  const Params& p_;
  const Sizes z_;
  const unsigned shared_;
  float* const sums_;
  const int matrix_, rank_;
  Panels<C> panels_;
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
