// forward and grad_input of at most 256 tokens: W's triangle, resident in registers, times panels of x (or
// dy).
//
//   forward     y[t, n]  = sum over s in the triangle of W[t, s] x[s, n]
//   grad_input  dx[s, n] = sum over t in the triangle of W[t, s] dy[t, n]
//
// A panel is 64 features of one (batch, head), a stage of the ring. One thread loads; the multiplying
// warpgroups take panels in turn. Each multiplies all rows of its panel, the longest first, and writes a
// row's output over the 64 tokens of x that no row after it reads; TMA stores it from there. A stage is free
// again when that has been read. Of more than 192 tokens two warpgroups, a team, multiply two rows each, and write them when
// both have read all of x.
//
// W comes ahead of every head's first panel, and each warpgroup reads what its rows take of it.
#pragma once

#include "params.h"
#include "persistent/staging.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "wgmma_resident_sm90/turns.cuh"
#include "wgmma_resident_sm90/weights.cuh"
#include "wgmma_sm90/epilogue.cuh"

namespace trigen::wgmma_resident_sm90 {

// Coordinates of a stage of x or y for TMA: of a panel one box of all tokens, or several narrow ones, or, where tokens are
// contiguous, one of every block of 64.
template <Kernel C>
struct StagePlace {
  using G = Geometry<C>;
  // Stages of a (batch, head); narrow boxes of it.
  static constexpr int kAcross = schedule::ceil_div(C.shape.D, C.config.tile_n),
                       kBoxesAcross = schedule::ceil_div(C.shape.D, G::kBoxFeatures);
  static constexpr int kBoxes = G::kTokens ? G::kRows : G::kParts, kBoxBytes = G::kBytesOfPanel / kBoxes;
  int stage, head;  // of the head's
  __device__ __forceinline__ StagePlace(int of_head, int h) : stage(of_head), head(h) {}
  // move(bytes from the stage's begin, innermost coordinate, the next one, batch)
  template <class Move>
  __device__ __forceinline__ void each_box(const Move& move) const {
#pragma unroll
    for (int panel = 0; panel < G::kPanels; ++panel) {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const int to = panel * G::kBytesOfPanel + box * kBoxBytes;
        if constexpr (G::kParts > 1) {
          const int n = (stage * G::kPanels + panel) * G::kParts + box;
          move(to, n % kBoxesAcross * G::kBoxFeatures, 0, n / kBoxesAcross);
        } else {
          const int from = C.config.tile_n * (stage % kAcross) + kPanel * panel;
          move(to, G::kTokens ? kPanel * box : from, G::kTokens ? from : 0, stage / kAcross);
        }
      }
    }
  }
};

// Of a kernel; null: it has none.
struct Maps {
  const TensorMap *weights, *in, *out, *residual;
};

// The loading thread, ahead of griddepcontrol.wait: no value is read.
template <Kernel C>
__device__ __forceinline__ void prefetch_first(const Params& p, const StageWalk& walk, const Maps& maps) {
  using G = Geometry<C>;
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  const int head = walk.first / walk.of_head;
  if constexpr (G::kStagesWeights)
    prefetch_weights<C>(p, head, static_cast<int>(blockIdx.x) / C.shape.H,
                        schedule::ceil_div(static_cast<int>(gridDim.x), C.shape.H));
  else
    each_unit<C>([&](int, int m, int k) {
      ptx::tma_prefetch_box(*maps.weights, kTransposed ? m : k, kTransposed ? k : m, 0, head);
    });
  const int end = schedule::min(walk.last, (head + 1) * walk.of_head);
#pragma unroll 1
  for (int n = 0; n < G::kStages && walk.stage(n) < end; ++n) {
    const StagePlace<C> place(walk.stage(n) - head * walk.of_head, head);
    place.each_box([&](int, int inner, int outer, int batch) {
      ptx::tma_prefetch_box(*maps.in, inner, outer, head, batch);
      if constexpr (C.shape.residual) ptx::tma_prefetch_box(*maps.residual, inner, outer, head, batch);
    });
  }
}

// The loading thread: W of one head; a stage of x and of the residual, once there is room for it.
template <Kernel C>
__device__ __forceinline__ void load_weights(const WeightBlocks<C>& blocks, const TensorMap& map, int head,
                                             unsigned& parity) {
  constexpr bool kTransposed = C.shape.op == Op::kGradInput;
  ptx::mbarrier_wait(blocks.empty(), parity);  // of the head before
  parity ^= 1;
  ptx::mbarrier_arrive_expect(blocks.full(), Geometry<C>::kUnits * kPanelBytes);
  each_unit<C>([&](int unit, int m, int k) {
    ptx::tma_load(blocks.block(unit), map, blocks.full(), kTransposed ? m : k, kTransposed ? k : m, 0, head);
  });
}
template <Kernel C>
__device__ __forceinline__ void load_stage(const Ring<Geometry<C>>& ring, int at, const Maps& maps,
                                           const StagePlace<C>& place) {
  using G = Geometry<C>;
  const unsigned full = ring.full(at);
  ptx::mbarrier_arrive_expect(full, G::kStageBytes);
  place.each_box([&](int bytes, int inner, int outer, int batch) {
    ptx::tma_load(ring.a(at) + bytes, *maps.in, full, inner, outer, place.head, batch);
    if constexpr (C.shape.residual)
      ptx::tma_load(ring.a(at) + G::kResidual + bytes, *maps.residual, full, inner, outer, place.head, batch);
  });
}

// The loading thread, of a block's n-th stage: W that threads bring would arrive behind all of a ring's x, so that what does
// not begin the warpgroups' work waits for it.
template <Kernel C>
__device__ __forceinline__ void let_weights_pass(const WeightBlocks<C>& blocks, int n) {
  using G = Geometry<C>;
  if constexpr (G::kStagesWeights) {
    if (n == G::kTeams) ptx::mbarrier_wait(blocks.full(), 0);
  }
}

// The loading thread's view of what W and x share of a team's ring.
template <Kernel C>
struct SharedEnd {
  using G = Geometry<C>;
  const Ring<G>& ring;
  const WeightBlocks<C>& blocks;
  unsigned parity = 1;  // of the heads that were read
  bool holds_weights = false;

  // Ahead of a head's W; `at`: the next stage.
  __device__ __forceinline__ void begin_head(const RingPosition<G::kStages>& at) {
    if constexpr (G::kTeam > 1) {
#pragma unroll 1
      for (int i = G::kUnderWeights; i < G::kStages; ++i)
        ptx::mbarrier_wait(ring.empty(i), i < at.stage ? at.parity : at.parity ^ 1);
      holds_weights = true;
      parity ^= 1;
    }
  }
  // Ahead of the next stage of x.
  __device__ __forceinline__ void begin_stage(int stage) {
    if constexpr (G::kTeam > 1) {
      if (!holds_weights || stage < G::kUnderWeights) return;
      ptx::mbarrier_wait(blocks.empty(), parity);
      holds_weights = false;
    }
  }
};

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_stages(const Params& p, const Ring<Geometry<C>>& ring,
                                            const StageWalk& walk, const Maps& maps) {
  using G = Geometry<C>;
  const WeightBlocks<C> blocks(ring);
  RingPosition<G::kStages> at;
  SharedEnd<C> end_of_ring{ring, blocks};
  unsigned parity = 1;  // of W's
  if constexpr (G::kClaims) {
    end_of_ring.begin_head(at);
    if constexpr (!G::kStagesWeights) load_weights<C>(blocks, *maps.weights, 0, parity);
    Turns<C> turns(p, walk);
    int n = 0;
#pragma unroll 1
    for (int stage; (stage = turns.next()) != kNoStage; at.advance(), ++n) {
      let_weights_pass<C>(blocks, n);
      end_of_ring.begin_stage(at.stage);
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      write_number(ring, at.stage, stage);
      load_stage<C>(ring, at.stage, maps, StagePlace<C>(stage, 0));
    }
#pragma unroll 1
    for (int team = 0; team < G::kTeams; ++team, at.advance()) {  // each has had its last one
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      write_number(ring, at.stage, kNoStage);
      ptx::mbarrier_arrive(ring.full(at.stage));
    }
  } else {
    int n = 0;
#pragma unroll 1
    for (int head = walk.first / walk.of_head; walk.stage(n) < walk.last; ++head) {
      end_of_ring.begin_head(at);
      if constexpr (!G::kStagesWeights) load_weights<C>(blocks, *maps.weights, head, parity);
      const int end = schedule::min(walk.last, (head + 1) * walk.of_head);
#pragma unroll 1
      for (; walk.stage(n) < end; ++n, at.advance()) {
        let_weights_pass<C>(blocks, n);
        end_of_ring.begin_stage(at.stage);
        ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
        load_stage<C>(ring, at.stage, maps, StagePlace<C>(walk.stage(n) - head * walk.of_head, head));
      }
    }
  }
}

// The identity's 64 x 64 as fragments of m64k16 steps: rows and k of 16 i to 16 i + 15 are warp i's.
template <DType kType>
__device__ __forceinline__ void identity_step(unsigned (&a)[4], unsigned i, unsigned warp, unsigned lane) {
  constexpr unsigned kOne = kType == DType::kBF16 ? 0x3F80 : 0x3C00;
  const unsigned row = lane / 4, k = lane % 4 * 2;
  a[0] = a[3] = warp != i ? 0 : row == k ? kOne : row == k + 1 ? kOne << 16 : 0;
  a[1] = a[2] = 0;
}

// 64 rows of a panel into `sum`: the residual's as the product of the identity and them, and what their weights
// take of x, from `panel` on. The products run on.
template <Kernel C, int kRow>
__device__ __forceinline__ void multiply_row(float (&sum)[32], const Weights<C>& weights, unsigned panel,
                                             const unsigned (&identity)[4][4]) {
  using G = Geometry<C>;
  constexpr Shape s = C.shape;
  const unsigned long long b =
      ptx::descriptor < G::kTokens ? 128 : 2 * G::kBoxFeatures > (panel, G::kPartBytes);
  ptx::wgmma_fence();
  if constexpr (s.residual) {
#pragma unroll
    for (int i = 0; i < steps_of_block(s, kRow); ++i)
      ptx::wgmma_rs<s.dtype, 64, G::kMajorB>(
          sum, identity[i], b + ((G::kResidual + kRow * G::kBlockBytes) >> 4) + i * G::kStepB, i);
  }
#pragma unroll
  for (int n = 0; n < k_range(s, kRow).blocks; ++n) {
#pragma unroll
    for (int i = 0; i < steps_of_block(s, block_of_k(s, n)); ++i)
      ptx::wgmma_rs<s.dtype, 64, G::kMajorB>(sum, weights.a[first_held(s, C.config, kRow) + n][i],
                                             b + block_of_k(s, n) * (G::kBlockBytes >> 4) + i * G::kStepB,
                                             s.residual | n | i);
  }
  ptx::wgmma_commit();
}

// The sums of 64 rows as they leave, into a block of shared memory (persistent/output_panels.cuh).
template <Kernel C, class Finish>
__device__ __forceinline__ void stage_row(const float (&sum)[32], unsigned target, unsigned warp,
                                          unsigned lane, const Finish& finish) {
  const unsigned line = 16 * warp + lane % 16;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    unsigned left[2], right[2];
    finish(sum + 8 * j, nullptr, nullptr, left, nullptr);
    finish(sum + 8 * j + 4, nullptr, nullptr, right, nullptr);
    if constexpr (Geometry<C>::kTokens)  // 128-byte swizzle: 16-byte chunk ^ row % 8
      ptx::stmatrix_x4_trans(target + (16 * j + lane % 8 + lane / 16 * 8) * 128 +
                                 (((2 * warp + lane / 8 % 2) ^ (lane & 7)) << 4),
                             left[0], left[1], right[0], right[1]);
    else
      ptx::stmatrix_x4(target + persistent::panel_offset<Geometry<C>::kParts, Geometry<C>::kPartBytes>(
                                    line, 2 * j + lane / 16),
                       left[0], left[1], right[0], right[1]);
  }
}

// One multiplying warpgroup.
template <Kernel C>
struct Consumer {
  using G = Geometry<C>;
  const Params& p;
  const Ring<G>& ring;
  const TensorMap& map_out;
  const int tokens;
  const unsigned team, own, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  Weights<C> weights;
  float sum[G::kSums][32];  // of rows of blocks in turn
  unsigned identity[4][4];
  int in_flight = -1;  // the leading thread's: the stage that its newest stores may still read

  __device__ __forceinline__ Consumer(const Params& params, const Ring<G>& r, const TensorMap& out,
                                      unsigned group)
      : p(params), ring(r), map_out(out), tokens(C.shape.T), team(group / G::kTeam), own(group % G::kTeam) {
    if constexpr (C.shape.residual) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        identity_step<C.shape.dtype>(identity[i], i, warp, lane);
        ptx::pin(identity[i]);
      }
    }
  }
  __device__ __forceinline__ static bool leads() { return threadIdx.x % (128 * G::kTeam) == 0; }
  __device__ __forceinline__ void meet() const {
    ptx::named_barrier(1 + static_cast<int>(team), 128 * G::kTeam);
  }

  // The n-th row of blocks of a stage, panel by panel.
  template <int kN>
  __device__ __forceinline__ void multiply(unsigned stage) {
    multiply_row<C, nth_row(C.shape, kN % G::kRows)>(sum[kN % G::kSums], weights,
                                                     stage + kN / G::kRows * G::kBytesOfPanel, identity);
  }
  // Its sums, whose products have ended, become its output.
  template <int kN>
  __device__ __forceinline__ wgmma_sm90::RowEpilogue<C> epilogue(int head) const {
    constexpr int kRow = nth_row(C.shape, kN % G::kRows);
    return {p, head, tokens, kPanel * kRow + static_cast<int>(16 * warp + lane / 4),
            C.shape.residual || k_range(C.shape, kRow).blocks > 0};
  }
  template <int kN>
  __device__ __forceinline__ void put(unsigned stage, const wgmma_sm90::RowEpilogue<C>& finish) const {
    constexpr int kRow = nth_row(C.shape, kN % G::kRows);
    // A short block's last lines are another panel's.
    if (G::kTokens || 16 * warp < lines_of_block(C.shape, kRow))
      stage_row<C>(sum[kN % G::kSums], stage + kN / G::kRows * G::kBytesOfPanel + kRow * G::kBlockBytes, warp,
                   lane, finish);
  }
  // The same when they have; the products of kRunning rows behind it run on.
  template <int kN, int kRunning>
  __device__ __forceinline__ void finish(unsigned stage, int head) {
    const wgmma_sm90::RowEpilogue<C> own_epilogue = epilogue<kN>(head);
    ptx::wgmma_wait<kRunning>();
    ptx::pin(sum[kN % G::kSums]);
    meet();  // every warp's products have read what this overwrites
    put<kN>(stage, own_epilogue);
  }
  // From the n-th row on, whose products have not begun. (A store asked for by one thread in between makes
  // NVRTC 12.9's ptxas crash at T > 64.)
  template <int kN>
  __device__ __forceinline__ void rows_from(unsigned stage, int head) {
    if constexpr (kN < G::kItems) {
      multiply<kN>(stage);
      if constexpr (G::kSums == 1)
        finish<kN, 0>(stage, head);
      else if constexpr (kN > 0)
        finish<kN - 1, 1>(stage, head);
      rows_from<kN + 1>(stage, head);
    } else if constexpr (G::kSums > 1) {
      finish<kN - 1, 0>(stage, head);
    }
  }

  // Of a team's member: its rows from the n-th of a panel on. Both members meet at one instruction (synccheck).
  template <int kMember, int kN>
  __device__ __forceinline__ void multiply_own(unsigned stage) {
    if constexpr (member(C.config, kN % G::kRows) == kMember) multiply<kN>(stage);
    if constexpr ((kN + 1) % G::kRows > 0) {
      multiply_own<kMember, kN + 1>(stage);
    } else {
      ptx::wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < G::kSums; ++i) ptx::pin(sum[i]);
    }
  }
  template <int kMember, int kN>
  __device__ __forceinline__ void put_own(unsigned stage, int head) {
    if constexpr (member(C.config, kN % G::kRows) == kMember) put<kN>(stage, epilogue<kN>(head));
    if constexpr ((kN + 1) % G::kRows > 0) put_own<kMember, kN + 1>(stage, head);
  }
  template <int kN>
  __device__ __forceinline__ void panels_from(unsigned stage, int head) {
    if constexpr (kN < G::kItems) {
      if (own == 0)
        multiply_own<0, kN>(stage);
      else
        multiply_own<1, kN>(stage);
      meet();  // both have read the panel
      if (own == 0)
        put_own<0, kN>(stage, head);
      else
        put_own<1, kN>(stage, head);
      panels_from<kN + G::kRows>(stage, head);
    }
  }

  // A stage that is full: its output leaves, and the stage before it is free when that has been read.
  __device__ __forceinline__ void make_output(int at, const StagePlace<C>& place) {
    const unsigned stage = ring.a(at);
    if constexpr (G::kTeam == 1)
      rows_from<0>(stage, place.head);
    else
      panels_from<0>(stage, place.head);
    ptx::fence_async_shared();
    meet();
    if (leads()) {
      place.each_box([&](int bytes, int inner, int outer, int batch) {
        ptx::tma_store(map_out, stage + bytes, inner, outer, place.head, batch,
                       persistent::output_eviction<C>(p));
      });
      ptx::tma_store_commit();
      ptx::tma_store_wait_read<1>();
      if (in_flight >= 0) ptx::mbarrier_arrive(ring.empty(in_flight));
      in_flight = at;
    }
  }
  // Ahead of a head's W, which takes the place of stages.
  __device__ __forceinline__ void release_last() {
    if constexpr (G::kTeam > 1) {
      if (!leads() || in_flight < 0) return;
      ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(ring.empty(in_flight));
      in_flight = -1;
    }
  }
  // Every kTeams-th stage of the block's, from the team-th on; the weights of every head.
  __device__ __forceinline__ void run(const StageWalk& walk) {
    const WeightBlocks<C> blocks(ring);
    RingPosition<G::kStages> at;
    at.stage = static_cast<int>(team);
    if constexpr (G::kClaims) {
      weights.load(p, blocks, 0, own, warp, lane);
#pragma unroll 1
      for (;;) {
        ptx::mbarrier_wait(ring.full(at.stage), at.parity);
        const int stage = read_number(ring, at.stage);
        if (stage == kNoStage) break;
        make_output(at.stage, StagePlace<C>(stage, 0));
#pragma unroll
        for (int i = 0; i < G::kTeams; ++i) at.advance();
      }
    } else {
      int n = static_cast<int>(team);
#pragma unroll 1
      for (int head = walk.first / walk.of_head; head * walk.of_head < walk.last; ++head) {
        release_last();
        weights.load(p, blocks, head, own, warp, lane);
        const int end = schedule::min(walk.last, (head + 1) * walk.of_head);
#pragma unroll 1
        for (; walk.stage(n) < end; n += G::kTeams) {
          ptx::mbarrier_wait(ring.full(at.stage), at.parity);
          make_output(at.stage, StagePlace<C>(walk.stage(n) - head * walk.of_head, head));
#pragma unroll
          for (int i = 0; i < G::kTeams; ++i) at.advance();
        }
      }
    }
    if (leads()) ptx::tma_store_wait();  // the last stores read shared memory
  }
};

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p, const Maps& maps) {
  using G = Geometry<C>;
  const StageWalk walk = walk_of_block(C.shape, C.config, p.B, C.shape.D, static_cast<int>(gridDim.x),
                                       static_cast<int>(blockIdx.x));
  const Ring<G> ring = persistent::ring_of_block<G>();
  persistent::prepare<G>(
      [&] {
        WeightBlocks<C>(ring).init();
        ring.init();
      },
      *maps.in, *maps.out);
  // Each thread that reads operands or writes outputs waits, for the launch that packs W and for what the
  // stream ran before. Only then may the next launch start: it knows of this one's wait for those before.
  persistent::split_roles<G>(
      [&](unsigned thread) {
        if (thread > 0) return;
        if constexpr (!G::kStagesWeights) ptx::tma_prefetch(*maps.weights);
        if constexpr (C.shape.residual) ptx::tma_prefetch(*maps.residual);
        prefetch_first<C>(p, walk, maps);
        ptx::wait_for_launches_before();
        load_stages<C>(p, ring, walk, maps);
      },
      [&](unsigned group) {
        ptx::wait_for_launches_before();
        ptx::let_next_launch_start();
        Consumer<C>(p, ring, *maps.out, group).run(walk);
      });
}

}  // namespace trigen::wgmma_resident_sm90
