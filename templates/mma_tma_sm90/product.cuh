// forward and grad_input: one row tile of W (or of its transpose) times column panels of x (or dy), as
// wgmma_sm90 makes them, by mma.sync. One warp loads. Each other warp multiplies its own rows and columns, stops
// at its own rows' diagonal block and stores its sums while the others still multiply: warps meet at the ring's
// barriers alone. The loading warp is a warpgroup of its own, whose registers the others take by setmaxnreg: sums
// and two sets of fragments are 192 of a thread's. Without it, and the warps that multiply asking for the boxes
// in turn, the loop takes a fifth longer (docs/experiments/mma_tma_sm90.md).
#pragma once

#include "mma_tma_sm90/fragments.cuh"
#include "persistent/panels.cuh"
#include "persistent/roles.cuh"
#include "ptx/tma_block.cuh"
#include "strips.h"

namespace trigen::mma_tma_sm90 {

using persistent::KRange;
using persistent::Panels;
using persistent::product_fill;
using persistent::Ring;
using persistent::RingPosition;
using persistent::TileScheduler;

template <Config c>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = consumers(c),
                                                    .load_registers = load_registers(c),
                                                    .sum_registers = sum_registers(c),
                                                    .register_threads = threads(c)};

template <Kernel C>
struct Geometry : persistent::Geometry<C.config, kWarpgroups<C.config>> {
  static constexpr Config c = C.config;
  static constexpr int kPanels = panels(c), kBoxesA = boxes_a(C.shape, c);  // of B and of A in a stage
  static constexpr int kBytesA = c.tile_m / kPanel * kPanelBytes, kStageBytes = stage_bytes(c);
  static constexpr int kSharedBytes = shared_bytes(c), kBarrierBytes = mma_tma_sm90::kBarrierBytes;

  static_assert(C.shape.layout == Layout::kBTD, "features contiguous");
  static_assert(C.shape.dtype != DType::kF32, "16-bit data");
  static_assert(C.shape.K <= 1 && C.shape.pad == 0, "one tap: TMA cannot shift by single elements");
  static_assert(c.tile_m % kPanel == 0 && c.tile_n % kPanel == 0 && c.tile_k == kPanel, "whole panels");
  static_assert(multiplying_warps(c) == 4 || multiplying_warps(c) == 8, "whole warpgroups");
  static_assert(c.cluster == 1, "blocks share no loads");
  static_assert(c.stages <= kMostStages, "the barriers fit");
};

// k blocks of the longest rows of row tile `row`.
template <Kernel C>
__device__ __forceinline__ int longest(int row, int diag, int blocks) {
  return wgmma_sm90::longest_k_range<C>(row * C.config.tile_m, diag, blocks).blocks;
}
template <Kernel C>
__device__ __forceinline__ int first_k(int block, int blocks) {
  return kPanel * (product_fill(C.shape) == Fill::kLower ? block : blocks - 1 - block);
}

// The first k block of row tile `row`.
template <Kernel C>
__device__ __forceinline__ int first_block(int row, int width, int blocks) {
  return persistent::blocks_before_band(product_fill(C.shape), row * C.config.tile_m, C.config.tile_m, width,
                                        blocks);
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_product(const Ring<Geometry<C>>& ring, TileScheduler scheduler,
                                             const Panels& panels, const persistent::Extents<C>& z,
                                             int blocks, const TensorMap& map_w, const TensorMap& map_in) {
  using G = Geometry<C>;
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  strips::Place<C.shape.w> place{0};
  if constexpr (C.shape.w != WeightForm::kDense) place = {strips::reach(C.shape.w, z.tokens, z.width)};
  RingPosition<G::kStages> at;
  for (int row, column; scheduler.next(row, column);) {
    int head, batch[G::kPanels], feature[G::kPanels];
    const int panel = panels.first<1, G::kPanels>(column, head, 0), first = row * C.config.tile_m;
#pragma unroll
    for (int i = 0; i < G::kPanels; ++i) panels.locate(panel + i, batch[i], feature[i]);
    const int k_blocks = longest<C>(row, z.diag, blocks);
#pragma unroll 1
    for (int block = first_block<C>(row, z.width, blocks); block < k_blocks; ++block) {
      const int k = first_k<C>(block, blocks);
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      const unsigned full = ring.full(at.stage);
      ptx::mbarrier_arrive_expect(full, G::kStageBytes);
#pragma unroll
      for (int i = 0; i < G::kBoxesA; ++i) {
        const int m = first + C.config.tile_m / G::kBoxesA * i, s = kTransposed ? m : k,
                  t = kTransposed ? k : m;
        ptx::tma_load_block(ring.a(at.stage) + i * (G::kBytesA / G::kBoxesA), map_w, full, place.column(s, t),
                            place.row(t), 0, head);
      }
#pragma unroll
      for (int i = 0; i < G::kPanels; ++i)
        ptx::tma_load_block(ring.b(at.stage) + i * kPanelBytes, map_in, full, feature[i], k, head, batch[i]);
      at.advance();
    }
  }
}

// A multiplying warp's walk over the blocks of k of one tile: the fragments of a step are read while the step
// before is multiplied, across blocks, too.
template <Kernel C>
class Multiply {
  using G = Geometry<C>;
  using Own = Warp<C>;

 public:
  __device__ __forceinline__ Multiply(const Ring<G>& ring, const Own& warp) : ring_(ring), warp_(warp) {}

  // `first`: the tile's first k block. `diagonal`: the warp's first row + diag. `total`: k blocks of the tile's longest
  // rows; `blocks`: of all rows.
  __device__ __forceinline__ void tile(typename Own::Accumulator& sums, int first, const KRange& range,
                                       int diagonal, int total, int blocks) {
    sums.clear();
    if (range.blocks > first) {
      begin();
#pragma unroll 1
      for (int block = first; block < range.unmasked_blocks; ++block)
        turn<false>(sums, 0, block + 1 < range.blocks);
#pragma unroll 1
      for (int block = schedule::max(first, range.unmasked_blocks); block < range.blocks; ++block)
        turn<true>(sums, diagonal - first_k<C>(block, blocks), block + 1 < range.blocks);
    }
    // The blocks of other rows. Each stage is waited for: barriers tell two phases apart and no more, and a row
    // tile of 256 has three such blocks.
    for (int block = schedule::max(first, range.blocks); block < total; ++block) {
      wait();
      if constexpr (C.config.tile_m > kPanel) __syncwarp();  // as persistent::stay_together
      ring_.release(at_.stage, static_cast<unsigned>(warp_.lane));
      at_.advance();
    }
  }

 private:
  __device__ __forceinline__ void wait() { ptx::mbarrier_wait(ring_.full(at_.stage), at_.parity); }
  // The first fragments of the next stage.
  __device__ __forceinline__ void begin() {
    wait();
    load(0, at_.stage, 0);
  }
  __device__ __forceinline__ void load(int to, int stage, int step) {
    warp_.load(fragment_[to], ring_.a(stage), ring_.b(stage), step);
  }
  template <bool kMasked>
  __device__ __forceinline__ void turn(typename Own::Accumulator& sums, int distance, bool more) {
    const int stage = at_.stage;
#pragma unroll
    for (int step = 0; step < Own::kSteps; ++step) {
      if (step + 1 < Own::kSteps) {
        load((step + 1) % 2, stage, step + 1);
      } else {
        at_.advance();
        if (more) begin();
      }
      if constexpr (kMasked) warp_.mask(fragment_[step % 2], distance - 16 * step);
      warp_.multiply(sums, fragment_[step % 2]);
    }
    __syncwarp();
    ring_.release(stage, static_cast<unsigned>(warp_.lane));
  }

  const Ring<G>& ring_;
  const Own& warp_;
  RingPosition<G::kStages> at_;
  typename Own::Fragment fragment_[2];
};

// A multiplying warp.
template <Kernel C>
__device__ __forceinline__ void multiply_product(const Params& p, const Ring<Geometry<C>>& ring,
                                                 TileScheduler scheduler, const Panels& panels,
                                                 const persistent::Extents<C>& z, int blocks) {
  using G = Geometry<C>;
  const Warp<C> warp(static_cast<int>(threadIdx.x / 32), static_cast<int>(threadIdx.x % 32));
  const Sizes sizes{p.B, z.heads, z.tokens, z.features, 1, 0, z.diag, z.width};
  Multiply<C> multiply(ring, warp);
  typename Warp<C>::Accumulator sums;
  for (int row, column; scheduler.next(row, column);) {
    const int first = row * C.config.tile_m + warp.first_row;
    const KRange range(product_fill(C.shape), first & ~(kPanel - 1), z.diag, blocks);
    multiply.tile(sums, first_block<C>(row, z.width, blocks), range, first + z.diag,
                  longest<C>(row, z.diag, blocks), blocks);
    int head, batch, feature;
    const int panel = panels.first<1, G::kPanels>(column, head, 0);
    panels.locate(panel + warp.first_column / kPanel, batch, feature);
    warp.store(p, sizes, sums, head, first, batch, feature);
  }
}

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p, const TensorMap& map_w,
                                            const TensorMap& map_in) {
  using G = Geometry<C>;
  const persistent::Extents<C> z(p);
  const int blocks = (z.tokens + kPanel - 1) / kPanel;
  const Panels panels{(z.features + kPanel - 1) / kPanel, column_units(C.config, p.B, z.features)};
  const TileScheduler scheduler = persistent::scheduler_of_block<C>(persistent::row_tiles(C.config, z.tokens),
                                                                    z.heads * panels.head_units);
  const Ring<G> ring = persistent::ring_of_block<G>();
  persistent::prepare<G>([&] { ring.init(); }, map_w, map_in);
  persistent::split_roles<G>(
      [&](unsigned thread) {
        if (thread == 0) {
          ptx::wait_for_launches_before();
          load_product<C>(ring, scheduler, panels, z, blocks, map_w, map_in);
        }
      },
      [&](unsigned) {
        ptx::wait_for_launches_before();
        ptx::let_next_launch_start();
        multiply_product<C>(p, ring, scheduler, panels, z, blocks);
      });
}

}  // namespace trigen::mma_tma_sm90
