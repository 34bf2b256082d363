// What tokens do to the state, put together over lanes, warps, blocks of a cluster and parts (scan.cuh).
#pragma once

#include "epilogue.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "scan/place.cuh"

namespace trigen::scan {

// State before -> product * state + state[f], of each feature.
template <int kF>
struct Map {
  float product, state[kF];
};
template <int kF>
__device__ __forceinline__ Map<kF> unchanged() {
  Map<kF> map;
  map.product = 1.0f;
#pragma unroll
  for (int f = 0; f < kF; ++f) map.state[f] = 0.0f;
  return map;
}
// `map`, and `next` behind it.
template <int kF>
__device__ __forceinline__ void pass_on(const Map<kF>& next, Map<kF>& map) {
#pragma unroll
  for (int f = 0; f < kF; ++f) map.state[f] = fmaf(next.product, map.state[f], next.state[f]);
  map.product *= next.product;
}

template <Kernel C>
class States {
  using G = Geometry<C>;
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr int kF = G::kF, kFeatureLanes = G::kFeatureLanes, kTokenLanes = G::kTokenLanes;
  static constexpr int kWarps = G::kWarps, kBlocks = G::kBlocks, kPitch = pitch(c);

 public:
  // `shared`: behind the ring and the gains.
  __device__ __forceinline__ States(const Place<C>& at, float* shared)
      : at_(at), exchange_(shared), met_(shared + 2 * inputs(s.op) * exchange_floats(c)) {
    if constexpr (kBlocks > 1) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) ptx::mbarrier_init(met_barrier(i), 1);
        ptx::mbarrier_fence_init();
      }
      __syncwarp();
      ptx::cluster_arrive_relaxed();
    }
  }
  // All blocks of the cluster have begun, with barriers. Once, before their first step.
  __device__ __forceinline__ void wait_for_blocks() const {
    if constexpr (kBlocks > 1) ptx::cluster_wait();
  }

  // `map` becomes that of all lanes up to this one in the direction of time; returns that of those before it.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> join_lanes(Map<kF>& map) const {
    Map<kF> before = unchanged<kF>();
    if constexpr (kTokenLanes > 1) {
      const int order = kBackward ? kTokenLanes - 1 - at_.token_lane : at_.token_lane;
#pragma unroll
      for (int k = 1; k < kTokenLanes; k *= 2) {
        const float product = from_lane_before<kBackward>(map.product, k * kFeatureLanes);
#pragma unroll
        for (int f = 0; f < kF; ++f) {
          const float state = from_lane_before<kBackward>(map.state[f], k * kFeatureLanes);
          if (order >= k) map.state[f] = fmaf(map.product, state, map.state[f]);
        }
        if (order >= k) map.product *= product;
      }
      const float product = from_lane_before<kBackward>(map.product, kFeatureLanes);
      if (order > 0) before.product = product;
#pragma unroll
      for (int f = 0; f < kF; ++f) {
        const float state = from_lane_before<kBackward>(map.state[f], kFeatureLanes);
        if (order > 0) before.state[f] = state;
      }
    }
    return before;
  }

  // The whole warp's map, by its last lane in time.
  template <bool kBackward>
  __device__ __forceinline__ void hand_on(const Map<kF>& map, float* to) const {
    if (at_.token_lane != (kBackward ? 0 : kTokenLanes - 1)) return;
    float* const row = to + at_.warp * kPitch;
#pragma unroll
    for (int f = 0; f < kF; ++f) row[at_.feature_lane * kF + f] = map.state[f];
    if (at_.feature_lane == 0) row[c.tile_n] = map.product;
  }

  // Where the maps of step i are handed on, of each input.
  __device__ __forceinline__ float* exchange_at(int i, int input = 0) const {
    return exchange_ + (i % 2 * inputs(s.op) + input) * exchange_floats(c);
  }

  // The state before this thread's tokens, whose warp has `map` and whose lanes before it `before`; `carry`, before the
  // tokens of step i, becomes that behind them.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> exchange(const Map<kF>& map, const Map<kF>& before, int i,
                                              Map<kF>& carry) const {
    hand_on<kBackward>(map, exchange_at(i));
    __syncthreads();
    return behind_all<kBackward>(exchange_at(i), before, i, carry);
  }
  // The same of maps that have been handed on.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> behind_all(const float* through, const Map<kF>& before, int i,
                                                Map<kF>& carry) const {
    if constexpr (kBlocks == 1) {
      return behind_warps<kBackward>(through, before, carry);
    } else {
      send_to_blocks<kBackward>(through, i);
      const Map<kF> here = behind_warps_before<kBackward>(through, before);
      Map<kF> state = receive<kBackward>(i, carry);
      pass_on(here, state);
      return state;
    }
  }
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> behind_warps(const float* through, const Map<kF>& before,
                                                  Map<kF>& carry) const {
    Map<kF> state = enter<kBackward, kWarps>(through, at_.warp, carry);
    if constexpr (kTokenLanes > 1) pass_on(before, state);
    return state;
  }

  // Where a cluster's blocks have a step each, along the tokens by their ranks. Maps, and the mbarrier that counts them, have
  // two places. Whoever sends those of step i + 2 has all of step i + 1, and who sent these had read step i. No block
  // ends before all has come that is sent to it.
  //
  // This block's map of step i, of maps that have been handed on, to all blocks.
  template <bool kBackward>
  __device__ __forceinline__ void send_to_blocks(const float* through, int i) const {
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect(met_barrier(i), kBlocks * 4 * (c.tile_n + 1));
    if (at_.warp < kBlocks) {
      Map<kF> all = unchanged<kF>();
      enter<kBackward, kWarps>(through, -1, all);
      if (at_.token_lane == 0) {
#pragma unroll
        for (int n = 0; n < ceil_div(kBlocks, kWarps); ++n)
          if (const int to = at_.warp + n * kWarps; to < kBlocks) send(all, met_at(i), i, to);
      }
    }
  }
  // The map of this block's tokens before the thread's, whose lanes before it have `before`.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> behind_warps_before(const float* through, const Map<kF>& before) const {
    Map<kF> here = unchanged<kF>();
#pragma unroll 1
    for (int i = 0; i < (kBackward ? kWarps - 1 - at_.warp : at_.warp); ++i)
      pass_on(handed(through, kBackward ? kWarps - 1 - i : i), here);
    if constexpr (kTokenLanes > 1) pass_on(before, here);
    return here;
  }
  // The state before this block's step i, when all maps of the cluster's have come; takes `carry` past them.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> receive(int i, Map<kF>& carry) const {
    ptx::mbarrier_wait(met_barrier(i), i / 2 % 2);
    return enter<kBackward, kBlocks>(met_at(i), at_.rank, carry);
  }

  // The state before this part: of the parts before it in time, in their order.
  template <bool kBackward>
  __device__ __forceinline__ void take_carry(Map<kF>& carry, int direction) const {
    carry = unchanged<kF>();
    if constexpr (c.split_k > 1) {
      for (int i = 0; i < (kBackward ? c.split_k - 1 - at_.part : at_.part); ++i) {
        const float* const from = carries(direction, kBackward ? c.split_k - 1 - i : i);
        const float product = from[at_.head];
#pragma unroll
        for (int f = 0; f < kF; ++f)
          if (at_.feature + f < at_.z.D)
            carry.state[f] = fmaf(product, carry.state[f], from[at_.z.H + at_.column() + f]);
      }
    }
  }
  // What the tokens of `part` do, in the workspace: products [h], then states [b][h][d].
  __device__ __forceinline__ float* carries(int direction, int part) const {
    return static_cast<float*>(at_.p.workspace) +
           (static_cast<long long>(direction) * c.split_k + part) * state_floats(at_.z);
  }

 private:
  template <bool kBackward>
  __device__ __forceinline__ static float from_lane_before(float v, int lanes) {
    return kBackward ? __shfl_down_sync(0xffffffffu, v, lanes) : __shfl_up_sync(0xffffffffu, v, lanes);
  }

  // Takes `carry` past the maps of kMaps rows, in the direction of time; returns it as it was before row `own`.
  template <bool kReversed, int kMaps>
  __device__ __forceinline__ Map<kF> enter(const float* from, int own, Map<kF>& carry) const {
    Map<kF> before = carry;
#pragma unroll
    for (int i = 0; i < kMaps; ++i) {
      const int n = kReversed ? kMaps - 1 - i : i;
      if (n == own) before = carry;
      pass_on(handed(from, n), carry);
    }
    return before;
  }
  __device__ __forceinline__ Map<kF> handed(const float* from, int n) const {
    const float* const row = from + n * kPitch;
    Map<kF> map;
    map.product = row[c.tile_n];
    read_floats(map.state, row + at_.feature_lane * kF);
    return map;
  }

  // The map of this block's step, into its row in block `to`.
  __device__ __forceinline__ void send(const Map<kF>& map, const float* met, int step, int to) const {
    const unsigned barrier = ptx::cluster_address(met_barrier(step), to),
                   row = ptx::cluster_address(ptx::shared_address(met + at_.rank * kPitch), to),
                   states = row + 4 * kF * at_.feature_lane;
    if constexpr (kF % 4 == 0) {
#pragma unroll
      for (int f = 0; f < kF; f += 4)
        ptx::store_cluster_async(states + 4 * f, barrier, map.state[f], map.state[f + 1], map.state[f + 2],
                                 map.state[f + 3]);
    } else {
#pragma unroll
      for (int f = 0; f < kF; ++f) ptx::store_cluster_async(states + 4 * f, barrier, map.state[f]);
    }
    if (at_.feature_lane == 0) ptx::store_cluster_async(row + 4 * c.tile_n, barrier, map.product);
  }
  __device__ __forceinline__ const float* met_at(int i) const { return met_ + i % 2 * kBlocks * kPitch; }
  __device__ __forceinline__ unsigned met_barrier(int i) const {
    return ptx::shared_address(met_ + 2 * kBlocks * kPitch) + 8 * (i % 2);
  }

  const Place<C> at_;  // a copy: a reference would put it into local memory
  float *const exchange_, *const met_;
};

}  // namespace trigen::scan
