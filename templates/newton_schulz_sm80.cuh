// Family newton_schulz_sm80: all steps of Newton-Schulz iterations of a matrix by one block, by mma.sync, sm_80 and later; on
// sm_90 and later by a cluster, too, whose blocks add up what their columns have of R and the norm.
//
//   X = x / max(|x|, eps), or x itself where eps is below 0
//   for each step:  R = X X^T,  Z = a I + b R + c R R,  X = Z X
//
// In rounds of several steps (round_steps) X waits: R <- R Z Z and Q <- Q Z take its place, and the round ends with X <- Q X,
// whose panels make the next R as they come. Z and R are polynomials of one symmetric matrix: they commute.
//
// X, R, Z and Q are f16, normalised they are within its range; products are summed in f32, and factors, R and the identity
// are applied there. Every sum has one order: the same bits in every run.
#pragma once

#include "newton_schulz.cuh"
#include "newton_schulz_sm80/image.cuh"
#include "operand.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"

namespace trigen::newton_schulz_sm80 {

template <Kernel C>
inline constexpr int kThreads = threads(C.config);

template <Kernel C>
class Block {
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr bool kBTD = s.layout == Layout::kBTD, kStays = c.stages == 1;
  static constexpr DType kD = s.dtype;
  static constexpr int kVec = c.vec_b, kSide = c.tile_m, kPanel = c.tile_n, kBlock = threads(c),
                       kBlocks = blocks(c);
  static constexpr int kRows = kBTD ? kSide : kPanel, kColumns = kBTD ? kPanel : kSide;  // of a panel's image
  static constexpr int kPanelBytes = panel_bytes(s.layout, c);
  static constexpr int kRowVectors = kColumns / kVec, kVectors = kRows * kRowVectors,
                       kEach = ceil_div(kVectors, kBlock);
  static constexpr int kM = kSide / c.warps_m / 16, kN = kSide / c.warps_n / 8,
                       kPanelN = kPanel / c.warps_n / 8;
  static_assert(kM * 16 * c.warps_m == kSide && kN % 2 == 0 && kN * 8 * c.warps_n == kSide,
                "tile_m: 16 rows and columns for each warp");
  static_assert(kPanelN % 2 == 0 && kPanelN * 8 * c.warps_n == kPanel, "tile_n: 16 columns for each warp");

  using Square = Image<kSide>;
  using Panel = Image<kColumns>;
  using Sides = Sums<kM, kN>;

 public:
  __device__ __forceinline__ Block(const Params& p, unsigned char* shared)
      : p_(p),
        z_(sizes_of<C>(p)),
        shared_(ptx::shared_address(shared)),
        sums_(reinterpret_cast<float*>(shared)),
        warp_(static_cast<int>(threadIdx.x) / 32),
        row_(warp_ / c.warps_n * kM * 16),
        column_(warp_ % c.warps_n * kN * 8),
        panel_column_(warp_ % c.warps_n * kPanelN * 8),
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
    if constexpr (kStays) bring_all();
    pass<false, true, true>();
    const int round = round_steps(z_.T, z_.D);
    bool from_x = true;
#pragma unroll 1
    for (int first = 0; first < z_.K; first += round) {
      const int last = schedule::min(first + round, z_.K) - 1;
#pragma unroll 1
      for (int step = first; step <= last; ++step) make_step(steps + 3 * step, step == first, step == last);
      if (last + 1 == z_.K) break;
      if (from_x)
        pass<true, true, true>();
      else
        pass<true, true, false>();
      from_x = kStays;
    }
    if (from_x)
      pass<true, false, true>();
    else
      pass<true, false, false>();
  }

 private:
  __device__ __forceinline__ Square q() const { return {shared_}; }
  __device__ __forceinline__ Square z() const { return {shared_ + matrix_bytes(c)}; }
  __device__ __forceinline__ Square r() const { return {shared_ + r_begin(c)}; }
  // Panel i of the block's; panel i of Q X, where that does not take its place.
  __device__ __forceinline__ Panel panel(int i) const {
    return {shared_ + panels_begin(c) + (kStays ? i : i % 2) * kPanelBytes};
  }
  __device__ __forceinline__ Panel product_panel(int i) const {
    return kStays ? panel(i) : Panel{shared_ + panels_begin(c) + (2 + i % 2) * kPanelBytes};
  }
  template <bool kA>
  __device__ __forceinline__ auto rows_of(const Square& image) const {
    return Operand<kSide, kA, false>(image, kA ? row_ : column_);
  }

  // Of the whole matrix, the same for all threads. Q, which lies where sums do, is made behind the barriers of a pass.
  __device__ __forceinline__ float norm() {
    const int first = first_panel_ * kPanel, columns = schedule::min(count_ * kPanel, z_.D - first);
    const float sum = newton_schulz::sum_of_squares<kD, kVec, kBlock>(
        x_ + first * (kBTD ? 1 : p_.x.row), p_.x.row, kBTD ? z_.T : columns, kBTD ? columns : z_.T);
    return sqrtf(newton_schulz::sum_of_threads<kBlock, kBlocks>(sum, sums_));
  }

  // A thread's vectors of panel i of the block's, zeros where that has ended.
  using Vectors = Raw<kD, kVec>[kEach];
  __device__ __forceinline__ void fetch(Vectors& x, int i) const {
    const int thread = thread_now();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = thread + e * kBlock;
      const int column = (first_panel_ + i) * kPanel, outer = at / kRowVectors + (kBTD ? 0 : column),
                inner = at % kRowVectors * kVec + (kBTD ? column : 0);
      if (at < kVectors && outer < (kBTD ? z_.T : z_.D) && inner < (kBTD ? z_.D : z_.T))
        ptx::load_global_nc<Raw<kD, kVec>::kSize>(x[e].w, x_ + (outer * p_.x.row + inner));
      else
        x[e].clear();
    }
  }
  __device__ __forceinline__ void put(const Vectors& x, int i) const {
    const int thread = thread_now();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = thread + e * kBlock;
      if (at >= kVectors) continue;
      float v[kVec];
#pragma unroll
      for (int j = 0; j < kVec; ++j) v[j] = to_float<kD>(x[e].get(j)) * scale_;
      Raw<DType::kF16, kVec> out;
      out.from_floats(v);
      ptx::store_shared<2 * kVec>(panel(i).at(at / kRowVectors, at % kRowVectors * kVec), out.w);
    }
  }
  __device__ __forceinline__ void bring_all() const {
    for (int i = 0; i < count_; ++i) {
      Vectors x;
      fetch(x, i);
      put(x, i);
    }
  }
  // Panels of earlier rounds, in pieces of 16 bytes, those of a row one behind the other.
  static constexpr int kPieces = kSide * kPanel / 8, kRowPieces = kColumns / 8;
  __device__ __forceinline__ unsigned char* kept(int i, int piece) const {
    return kept_ + (static_cast<long long>(first_panel_ + i) * kPieces + piece) * 16;
  }
  __device__ __forceinline__ static unsigned piece_of(const Panel& panel, int piece) {
    return panel.at(piece / kRowPieces, piece % kRowPieces * 8);
  }
  __device__ __forceinline__ void fetch_kept(int i) const {
    for (int piece = thread_now(); piece < kPieces; piece += kBlock)
      ptx::cp_async<16>(piece_of(panel(i), piece), kept(i, piece), 16);
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ void keep(int i) const {
    for (int piece = thread_now(); piece < kPieces; piece += kBlock) {
      unsigned w[4];
      ptx::load_shared<16>(w, piece_of(product_panel(i), piece));
      ptx::store_global<16>(kept(i, piece), w);
    }
  }

  // Walks over the panels of X, x itself or what an earlier round left: kMultiply: X <- Q X, kSquare: R = X X^T of what is X
  // then, else y = X.
  template <bool kMultiply, bool kSquare, bool kFromX>
  __device__ __forceinline__ void pass() const {
    Sides square;
    if constexpr (kSquare) square.clear();
    Vectors next;
    const auto begin_panel = [&](int i) {
      if constexpr (kStays) return;
      if constexpr (kFromX)
        fetch(next, i);
      else
        fetch_kept(i);
    };
    const auto end_panel = [&](int i) {
      if constexpr (kStays) return;
      if constexpr (kFromX)
        put(next, i);
      else
        ptx::cp_async_wait<0>();
    };
    begin_panel(0);
    end_panel(0);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < count_; ++i) {
      const bool more = i + 1 < count_;
      if (more) begin_panel(i + 1);
      if constexpr (kMultiply) {
        Sums<kM, kPanelN> product;
        product.clear();
        product.template add_product<kSide>(rows_of<true>(q()),
                                            Operand<kColumns, false, kBTD>(panel(i), panel_column_));
        if constexpr (kSquare) {
          if constexpr (kStays) __syncthreads();  // all have read the panel
          product.template store<kColumns, !kBTD>(product_panel(i), row_, panel_column_);
        } else {
          store_y(product, i);
        }
      } else {
        add_square(square, panel(i));
      }
      if (more) end_panel(i + 1);
      if constexpr (!kStays || (kMultiply && kSquare)) __syncthreads();
      if constexpr (kMultiply && kSquare) {
        add_square(square, product_panel(i));
        if constexpr (!kStays) keep(i);
      }
    }
    if constexpr (kSquare) {
      if constexpr (kBlocks > 1) {
        add_blocks(square);
      } else {
        if constexpr (!kStays && kMultiply) __syncthreads();  // R lies where products did
        square.template store<kSide, false>(r(), row_, column_);
        __syncthreads();
      }
    }
  }
  __device__ __forceinline__ void add_square(Sides& sums, const Panel& x) const {
    sums.template add_product<kPanel>(Operand<kColumns, true, !kBTD>(x, row_),
                                      Operand<kColumns, false, !kBTD>(x, column_));
  }

  // R of the sums of all blocks. Tile t of R is number t / kWarps of warp t % kWarps. Block t % kBlocks gets what all have of
  // it, fragments as they are, adds it up in the order of the ranks, rounds it and passes it on. Warps begin with different
  // ranks, so that all blocks are sent to at a time. A warp has kTurns of them, one address each.
  __device__ __forceinline__ void add_blocks(const Sides& sums) const {
    constexpr int kWarps = kBlock / 32, kAcross = kN / 2, kTurns = ceil_div(kBlocks, kWarps),
                  kSent = owned_tiles(c) * kTileBytes, kHalf = kTileBytes / 2,
                  kNext = ceil_div(kWarps, kBlocks) * kTileBytes;  // to the owner's next tile of the warp
    const unsigned lane = thread_now() % 32, warp = thread_now() / 32, rank = rank_,
                   sent = shared_ + 16 * lane, own = sent + rank * kSent + warp / kBlocks * kTileBytes;
    ptx::cluster_sync();  // nobody reads Q, Z, panels that pass and the norm's sums any more
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const unsigned owner = (turn * kWarps + warp) % kBlocks, there = ptx::cluster_address(own, owner);
#pragma unroll
      for (int i = turn; i < kM * kAcross; i += kTurns)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = i / kTurns * kNext + half * kHalf;
          unsigned w[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) w[e] = __float_as_uint(sums.v[i / kAcross][i % kAcross * 2 + half][e]);
          if (owner == rank)
            ptx::store_shared<16>(own + at, w);
          else
            ptx::store_cluster(there + at, w);
        }
    }
    ptx::cluster_sync();
#pragma unroll 1
    for (unsigned tile = warp * kBlocks + rank; tile < tiles(c); tile += kWarps * kBlocks) {
      Sums<1, 2> sum;
      sum.clear();
#pragma unroll
      for (int from = 0; from < kBlocks; ++from)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          unsigned w[4];
          ptx::load_shared<16>(w, sent + from * kSent + tile / kBlocks * kTileBytes + half * kHalf);
#pragma unroll
          for (int e = 0; e < 4; ++e) sum.v[0][half][e] += __uint_as_float(w[e]);
        }
      const unsigned of = tile % kWarps, i = tile / kWarps, row = (of / c.warps_n * kM + i / kAcross) * 16,
                     column = (of % c.warps_n * kAcross + i % kAcross) * 16;
      sum.template store<kSide, false>(r(), row, column);
      __syncwarp();
      // A piece of 16 bytes each: two lanes have 32 bytes of a row, and eight have different banks.
      const unsigned piece =
          r().at(row + lane / 16 * 8 + lane % 8 / 2 * 2 + lane / 8 % 2, column + lane % 2 * 8);
      unsigned w[4];
      ptx::load_shared<16>(w, piece);
      // tile % kBlocks is `rank`, whose seven sums the compiler would hold in registers from round to round.
#pragma unroll
      for (int next = 1; next < kBlocks; ++next)
        ptx::store_cluster(ptx::cluster_address(piece, (tile + next) % kBlocks), w);
    }
    ptx::cluster_sync();
  }

  // Z of the step, then Q <- Q Z, the first of a round Z itself; unless it is the last of the round R <- R Z Z.
  __device__ __forceinline__ void make_step(const float* abc, bool first, bool last) const {
    const float a = abc[0], b = abc[1], cc = abc[2];
    Sides sums;
    sums.clear();
    sums.template add_product<kSide>(rows_of<true>(r()), rows_of<false>(r()));
    sums.each(row_, column_, [&](int m, int n, float v0, float v1) {
      unsigned both;
      ptx::load_shared<4>(&both, r().at(m, n));
      const float r0 = ptx::f16_to_f32(static_cast<unsigned short>(both)),
                  r1 = ptx::f16_to_f32(static_cast<unsigned short>(both >> 16));
      both = ptx::f32x2_to_f16x2(fmaf(cc, v0, fmaf(b, r0, m == n ? a : 0.0f)),
                                 fmaf(cc, v1, fmaf(b, r1, m == n + 1 ? a : 0.0f)));
      ptx::store_shared<4>(z().at(m, n), &both);
      if (first) ptx::store_shared<4>(q().at(m, n), &both);
    });
    __syncthreads();
    // Q and R times Z, polynomials of one symmetric matrix, too. Roundings that differ in the two triangles would grow in later
    // steps, to ten times the error (random 128 x 384 with the coefficients POLAR_EXPRESS: 0.03, and 0.003).
    if (!first) {
      multiply_by_z(sums, q());
      __syncthreads();  // all have read it
      sums.store_symmetric(q(), row_, column_);
    }
    if (last) return;  // a pass begins with a barrier
    multiply_by_z(sums, r());
    __syncthreads();
    sums.store_symmetric(r(), row_, column_);
    __syncthreads();
    multiply_by_z(sums, r());
    __syncthreads();
    sums.store_symmetric(r(), row_, column_);
    __syncthreads();
  }
  __device__ __forceinline__ void multiply_by_z(Sides& sums, const Square& image) const {
    sums.clear();
    sums.template add_product<kSide>(rows_of<true>(image), rows_of<false>(z()));
  }

  template <class Product>
  __device__ __forceinline__ void store_y(const Product& product, int i) const {
    product.each(row_, (first_panel_ + i) * kPanel + panel_column_, [&](int t, int d, float v0, float v1) {
      if (t >= z_.T || d >= z_.D) return;
      Storage<kD>* const to = y_ + (kBTD ? t * p_.y.row + d : d * p_.y.row + t);
      if constexpr (kBTD && c.vec_c == 2) {
        newton_schulz::store<kD, 2>(to, {v0, v1});
      } else {
        newton_schulz::store<kD, 1>(to, {v0});
        if (d + 1 < z_.D) newton_schulz::store<kD, 1>(to + (kBTD ? 1 : p_.y.row), {v1});
      }
    });
  }

  const Params& p_;
  const Sizes z_;
  const unsigned shared_;
  float* const sums_;
  const int warp_, row_, column_, panel_column_;
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
  extern __shared__ __align__(128) unsigned char newton_schulz_shared[];
#if __CUDA_ARCH__ >= 900
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
#endif
  Block<C>(p, newton_schulz_shared).run();
}

}  // namespace trigen::newton_schulz_sm80
