// forward and grad_input, multiplied transposed, features by tokens:
//
//   forward     y^T[d, t]  = sum over s in the triangle of x^T[d, s] W^T[s, t]    B = W
//   grad_input  dx^T[d, s] = sum over t in the triangle of dy^T[d, t] W[t, s]     B = W's transpose, in
//                                                                                 the workspace
//
// wgmma takes tf32 operands along k only. W is that as it lies (its transpose for grad_input); x and dy are
// not, so they go through registers as A: 64 features of each multiplying warpgroup by 8 of k. So a tap takes the features
// that its shift says, of one step of x for all of them: the sum goes over taps, too. Blocks are
// persistent. In the warpgroup that loads, one warp asks TMA; forward has two more that zero the
// other triangle's elements of W in shared memory, ahead of the warpgroups that multiply.
#pragma once

#include "params.h"
#include "persistent/panels.cuh"
#include "ptx/wgmma_tf32.cuh"
#include "wgmma_tf32_sm90/geometry.cuh"
#include "wgmma_tf32_sm90/store.cuh"

namespace trigen::wgmma_tf32_sm90 {

// Task of a block: tile scheduler and sizes, the same for all warps.
struct Task {
  TileScheduler scheduler;
  persistent::Panels columns;  // of a block's tile: 64 features for each multiplying warpgroup
  int tokens, features, diag, steps;
  unsigned rank;
};

// The barrier that says that a stage's W is masked.
template <class G>
__device__ __forceinline__ unsigned masked(const Ring<G>& ring, int stage) {
  return ring.barriers + 8 * (2 * G::kStages + stage);
}

// The barriers of a slot of x: its bytes have landed; every multiplying warp has read it for the last of the taps.
template <class G>
__device__ __forceinline__ unsigned landed(const Ring<G>& ring, int slot) {
  return ring.barriers + 8 * (2 * G::kStages + slot);
}
template <class G>
__device__ __forceinline__ unsigned consumed(const Ring<G>& ring, int slot) {
  return ring.barriers + 8 * (2 * G::kStages + kSlots + slot);
}
template <class G>
__device__ __forceinline__ unsigned features_of(const Ring<G>& ring, int slot) {
  return ring.base + G::kStages * G::kStageBytes + slot * G::kFeatureBytes;
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_product(const Ring<Geometry<C>>& ring, Task task, const TensorMap& map_w,
                                             const TensorMap& map_in) {
  using G = Geometry<C>;
  RingPosition<G::kStages> at;
  RingPosition<kSlots> slot;
  for (int row, column; task.scheduler.next(row, column);) {
    const TokenTile<C> tile(row, task.diag, task.steps);
    int head, batch[G::kConsumers], feature[G::kConsumers];
    const int panel = task.columns.template first<G::kCluster, G::kConsumers>(column, head, task.rank);
#pragma unroll
    for (int i = 0; i < G::kConsumers; ++i) task.columns.locate(panel + i, batch[i], feature[i]);
    for (int step = 0; step < tile.steps; ++step) {
      const int k = tile.k(step), count = step < tile.unmasked_steps ? G::kPanels : tile.panels(step),
                tap = G::kTaps == 1 ? 0 : step % G::kTaps;
      if (G::kShifts && tap == 0) {
        ptx::mbarrier_wait(consumed(ring, slot.stage), slot.parity ^ 1);
        ptx::mbarrier_arrive_expect(landed(ring, slot.stage), G::kFeatureBytes);
#pragma unroll
        for (int i = 0; i < G::kBoxes; ++i)
          ptx::tma_load(features_of(ring, slot.stage) + i * (kPanelBytes / 2), map_in,
                        landed(ring, slot.stage), feature[i / 3] + kBoxStart<C> + 32 * (i % 3), k, head,
                        batch[i / 3]);
        slot.advance();
      }
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      const unsigned full = ring.full(at.stage);
      ptx::mbarrier_arrive_expect(full, G::kBytesA + count * kPanelBytes);
#pragma unroll
      for (int i = 0; i < G::kPanels; ++i) {
        if (i >= count) continue;
        const unsigned target = ring.b(at.stage) + i * kPanelBytes;
        if constexpr (G::kCluster == 1)
          ptx::tma_load(target, map_w, full, k, tile.token(i), tap, head);
        else if (static_cast<unsigned>(i % 2) == task.rank)  // each block loads half of W for both
          ptx::tma_load_multicast(target, map_w, full, 3, k, tile.token(i), tap, head);
      }
#pragma unroll
      for (int i = 0; i < (G::kShifts ? 0 : G::kBoxes); ++i)
        ptx::tma_load(ring.a(at.stage) + i * (kPanelBytes / 2), map_in, full, feature[i / 2] + 32 * (i % 2),
                      k, head, batch[i / 2]);
      at.advance();
    }
  }
}

// One masking warp: rows `lane` + 32 * `part` of every panel that the triangle's edge crosses.
template <Kernel C>
__device__ __forceinline__ void mask_product(const Ring<Geometry<C>>& ring, Task task, unsigned part,
                                             unsigned lane) {
  using G = Geometry<C>;
  constexpr Fill kFill = TokenTile<C>::kFill;
  RingPosition<G::kStages> at;
  for (int row, column; task.scheduler.next(row, column);) {
    const TokenTile<C> tile(row, task.diag, task.steps);
    for (int step = 0; step < tile.steps; ++step) {
      ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      const bool masks = step >= tile.unmasked_steps;
      if (masks) {
#pragma unroll
        for (int i = 0; i < G::kPanels; ++i) {
          const KStepRange range = tile.range(i);
          if (step < range.unmasked_steps || step >= range.steps) continue;
          const unsigned line = 32 * part + lane;
          // Kept: columns up to `edge` of the step (lower), from `edge` on (upper).
          const int edge = tile.token(i) + static_cast<int>(line) + tile.diag - tile.k(step);
          const unsigned base = ring.b(at.stage) + i * kPanelBytes + line * 128;
#pragma unroll
          for (int chunk = 0; chunk < 8; ++chunk) {
            const unsigned address = base + ((chunk ^ (line & 7)) << 4);
            constexpr unsigned kZeros[4] = {};
            const int last = edge - 4 * chunk;  // of the chunk's first column
            if (kFill == Fill::kLower ? last < 0 : last > 3) {
              ptx::store_shared<16>(address, kZeros);
            } else {
#pragma unroll
              for (int e = 0; e < 4; ++e)
                if (kFill == Fill::kLower ? e > last : e < last)
                  ptx::store_shared<4>(address + 4 * e, kZeros);
            }
          }
        }
        ptx::fence_async_shared();
      }
      __syncwarp();  // all have masked, and none still waits: the ring may turn once some lanes have let go
      if (masks && lane == 0) ptx::mbarrier_arrive(masked(ring, at.stage));
      ring.release(at.stage, lane);
      at.advance();
    }
  }
}

// A of one step: 64 features by 32 of k, for four products of 8.
__device__ __forceinline__ void load_features(unsigned (&a)[4][4], unsigned low, unsigned high) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned here[2], there[2];  // k lane % 4 and + 4, features of rows r and r + 8
    ptx::load_shared<8>(here, low + 1024 * i);
    ptx::load_shared<8>(there, high + 1024 * i);
    a[i][0] = here[0], a[i][1] = here[1], a[i][2] = there[0], a[i][3] = there[1];
  }
}

// The same of shifted features: one by one, at the addresses of features of rows r ([0]) and r + 8 ([1]).
__device__ __forceinline__ void load_shifted(unsigned (&a)[4][4], const unsigned (&low)[2],
                                             const unsigned (&high)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      ptx::load_shared<4>(&a[i][j], low[j] + 1024 * i);
      ptx::load_shared<4>(&a[i][2 + j], high[j] + 1024 * i);
    }
}

// One step with the first `kCount` panels of tokens.
template <Kernel C, int kCount>
__device__ __forceinline__ void multiply_step(float (&sum)[C.config.tile_m / 2], const unsigned (&a)[4][4],
                                              unsigned b, int accumulate) {
  auto& part = reinterpret_cast<float(&)[32 * kCount]>(sum);
  const unsigned long long from = ptx::descriptor(b, kPanelBytes);
#pragma unroll
  for (int i = 0; i < 4; ++i) ptx::wgmma_tf32_rs<64 * kCount>(part, a[i], from + 2 * i, accumulate | i);
}

// One step with `count` panels of tokens, waited for.
template <Kernel C, int kCount>
__device__ __forceinline__ void multiply_edge(float (&sum)[C.config.tile_m / 2], const unsigned (&a)[4][4],
                                              unsigned b, int count, int accumulate) {
  if constexpr (kCount > 1)
    if (count < kCount) return multiply_edge<C, kCount - 1>(sum, a, b, count, accumulate);
  ptx::wgmma_fence();
  multiply_step<C, kCount>(sum, a, b, accumulate);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(sum);
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_product(const Params& p, const Ring<Geometry<C>>& ring, Task task,
                                                 unsigned group, const TensorMap& map_out) {
  using G = Geometry<C>;
  constexpr int kPanels = G::kPanels;
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const FeatureLane own(warp, lane);
  // Of this thread in a stage: x's rows lane % 4 and + 4.
  const unsigned a_panel = group * kPanelBytes + warp / 2 * (kPanelBytes / 2);
  const unsigned a_low = a_panel + own.offset(lane % 4), a_high = a_panel + own.offset(lane % 4 + 4);
  RingPosition<G::kStages> at;
  RingPosition<kSlots> slot;
  int tap = 0;               // of the next step to be loaded
  unsigned mask_parity = 0;  // bit `stage`: of the next wait for masked(stage)
  OutputPanels<C> output(ring, static_cast<int>(2 * group + warp / 2));
  float sum[C.config.tile_m / 2];
  unsigned a0[4][4], a1[4][4];

  for (int row, column; task.scheduler.next(row, column);) {
    const TokenTile<C> tile(row, task.diag, task.steps);
    int in_flight = -1;  // the stage that the newest unfinished group of products reads
    const auto load = [&](unsigned(&a)[4][4]) {
      ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      if constexpr (G::kShifts) {
        if (tap == 0) ptx::mbarrier_wait(landed(ring, slot.stage), slot.parity);
        const unsigned from = features_of(ring, slot.stage) + group * (3 * kPanelBytes / 2);
        const int first = static_cast<int>(warp / 2 * 32) + own.feature() + shift_of<C>(tap) - kBoxStart<C>;
        unsigned low[2], high[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          low[j] = from + feature_offset(lane % 4, first + j);
          high[j] = from + feature_offset(lane % 4 + 4, first + j);
        }
        load_shifted(a, low, high);
        if (++tap == G::kTaps) {
          tap = 0;
          __syncwarp();
          if (lane == 0) ptx::mbarrier_arrive(consumed(ring, slot.stage));
          slot.advance();
        }
      } else {
        load_features(a, ring.a(at.stage) + a_low, ring.a(at.stage) + a_high);
      }
    };
    // Products of one step, whose A is in `a`; the next step's goes into `next` meanwhile.
    const auto multiply_unmasked = [&](int step, unsigned(&a)[4][4], unsigned(&next)[4][4]) {
      ptx::wgmma_fence();
      multiply_step<C, kPanels>(sum, a, ring.b(at.stage), step);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (in_flight >= 0) ring.release(in_flight, lane);
      in_flight = at.stage;
      at.advance();
      if (step + 1 < tile.steps) load(next);
    };
    if (tile.steps > 0) load(a0);
    int step = 0;
    for (; step + 1 < tile.unmasked_steps; step += 2) {
      multiply_unmasked(step, a0, a1);
      multiply_unmasked(step + 1, a1, a0);
    }
    ptx::wgmma_wait<0>();
    ptx::pin(sum);
    if (in_flight >= 0) ring.release(in_flight, lane);
    for (; step < tile.steps; ++step) {
      if (G::kMasks && step >= tile.unmasked_steps) {
        ptx::mbarrier_wait(masked(ring, at.stage), mask_parity >> at.stage & 1);
        mask_parity ^= 1u << at.stage;
      }
      multiply_edge<C, kPanels>(sum, a0, ring.b(at.stage), tile.panels(step), step);
      ring.release(at.stage, lane);
      at.advance();
      if (step + 1 < tile.steps) load(a0);
    }

    int head, batch, feature;
    const int panel = task.columns.template first<G::kCluster, G::kConsumers>(column, head, task.rank) +
                      static_cast<int>(group);
    task.columns.locate(panel, batch, feature);
    feature += static_cast<int>(32 * (warp / 2));
#pragma unroll
    for (int i = 0; i < kPanels; ++i) {
      const bool any = tile.range(i).steps > 0;
      output.store(sum + 32 * i, any, map_out, feature, own,
                   {p, head, batch, task.tokens, task.features, feature + own.feature(), tile.token(i)});
    }
  }
  output.finish();
}

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p, const TensorMap& map_w, const TensorMap& map_in,
                                            const TensorMap& map_out) {
  using G = Geometry<C>;
  const persistent::Extents<C> z(p);
  Task task;
  task.tokens = z.tokens;
  task.features = z.features;
  task.diag = z.diag;
  task.steps = schedule::ceil_div(z.tokens, kStep);
  task.rank = persistent::rank_in_cluster<G>();
  task.columns = {schedule::ceil_div(z.features, kGroupFeatures), column_units(C.config, p.B, z.features)};
  task.scheduler = persistent::scheduler_of_block<C>(persistent::row_tiles(C.config, z.tokens),
                                                     z.heads * task.columns.head_units);
  const Ring<G> ring = persistent::ring_of_block<G>();
  persistent::prepare<G>(
      [&] {
        // (Braced: NVRTC 12.9 leaves out all that follows where both are discarded and are not.)
        if constexpr (G::kMasks) {
          for (int stage = 0; stage < G::kStages; ++stage)
            ptx::mbarrier_init(masked(ring, stage), kMaskingWarps);
        }
        if constexpr (G::kShifts) {
          for (int slot = 0; slot < kSlots; ++slot) {
            ptx::mbarrier_init(landed(ring, slot), 1);
            ptx::mbarrier_init(consumed(ring, slot), 4 * G::kConsumers);
          }
        }
        ring.init();
      },
      map_w, map_in, map_out);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
  persistent::split_roles<G>(
      [&](unsigned thread) {
        const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        if (thread == 0) load_product<C>(ring, task, map_w, map_in);
        if (G::kMasks && warp >= 1 && warp <= kMaskingWarps) mask_product<C>(ring, task, warp - 1, lane);
      },
      [&](unsigned group) { multiply_product<C>(p, ring, task, group, map_out); });
}

}  // namespace trigen::wgmma_tf32_sm90
