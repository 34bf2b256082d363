// The body that every family of this folder shares: find the tile, run the pipelined main loop, write the
// tile. A family brings its Engine: shared-memory layouts, fragments, the matrix instruction.
//
// Engine<C> has
//   kSharedDType              element of the tiles in shared memory
//   kAsyncA, kAsyncB          copy with cp.async?
//   kSteps                    fragment steps in one tile of depth tile_k, an even number
//   LayoutA, LayoutB          places of elements (loader.cuh)
//   Fragment, Accumulator     register sets; Accumulator::clear()
//   Engine(thread)
//   load(fragment, a, b, step)           shared -> registers
//   multiply(accumulator, fragment)
//   sum_rows(accumulator, fragment)      grad_weight: adds A's rows to the accumulator's row sums
//   stage(accumulator, slice, to)        one slice of accumulators -> shared memory (epilogue.cuh)
//   stage_row_sums(accumulator, to)
//   kDirect                              does the output allow what follows?
//   each_vector(accumulator, f)          vectors of 8 straight from the registers
#pragma once

#include "epilogue.cuh"
#include "loader.cuh"
#include "schedule.h"

namespace trigen {

template <Kernel C>
inline constexpr int kTileThreads = 32 * C.config.warps_m* C.config.warps_n;

__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char trigen_shared[];
  return trigen_shared;
}

template <Kernel C, class Engine>
__device__ __forceinline__ void gemm(const Params& p) {
  constexpr Config c = C.config;
  constexpr int kThreads = kTileThreads<C>;
  constexpr int kStages = c.stages;
  constexpr int kBytesA = c.tile_m * c.tile_k * kBytes<Engine::kSharedDType>;
  constexpr bool kAsync = Engine::kAsyncA || Engine::kAsyncB;
  constexpr bool kRowSums = makes_weights(C.shape.op) && C.shape.bias;
  static_assert(kStages >= 2,
                "the loop loads one tile while it multiplies another: stages must be 2 or more");
  static_assert(Engine::kSteps % 2 == 0,
                "fragments alternate between two register sets: tile_k needs an even number of steps");

  const Sizes z = sizes_of<C>(p);
  const int thread = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const schedule::Tile tile =
      schedule::tile_at(C.shape, c, z, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.z));
  if (!tile.valid) return;
  const auto& own = at_head<C>(p, head);
  const int m = tile.row * c.tile_m, n = tile.column * c.tile_n;
  // Whole tiles of depth; the first may begin before the range, where the operands are zero.
  const int k_begin = tile.depth.begin / c.tile_k * c.tile_k;
  const int tiles =
      tile.depth.begin < tile.depth.end ? schedule::ceil_div(tile.depth.end - k_begin, c.tile_k) : 0;

  unsigned char* const memory = shared_memory();
  const unsigned shared = ptx::shared_address(memory);
  constexpr int kStageBytes = (Engine::LayoutA::kBytes + Engine::LayoutB::kBytes);
  using OpA = OperandA<C>;
  using OpB = OperandB<C>;
  Loader<OpA, Engine::kSharedDType, C.shape.dtype, c.tile_m, c.tile_k, kThreads, typename Engine::LayoutA,
         Engine::kAsyncA>
      load_a(own, z, head, tile.depth, m, thread);
  Loader<OpB, Engine::kSharedDType, C.shape.dtype, c.tile_n, c.tile_k, kThreads, typename Engine::LayoutB,
         Engine::kAsyncB>
      load_b(own, z, head, tile.depth, n, thread);
  const Engine engine(thread);
  typename Engine::Accumulator acc;
  acc.clear();

  const auto stage_a = [&](int stage) { return shared + stage * kStageBytes; };
  const auto stage_b = [&](int stage) { return shared + stage * kStageBytes + Engine::LayoutA::kBytes; };

  if (tiles > 0) {
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) {
      if (i < tiles) {
        const int k = k_begin + i * c.tile_k;
        load_a.load(k, stage_a(i));
        load_b.load(k, stage_b(i));
        load_a.store(k, stage_a(i));
        load_b.store(k, stage_b(i));
      }
      if constexpr (kAsync) ptx::cp_async_commit();
    }
    if constexpr (Engine::kAsyncA && Engine::kAsyncB) prefetch_operands<C>(own, z, head, m, n, thread);
    if constexpr (kAsync) ptx::cp_async_wait<kStages - 2>();
    __syncthreads();

    typename Engine::Fragment fragment[2];
    engine.load(fragment[0], stage_a(0), stage_b(0), 0);
    int read = 0, write = kStages - 1;  // stages
    int k_next = k_begin + (kStages - 1) * c.tile_k;
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      const bool more = i + kStages - 1 < tiles;
#pragma unroll
      for (int step = 0; step < Engine::kSteps; ++step) {
        if (step == Engine::kSteps - 1) {
          // The stage being written is the one that was read before the last barrier.
          if (more) {
            load_a.store(k_next, stage_a(write));
            load_b.store(k_next, stage_b(write));
          }
          if constexpr (kAsync) ptx::cp_async_wait<kStages - 2>();
          __syncthreads();
          read = read + 1 == kStages ? 0 : read + 1;
          write = write + 1 == kStages ? 0 : write + 1;
          k_next += c.tile_k;
        }
        if (step < Engine::kSteps - 1 || i + 1 < tiles)
          engine.load(fragment[(step + 1) % 2], stage_a(read), stage_b(read), (step + 1) % Engine::kSteps);
        if (step == 0) {
          if (more) {
            load_a.load(k_next, stage_a(write));
            load_b.load(k_next, stage_b(write));
          }
          if constexpr (kAsync) ptx::cp_async_commit();
        }
        engine.multiply(acc, fragment[step % 2]);
        if constexpr (kRowSums) {
          if (tile.first) engine.sum_rows(acc, fragment[step % 2]);
        }
      }
    }
    if constexpr (kAsync) ptx::cp_async_wait<0>();
  }
  store_tile<C, Engine>(own, z, engine, acc, tile, head, reinterpret_cast<float*>(memory), thread);
}

}  // namespace trigen
