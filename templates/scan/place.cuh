// Where a block and its threads are, and what they hold of a step (scan.h).
#pragma once

#include "operand.cuh"
#include "ptx/cluster.cuh"
#include "scan.h"

namespace trigen::scan {

struct __align__(16) Gains {
  float write, keep, read, diagonal;
};

template <Kernel C>
struct Geometry {
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr DType kD = s.dtype;
  static constexpr bool kBTD = s.layout == Layout::kBTD;
  static constexpr int kF = features(s.layout, c), kT = tokens(s.layout, c);
  static constexpr int kFeatureLanes = feature_lanes(s.layout, c), kTokenLanes = token_lanes(s.layout, c);
  static constexpr int kWarps = c.warps_m, kThreads = threads(c), kBlocks = blocks(c);
  // Steps have all of their tokens or none, blocks all of their features; no step of a cluster's block has none.
  static constexpr bool kWholeTokens = !kGeneric<C> && s.T % c.tile_m == 0;
  static constexpr bool kAllSteps = kBlocks == 1 || (!kGeneric<C> && s.T % (c.tile_m * kBlocks) == 0);
  static constexpr bool kWholeFeatures = !kGeneric<C> && s.D % c.tile_n == 0;
  static_assert(c.tile_m == step_tokens(s.layout, c), "a step has one chunk of every thread");
  static_assert(32 % kFeatureLanes == 0 && kFeatureLanes * kF == c.tile_n, "lanes lie along whole features");
  static_assert((kBTD ? c.tile_n : c.tile_m) % c.vec_b == 0, "rows of a step are whole copies");
};

// A thread's elements of a step.
template <Kernel C>
struct Elements {
  using G = Geometry<C>;
  Raw<G::kD, C.config.vec_c> raw[C.config.tile_k];
  __device__ __forceinline__ float get(int t, int f) const {
    return to_float<G::kD>(G::kBTD ? raw[t].get(f) : raw[f].get(t));
  }
};

// Vector i of a head at a token, ones where it is left out.
template <Kernel C>
__device__ __forceinline__ float number_of(const Params& p, Vector i, int head, int t) {
  constexpr DType kW = C.shape.wdtype;
  const TokenVector& v = p.vectors[i];
  if (v.data == nullptr) return 1.0f;
  return to_float<kW>(static_cast<const Storage<kW>*>(
      v.data)[static_cast<long long>(head) * v.head + static_cast<long long>(t) * v.token]);
}

template <Kernel C>
struct Place {
  using G = Geometry<C>;
  const Params& p;
  const Sizes z;
  int warp, feature_lane, token_lane;
  int slab, head, batch, feature;  // the thread's first
  int part, rank, first, end;      // steps of the part; all blocks of a cluster have the same

  __device__ __forceinline__ explicit Place(const Params& p) : p(p), z(sizes_of<C>(p)) {
    constexpr Config c = C.config;
    const int lane = static_cast<int>(threadIdx.x) % 32, each = slabs(c, z.D),
              place = static_cast<int>(blockIdx.x) / G::kBlocks;
    warp = static_cast<int>(threadIdx.x) / 32;
    feature_lane = lane % G::kFeatureLanes;
    token_lane = lane / G::kFeatureLanes;
    slab = place % each;
    head = place / each % z.H;
    batch = place / each / z.H;
    feature = slab * c.tile_n + feature_lane * G::kF;
    part = static_cast<int>(blockIdx.y);
    rank = G::kBlocks > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
    first = part * part_steps(c, z.T);
    // As many for all blocks of a cluster, the last of which may have no tokens.
    end = G::kBlocks > 1 ? schedule::ceil_div(schedule::ceil_div(z.T, c.tile_m), G::kBlocks) * G::kBlocks
                         : schedule::min(first + part_steps(c, z.T), schedule::ceil_div(z.T, c.tile_m));
  }

  __device__ __forceinline__ int steps() const { return (end - first) / G::kBlocks; }
  // This block's i-th in the direction of time.
  template <bool kBackward>
  __device__ __forceinline__ int step_at(int i) const {
    return (kBackward ? end - (i + 1) * G::kBlocks : first + i * G::kBlocks) + rank;
  }
  // First of the thread's tokens, of its chunk of a step.
  __device__ __forceinline__ int chunk() const { return (warp * G::kTokenLanes + token_lane) * G::kT; }
  __device__ __forceinline__ int token(int step) const { return step * C.config.tile_m + chunk(); }
  // Of this thread's first feature in [b][h][d].
  __device__ __forceinline__ long long column() const {
    return (static_cast<long long>(batch) * z.H + head) * z.D + feature;
  }
  // Of row r of the thread's elements, whose first token is t0.
  __device__ __forceinline__ Storage<G::kD>* at(const Activations& a, int t0, int r) const {
    return static_cast<Storage<G::kD>*>(a.data) +
           (batch * a.batch + head * a.head + (G::kBTD ? t0 * a.row + feature : feature * a.row + t0)) +
           r * a.row;
  }
};

// Of every launch.
__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
#endif
}

}  // namespace trigen::scan
