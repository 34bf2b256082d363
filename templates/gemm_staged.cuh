// The body of gemm.cuh for architectures without cp.async: tiles pass through registers, and their loads and
// stores lie between the products of the whole loop instead of at its ends.
//
// While tile i is multiplied from one stage, tile i + 1 goes from registers to the other stage and tile i + 2
// from memory to the same registers, a vector at a time: one barrier a turn, and a turn for a load to come.
// Tiles wholly inside the triangle and the matrix take a loop of their own that tests nothing; in the other
// one warps skip the products of a tile that lies beyond their own rows' triangle.
//
// An Engine as in gemm.cuh, without kAsyncA and kAsyncB and with
//   kSkips                    may warps skip?
//   first_row(), kWarpRows    the warp's rows of the tile
#pragma once

#include "gemm.cuh"
#include "rounded_epilogue.cuh"
#include "staged_loader.cuh"

namespace trigen {

// The k where every row of [first, last] takes part; not rounded to tiles.
template <Kernel C>
__device__ __forceinline__ Range common_depth(const Sizes& z, int first, int last) {
  const Range a = schedule::product_row(C.shape.op, C.shape.fill, z, first),
              b = schedule::product_row(C.shape.op, C.shape.fill, z, last);
  return {max(a.begin, b.begin) * z.K, min(a.end, b.end) * z.K};
}
// The k where any of them does.
template <Kernel C>
__device__ __forceinline__ Range united_depth(const Sizes& z, int first, int last) {
  const Range a = schedule::product_row(C.shape.op, C.shape.fill, z, first),
              b = schedule::product_row(C.shape.op, C.shape.fill, z, last);
  return {min(a.begin, b.begin) * z.K, max(a.end, b.end) * z.K};
}

// The k of which all elements of the tile's operands take part.
template <Kernel C>
__device__ __forceinline__ Range full_depth(const Sizes& z, const schedule::Tile& tile) {
  constexpr Config c = C.config;
  const int m = tile.row * c.tile_m, n = tile.column * c.tile_n;
  if (m + c.tile_m > z.T || n + c.tile_n > schedule::product_columns(C.shape.op, z)) return {0, 0};
  if constexpr (makes_weights(C.shape.op))
    return tile.depth;
  else
    return common_depth<C>(z, m, m + c.tile_m - 1);
}

// The main loop of one tile: pointers and registers of all its turns.
template <Kernel C, class Engine>
class StagedLoop {
  static constexpr Config c = C.config;
  static constexpr int kSteps = Engine::kSteps;
  static constexpr int kThreads = kTileThreads<C>;
  // The first tiles are loaded without tests where they are whole: where NVRTC 12.9 makes no worse main loop of it
  // (mma_sm75's takes 2663 cycles for 2346, mma_sm70's of f32 weights 3035 for 2569).
  static constexpr bool kStartsWhole = RoundedTile<C, Engine>::kServed && C.shape.wdtype == C.shape.dtype;
  static constexpr bool kRowSums = makes_weights(C.shape.op) && C.shape.bias;
  static_assert(c.stages == 2, "one tile is multiplied while the next one is stored: stages is 2");
  static_assert(kSteps % 2 == 0,
                "fragments alternate between two register sets: tile_k needs an even number of steps");
  using LayoutA = typename Engine::LayoutA;
  using LayoutB = typename Engine::LayoutB;
  using LoaderA = StagedLoader<OperandA<C>, Engine::kSharedDType, c.tile_m, c.tile_k, kThreads, LayoutA>;
  using LoaderB = StagedLoader<OperandB<C>, Engine::kSharedDType, c.tile_n, c.tile_k, kThreads, LayoutB>;
  static constexpr int kPassesA = LoaderA::kPasses, kPasses = kPassesA + LoaderB::kPasses;
  static constexpr int kStageBytes = LayoutA::kBytes + LayoutB::kBytes;

 public:
  __device__ __forceinline__ StagedLoop(const Params& p, const Sizes& z, const schedule::Tile& tile, int head,
                                        int thread, const Engine& engine, unsigned shared)
      : engine_(engine),
        load_a_(p, z, head, tile.depth, tile.row * c.tile_m, thread),
        load_b_(p, z, head, tile.depth, tile.column * c.tile_n, thread),
        read_(shared),
        write_(shared + kStageBytes),
        sums_rows_(kRowSums && tile.first),
        whole_(full_depth<C>(z, tile)) {
    if constexpr (Engine::kSkips) {
      const int first = tile.row * c.tile_m + engine.first_row();
      own_ = united_depth<C>(z, min(first, z.T - 1), min(first + Engine::kWarpRows, z.T) - 1);
    }
  }

  __device__ __forceinline__ void run(typename Engine::Accumulator& acc, int k, int k_end) {
    const bool whole = kStartsWhole && k >= whole_.begin && k + 2 * c.tile_k <= whole_.end;
    load_tile(k, whole);
    const Origins first = origins(k);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) store<false>(pass, read_, first);
    load_tile(k + c.tile_k, whole);
    __syncthreads();
    engine_.load(fragment_[0], read_, read_ + LayoutA::kBytes, 0);
    while (k < k_end) {
#pragma unroll 1
      for (; tests_nothing(k); k += c.tile_k) turn<true>(acc, k);
#pragma unroll 1
      for (; k < k_end && !tests_nothing(k); k += c.tile_k) turn<false>(acc, k);
    }
  }

 private:
  struct Origins {
    typename LoaderA::Origin a;
    typename LoaderB::Origin b;
  };
  __device__ __forceinline__ Origins origins(int k) const { return {load_a_.origin(k), load_b_.origin(k)}; }

  template <bool kFull>
  __device__ __forceinline__ void load(int pass, const Origins& o) {
    if (pass < kPassesA)
      load_a_.template load<kFull>(pass, o.a);
    else
      load_b_.template load<kFull>(pass - kPassesA, o.b);
  }
  template <bool kFull>
  __device__ __forceinline__ void store(int pass, unsigned stage, const Origins& o) {
    if (pass < kPassesA)
      load_a_.template store<kFull>(pass, stage, o.a);
    else
      load_b_.template store<kFull>(pass - kPassesA, stage + LayoutA::kBytes, o.b);
  }
  __device__ __forceinline__ void load_tile(int k, bool whole) {
    const Origins o = origins(k);
    if (whole) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) load<true>(pass, o);
    } else {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) load<false>(pass, o);
    }
  }

  // Are both tiles that the turn of tile k moves whole?
  __device__ __forceinline__ bool tests_nothing(int k) const {
    return k + c.tile_k >= whole_.begin && k + 3 * c.tile_k <= whole_.end;
  }

  __device__ __forceinline__ void multiply(typename Engine::Accumulator& acc, int step) {
    engine_.multiply(acc, fragment_[step % 2]);
    if constexpr (kRowSums) {
      if (sums_rows_) engine_.sum_rows(acc, fragment_[step % 2]);
    }
  }

  // The steps ahead of the barrier, and what they move: `next` goes to the stage being written, the load into
  // a vector's registers a step after its store.
  template <bool kFull, bool kMultiplies>
  __device__ __forceinline__ void steps(typename Engine::Accumulator& acc, const Origins& next,
                                        const Origins& after) {
#pragma unroll
    for (int step = 0; step < kSteps - 1; ++step) {
      if constexpr (kMultiplies)
        engine_.load(fragment_[(step + 1) % 2], read_, read_ + LayoutA::kBytes, step + 1);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (step_of(pass) + 1 == step) load<kFull>(pass, after);
        if (step_of(pass) == step) store<kFull>(pass, write_, next);
      }
      if constexpr (kMultiplies) multiply(acc, step);
    }
  }
  // Stores early: where they came up to the barrier, NVRTC 12.9 gathered them and the last steps' reads in front
  // of it, and put the products behind (docs/experiments/mma_sm70.md).
  static __device__ __forceinline__ constexpr int step_of(int pass) {
    return pass * (kSteps * 3 / 8) / kPasses;
  }

  // Multiplies the tile at k, stores the next one and loads the one after it. Past the last tile loads bring
  // zeros, which are not multiplied.
  template <bool kFull>
  __device__ __forceinline__ void turn(typename Engine::Accumulator& acc, int k) {
    const Origins next = origins(k + c.tile_k), after = origins(k + 2 * c.tile_k);
    const bool multiplies = kFull || !Engine::kSkips || (k < own_.end && k + c.tile_k > own_.begin);
    if (multiplies)
      steps<kFull, true>(acc, next, after);
    else
      steps<kFull, false>(acc, next, after);
    __syncthreads();
    const unsigned last = read_;
    read_ = write_;
    write_ = last;
    engine_.load(fragment_[0], read_, read_ + LayoutA::kBytes, 0);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      if (step_of(pass) + 1 == kSteps - 1) load<kFull>(pass, after);
    if (multiplies) multiply(acc, kSteps - 1);
  }

  const Engine& engine_;
  LoaderA load_a_;
  LoaderB load_b_;
  unsigned read_, write_;  // stages
  bool sums_rows_;
  Range whole_, own_;  // the k of tiles that need no test; that any row of this warp has
  typename Engine::Fragment fragment_[2];
};

template <Kernel C, class Engine>
__device__ __forceinline__ void gemm_staged(const Params& p) {
  constexpr Config c = C.config;
  const Sizes z = sizes_of<C>(p);
  const int thread = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const schedule::Tile tile =
      schedule::tile_at(C.shape, c, z, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.z));
  if (!tile.valid) return;
  const auto& own = at_head<C>(p, head);

  unsigned char* const memory = shared_memory();
  const Engine engine(thread);
  typename Engine::Accumulator acc;
  acc.clear();
  if (tile.depth.begin < tile.depth.end) {
    StagedLoop<C, Engine> loop(own, z, tile, head, thread, engine, ptx::shared_address(memory));
    // Whole tiles of depth; the first may begin before the range, where the operands are zero.
    loop.run(acc, tile.depth.begin / c.tile_k * c.tile_k, tile.depth.end);
  }
  if constexpr (RoundedTile<C, Engine>::kServed)
    RoundedTile<C, Engine>(own, z, tile, head, thread, engine, ptx::shared_address(memory))
        .store(engine, acc);
  else
    store_tile<C, Engine>(own, z, engine, acc, tile, head, reinterpret_cast<float*>(memory), thread);
}

}  // namespace trigen
