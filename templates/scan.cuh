// Family scan: products with a W that is four vectors (scan.h), as first-order recurrences in f32. Every target, every
// dtype; x, y and what has their shape pass memory once.
//
//   scan             state = 0; for t = 0, 1, ...: y[t] = target[t] decay[t] state + diagonal[t] x[t]
//                                                  state = decay[t] state + source[t] x[t]
//   scan_grad_input  state = 0; for t = T - 1, ...: dx[t] = source[t] state + diagonal[t] dy[t]
//                                                   state = decay[t] (state + target[t] dy[t])
//
// Both are out = read state + diagonal in, state = keep state + write in, forward and backward in time, with the gains
// read, write and keep = decay. Tokens in a row map the state before them affinely, state -> P state + A, so chunks of
// tokens are put together in any tree: of a thread, the lanes of a warp, the warps of a block, its steps, and the parts
// of split_k. No product is divided by, so decays that vanish and any number of tokens are safe; decays of at most 1 never
// overflow. The tree is the kernel's alone: every run has the same bits.
//
// scan_grad_weight adds up over batches and features, with the forward state h[t] before token t, the backward one g[t]
// behind it:  source x g, target dy decay h, decay (g + target dy) h, diagonal dy x, grad_bias dy.
#pragma once

#include "epilogue.cuh"
#include "operand.cuh"
#include "ptx/cluster.cuh"
#include "scan.h"

namespace trigen::scan {

// Of neighbouring tokens.
template <int kT>
struct Gains {
  float write[kT], keep[kT], read[kT], diagonal[kT];
};

// State before -> product * state + state[f], of each feature.
template <int kF>
struct Map {
  float product, state[kF];
};

template <Kernel C>
class Block {
 public:
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr DType kD = s.dtype;
  static constexpr bool kBTD = s.layout == Layout::kBTD;
  static constexpr int kF = features(s.layout, c), kT = tokens(s.layout, c);
  static constexpr int kFeatureLanes = feature_lanes(s.layout, c), kTokenLanes = token_lanes(s.layout, c);
  static constexpr int kWarps = c.warps_m, kVec = c.vec_b, kRaws = c.tile_k;
  static constexpr int kPitch = c.tile_n + 4;  // of what a warp hands on: states, then the product
  static_assert(c.tile_m == step_tokens(s.layout, c), "a step has one chunk of every thread");
  static_assert(c.vec_c == kVec, "a thread writes what it has read");
  static_assert(32 % kFeatureLanes == 0 && kFeatureLanes * kF == c.tile_n, "lanes lie along whole features");

  // A thread's elements of a step.
  struct Elements {
    Raw<kD, kVec> raw[kRaws];
    __device__ __forceinline__ float get(int t, int f) const {
      return to_float<kD>(kBTD ? raw[t].get(f) : raw[f].get(t));
    }
  };

  __device__ __forceinline__ Block(const Params& p, float* shared)
      : p_(p), z_(sizes_of<C>(p)), shared_(shared), warp_(static_cast<int>(threadIdx.x) / 32) {
    const int lane = static_cast<int>(threadIdx.x) % 32, each = slabs(c, z_.D);
    feature_lane_ = lane % kFeatureLanes;
    token_lane_ = lane / kFeatureLanes;
    slab_ = static_cast<int>(blockIdx.x) % each;
    head_ = static_cast<int>(blockIdx.x) / each % z_.H;
    batch_ = static_cast<int>(blockIdx.x) / each / z_.H;
    feature_ = slab_ * c.tile_n + feature_lane_ * kF;
    part_ = static_cast<int>(blockIdx.y);
    first_ = part_ * part_steps(c, z_.T);
    end_ = schedule::min(first_ + part_steps(c, z_.T), schedule::ceil_div(z_.T, c.tile_m));
  }

  // y of scan, dx of scan_grad_input.
  template <bool kBackward>
  __device__ __forceinline__ void make_outputs() {
    const Activations& in = kBackward ? p_.y : p_.x;
    float carry[kF];
    take_carry<kBackward>(carry, 0);
    Elements now, next;
    const int count = end_ - first_;
    if (count > 0) load(now, in, step_at<kBackward>(0));
    for (int i = 0; i < count; ++i) {
      const int step = step_at<kBackward>(i);
      if constexpr (c.stages > 1) {
        if (i + 1 < count) load(next, in, step_at<kBackward>(i + 1));
      }
      const Gains<kT> g = gains<kBackward, true>(token(step));
      Map<kF> map = map_of<kBackward>(g, now);
      const Map<kF> before = join_lanes<kBackward>(map);
      hand_on<kBackward>(map, buffer(i));
      __syncthreads();
      float state[kF];
      enter<kBackward>(buffer(i), carry, state);
#pragma unroll
      for (int f = 0; f < kF; ++f) state[f] = fmaf(before.product, state[f], before.state[f]);
      store<kBackward>(g, now, state, token(step));
      if constexpr (c.stages > 1) {
        now = next;
      } else {
        if (i + 1 < count) load(now, in, step_at<kBackward>(i + 1));
      }
    }
  }

  // The state that this part's tokens leave, and the product of their decays, to the workspace.
  template <bool kBackward>
  __device__ __forceinline__ void make_carry() {
    const Activations& in = kBackward ? p_.y : p_.x;
    float carry[kF], product = 1.0f;
#pragma unroll
    for (int f = 0; f < kF; ++f) carry[f] = 0.0f;
    for (int i = 0; i < end_ - first_; ++i) {
      const int step = step_at<kBackward>(i);
      Elements now;
      load(now, in, step);
      Map<kF> map = map_of<kBackward>(gains<kBackward, false>(token(step)), now);
      join_lanes<kBackward>(map);
      hand_on<kBackward>(map, buffer(i));
      __syncthreads();
      float state[kF];
      enter<kBackward>(buffer(i), carry, state);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) product *= buffer(i)[w * kPitch + c.tile_n];
    }
    if (warp_ != 0 || token_lane_ != 0) return;
    float* const to = carries(static_cast<int>(blockIdx.z), part_);
#pragma unroll
    for (int f = 0; f < kF; ++f)
      if (feature_ + f < z_.D) to[z_.H + column() + f] = carry[f];
    if (slab_ == 0 && batch_ == 0 && feature_lane_ == 0) to[head_] = product;
  }

  // The sums of scan_grad_weight over this block's features, to the workspace.
  __device__ __forceinline__ void make_sums() {
    float carry[kF], back[kF];
    float* const states = static_cast<float*>(p_.workspace) + carry_floats(s.op, c, z_) + column();
    take_carry<false>(carry, 0);
    for (int i = 0; i < end_ - first_; ++i) {
      if (warp_ == 0 && token_lane_ == 0) {
#pragma unroll
        for (int f = 0; f < kF; ++f)
          if (feature_ + f < z_.D) states[(first_ + i) * columns(z_) + f] = carry[f];
      }
      if (i + 1 == end_ - first_) break;
      Elements x;
      load(x, p_.x, first_ + i);
      Map<kF> map = map_of<false>(gains<false, false>(token(first_ + i)), x);
      join_lanes<false>(map);
      hand_on<false>(map, buffer(i));
      __syncthreads();
      float state[kF];
      enter<false>(buffer(i), carry, state);
    }
    __syncthreads();
    take_carry<true>(back, 1);
    for (int i = end_ - first_ - 1; i >= 0; --i) {
      Elements x, dy;
      load(x, p_.x, first_ + i);
      load(dy, p_.y, first_ + i);
#pragma unroll
      for (int f = 0; f < kF; ++f) carry[f] = feature_ + f < z_.D ? states[(first_ + i) * columns(z_) + f] : 0.0f;
      const int t0 = token(first_ + i);
      const Gains<kT> g = gains<false, true>(t0);
      Gains<kT> back_gains;
#pragma unroll
      for (int t = 0; t < kT; ++t) back_gains.keep[t] = g.keep[t], back_gains.write[t] = g.keep[t] * g.read[t];
      Map<kF> forward = map_of<false>(g, x), backward = map_of<true>(back_gains, dy);
      const Map<kF> before = join_lanes<false>(forward), behind = join_lanes<true>(backward);
      float* const here = shared_ + (i % 2) * 2 * exchange_floats(c);
      hand_on<false>(forward, here);
      hand_on<true>(backward, here + exchange_floats(c));
      __syncthreads();
      float state[kF], last[kF];
      enter<false>(here, carry, state);
      enter<true>(here + exchange_floats(c), back, last);
      add_up(g, x, dy, before, behind, state, last, t0);
    }
  }

 private:
  __device__ __forceinline__ float* buffer(int i) const { return shared_ + (i % 2) * exchange_floats(c); }
  template <bool kBackward>
  __device__ __forceinline__ int step_at(int i) const {
    return kBackward ? end_ - 1 - i : first_ + i;
  }
  // First of a thread's tokens.
  __device__ __forceinline__ int token(int step) const {
    return step * c.tile_m + (warp_ * kTokenLanes + token_lane_) * kT;
  }
  // Of this thread's first feature in [b][h][d].
  __device__ __forceinline__ long long column() const {
    return (static_cast<long long>(batch_) * z_.H + head_) * z_.D + feature_;
  }
  __device__ __forceinline__ float* carries(int direction, int part) const {
    return static_cast<float*>(p_.workspace) +
           (static_cast<long long>(direction) * c.split_k + part) * state_floats(z_);
  }
  template <class T>
  __device__ __forceinline__ static T* element(T* data, const Activations& a, int b, int h, int t, int d) {
    return data + (b * a.batch + h * a.head + (kBTD ? t * a.row + d : d * a.row + t));
  }
  __device__ __forceinline__ Storage<kD>* at(const Activations& a, int t, int d) const {
    return element(static_cast<Storage<kD>*>(a.data), a, batch_, head_, t, d);
  }
  // Is vector r of this thread's elements from token t0 on inside?
  __device__ __forceinline__ bool has(int t0, int r) const {
    return kBTD ? t0 + r < z_.T && feature_ < z_.D : t0 < z_.T && feature_ + r < z_.D;
  }

  __device__ __forceinline__ void load(Elements& to, const Activations& from, int step) const {
    const int t0 = token(step);
#pragma unroll
    for (int r = 0; r < kRaws; ++r) {
      if (has(t0, r))
        ptx::load_global_nc<kVec * kBytes<kD>>(to.raw[r].w, at(from, kBTD ? t0 + r : t0, kBTD ? feature_ : feature_ + r));
      else
        to.raw[r].clear();
    }
  }

  // Row `row` of W for kT tokens from t0 on; `beyond` the last token.
  __device__ __forceinline__ void load_vector(float (&v)[kT], Vector row, int t0, float beyond) const {
    constexpr DType kW = s.wdtype;
    constexpr int kVecA = schedule::min(c.vec_a, kT);
    const auto* from = static_cast<const Storage<kW>*>(p_.w) + (head_ * p_.w_head + row * p_.w_row + t0);
    if (t0 + kT <= z_.T) {
#pragma unroll
      for (int i = 0; i < kT; i += kVecA) {
        Raw<kW, kVecA> raw;
        ptx::load_global_nc<kVecA * kBytes<kW>>(raw.w, from + i);
#pragma unroll
        for (int j = 0; j < kVecA; ++j) v[i + j] = to_float<kW>(raw.get(j));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kT; ++i) v[i] = t0 + i < z_.T ? to_float<kW>(from[i]) : beyond;
    }
  }

  // `kAll`: also what reads the state; scan_grad_weight has the target alone there.
  template <bool kBackward, bool kAll>
  __device__ __forceinline__ Gains<kT> gains(int t0) const {
    Gains<kT> g;
    load_vector(g.write, kBackward ? kTarget : kSource, t0, 0.0f);
    load_vector(g.keep, kDecay, t0, 1.0f);
    if constexpr (kAll) {
      load_vector(g.read, kBackward ? kSource : kTarget, t0, 0.0f);
      if constexpr (!makes_vectors(s.op)) load_vector(g.diagonal, kDiagonal, t0, 0.0f);
    }
#pragma unroll
    for (int t = 0; t < kT; ++t) {
      if constexpr (kBackward) g.write[t] *= g.keep[t];
      if constexpr (!kBackward && kAll && !makes_vectors(s.op)) g.read[t] *= g.keep[t];
    }
    return g;
  }

  template <bool kBackward>
  __device__ __forceinline__ static Map<kF> map_of(const Gains<kT>& g, const Elements& x) {
    Map<kF> map;
    map.product = 1.0f;
#pragma unroll
    for (int f = 0; f < kF; ++f) map.state[f] = 0.0f;
#pragma unroll
    for (int i = 0; i < kT; ++i) {
      const int t = kBackward ? kT - 1 - i : i;
      map.product *= g.keep[t];
#pragma unroll
      for (int f = 0; f < kF; ++f) map.state[f] = fmaf(g.keep[t], map.state[f], g.write[t] * x.get(t, f));
    }
    return map;
  }

  template <bool kBackward>
  __device__ __forceinline__ static float from_lane_before(float v, int lanes) {
    return kBackward ? __shfl_down_sync(0xffffffffu, v, lanes) : __shfl_up_sync(0xffffffffu, v, lanes);
  }

  // `map` becomes that of all lanes up to this one in the direction of time; returns that of those before it.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> join_lanes(Map<kF>& map) const {
    const int order = kBackward ? kTokenLanes - 1 - token_lane_ : token_lane_;
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
    Map<kF> before;
    before.product = from_lane_before<kBackward>(map.product, kFeatureLanes % 32);
    if (order == 0) before.product = 1.0f;
#pragma unroll
    for (int f = 0; f < kF; ++f) {
      before.state[f] = from_lane_before<kBackward>(map.state[f], kFeatureLanes % 32);
      if (order == 0) before.state[f] = 0.0f;
    }
    return before;
  }

  // The whole warp's map, by its last lane in time.
  template <bool kBackward>
  __device__ __forceinline__ void hand_on(const Map<kF>& map, float* to) const {
    if (token_lane_ != (kBackward ? 0 : kTokenLanes - 1)) return;
    float* const row = to + warp_ * kPitch;
#pragma unroll
    for (int f = 0; f < kF; ++f) row[feature_lane_ * kF + f] = map.state[f];
    if (feature_lane_ == 0) row[c.tile_n] = map.product;
  }

  // The state before this warp's tokens; `carry`, before the step's, becomes that behind them.
  template <bool kBackward>
  __device__ __forceinline__ void enter(const float* from, float (&carry)[kF], float (&state)[kF]) const {
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const int w = kBackward ? kWarps - 1 - i : i;
      const float* const row = from + w * kPitch;
      const float product = row[c.tile_n];
      float v[kF];
      read_floats(v, row + feature_lane_ * kF);
#pragma unroll
      for (int f = 0; f < kF; ++f) {
        if (w == warp_) state[f] = carry[f];
        carry[f] = fmaf(product, carry[f], v[f]);
      }
    }
  }

  // The state before this part: of the parts before it in time, in their order.
  template <bool kBackward>
  __device__ __forceinline__ void take_carry(float (&carry)[kF], int direction) const {
#pragma unroll
    for (int f = 0; f < kF; ++f) carry[f] = 0.0f;
    if constexpr (c.split_k > 1) {
      for (int i = 0; i < (kBackward ? c.split_k - 1 - part_ : part_); ++i) {
        const float* const from = carries(direction, kBackward ? c.split_k - 1 - i : i);
        const float product = from[head_];
#pragma unroll
        for (int f = 0; f < kF; ++f)
          if (feature_ + f < z_.D) carry[f] = fmaf(product, carry[f], from[z_.H + column() + f]);
      }
    }
  }

  template <bool kBackward>
  __device__ __forceinline__ void store(const Gains<kT>& g, const Elements& x, float (&state)[kF], int t0) const {
    float v[kRaws][kVec];
#pragma unroll
    for (int i = 0; i < kT; ++i) {
      const int t = kBackward ? kT - 1 - i : i;
#pragma unroll
      for (int f = 0; f < kF; ++f) {
        const float value = x.get(t, f);
        v[kBTD ? t : f][kBTD ? f : t] = fmaf(g.read[t], state[f], g.diagonal[t] * value);
        state[f] = fmaf(g.keep[t], state[f], g.write[t] * value);
      }
    }
#pragma unroll
    for (int r = 0; r < kRaws; ++r) {
      if (!has(t0, r)) continue;
      const int t = kBTD ? t0 + r : t0, d = kBTD ? feature_ : feature_ + r;
      const auto* const bias = static_cast<const Storage<s.wdtype>*>(p_.bias) + (static_cast<long long>(head_) * z_.T + t);
      store_outputs<C>(
          p_, [&](const Activations& a) { return at(a, t, d); },
          [&](int i) { return to_float<s.wdtype>(bias[kBTD ? 0 : i]); }, v[r]);
    }
  }

  // Adds v[i] over the lanes along the features: lane f keeps the sums [f N / lanes, (f + 1) N / lanes), in front.
  template <int kLanes, int N>
  __device__ __forceinline__ void add_lanes(float (&v)[N]) const {
    int count = N;
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
      count /= 2;
      const bool upper = feature_lane_ & lanes;
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        if (i >= count) break;
        const float other = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + count], lanes);
        v[i] = (upper ? v[i + count] : v[i]) + other;
      }
    }
  }

  __device__ __forceinline__ void add_up(const Gains<kT>& g, const Elements& x, const Elements& dy,
                                         const Map<kF>& before, const Map<kF>& behind, float (&state)[kF],
                                         float (&last)[kF], int t0) const {
    constexpr int kSums = sums(s), kAll = schedule::ceil_div(kSums * kT, kFeatureLanes) * kFeatureLanes;
    float sum[kAll], states[kT][kF];
#pragma unroll
    for (int i = 0; i < kAll; ++i) sum[i] = 0.0f;
#pragma unroll
    for (int f = 0; f < kF; ++f) {
      state[f] = fmaf(before.product, state[f], before.state[f]);
      last[f] = fmaf(behind.product, last[f], behind.state[f]);
    }
#pragma unroll
    for (int t = 0; t < kT; ++t)
#pragma unroll
      for (int f = 0; f < kF; ++f) {
        const float value = x.get(t, f), outer = dy.get(t, f);
        states[t][f] = state[f];
        sum[kTarget * kT + t] = fmaf(outer, state[f], sum[kTarget * kT + t]);
        sum[kDiagonal * kT + t] = fmaf(outer, value, sum[kDiagonal * kT + t]);
        if constexpr (s.bias) sum[kVectors * kT + t] += outer;
        state[f] = fmaf(g.keep[t], state[f], g.write[t] * value);
      }
#pragma unroll
    for (int i = 0; i < kT; ++i) {
      const int t = kT - 1 - i;
#pragma unroll
      for (int f = 0; f < kF; ++f) {
        const float value = x.get(t, f), outer = dy.get(t, f);
        sum[kSource * kT + t] = fmaf(value, last[f], sum[kSource * kT + t]);
        const float here = fmaf(g.read[t], outer, last[f]);
        sum[kDecay * kT + t] = fmaf(here, states[t][f], sum[kDecay * kT + t]);
        last[f] = g.keep[t] * here;
      }
      sum[kTarget * kT + t] *= g.keep[t];
    }
    add_lanes<kFeatureLanes>(sum);
    const long long block = (static_cast<long long>(head_) * z_.B + batch_) * slabs(c, z_.D) + slab_;
    float* const to =
        static_cast<float*>(p_.workspace) + carry_floats(s.op, c, z_) + step_floats(c, z_) + block * kSums * z_.T;
#pragma unroll
    for (int i = 0; i < kAll / kFeatureLanes; ++i) {
      const int n = feature_lane_ * (kAll / kFeatureLanes) + i, t = t0 + n % kT;
      if (n < kSums * kT && t < z_.T) to[static_cast<long long>(n / kT) * z_.T + t] = sum[i];
    }
  }

  const Params& p_;
  const Sizes z_;
  float* const shared_;
  const int warp_;
  int feature_lane_, token_lane_, slab_, head_, batch_, feature_, part_, first_, end_;
};

__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
#endif
}

// Grid {slabs of every head of every batch, parts}.
template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(16) float scan_shared[];
  begin();
  Block<C> block(p, scan_shared);
  if constexpr (makes_vectors(C.shape.op))
    block.make_sums();
  else
    block.template make_outputs<C.shape.op == Op::kScanGradInput>();
}

// The first launch of split_k > 1. Grid {slabs of every head of every batch, parts, directions}.
template <Kernel C>
__device__ __forceinline__ void carry(const Params& p) {
  extern __shared__ __align__(16) float scan_shared[];
  begin();
  Block<C> block(p, scan_shared);
  if (C.shape.op == Op::kScan || (makes_vectors(C.shape.op) && blockIdx.z == 0))
    block.template make_carry<false>();
  else
    block.template make_carry<true>();
}

// The last launch of scan_grad_weight: adds the blocks' sums of a head. Grid {sums of tokens in groups of 32, H}.
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr Config c = C.config;
  constexpr int kRows = kSumThreads / 32, kSums = sums(s);
  __shared__ float shared[kRows][32];
  begin();
  const Sizes z = sizes_of<C>(p);
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32,
            head = static_cast<int>(blockIdx.y), parts = z.B * slabs(c, z.D);
  const long long count = static_cast<long long>(kSums) * z.T, n = static_cast<long long>(blockIdx.x) * 32 + lane;
  const float* const from =
      static_cast<const float*>(p.workspace) + carry_floats(s.op, c, z) + step_floats(c, z) + head * parts * count;
  float sum = 0.0f;
  if (n < count) {
#pragma unroll 8
    for (int part = row; part < parts; part += kRows) sum += from[part * count + n];
  }
  shared[row][lane] = sum;
  __syncthreads();
  if (row != 0 || n >= count) return;
#pragma unroll
  for (int r = 1; r < kRows; ++r) sum += shared[r][lane];
  const int i = static_cast<int>(n / z.T), t = static_cast<int>(n % z.T);
  constexpr DType kW = s.wdtype;
  if (i < kVectors)
    static_cast<Storage<kW>*>(p.residual.data)[head * p.residual.head + i * p.residual.row + t] = from_float<kW>(sum);
  else
    store_bias<C>(p, z, head, t, sum);
}

}  // namespace trigen::scan
