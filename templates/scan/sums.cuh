// The sums of scan_grad_weight over features, with dx beside them, and the launch that adds those of all blocks.
#pragma once

#include "scan/outputs.cuh"
#include "scan/place.cuh"
#include "scan/ring.cuh"

namespace trigen::scan {

// Adds v[i] over the lanes along the features: lane f keeps the sums [f N / lanes, (f + 1) N / lanes), in front.
template <int kLanes, int N>
__device__ __forceinline__ void add_lanes(float (&v)[N], int lane) {
  int count = N;
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    count /= 2;
    const bool upper = lane & lanes;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if (i >= count) break;
      const float other = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + count], lanes);
      v[i] = (upper ? v[i + count] : v[i]) + other;
    }
  }
}

// Adds up a thread's elements, and those of the lanes beside it, into the workspace, and stores its dx. `state`: before the
// thread's tokens, `last`: behind them; `turn`: the walk's steps before this one.
template <Kernel C, int kF>
__device__ __forceinline__ void add_up(const Place<C>& at, const Gains* g, const Elements<C>& x,
                                       const Elements<C>& dy, const Ring<C>& ring, int turn,
                                       float (&state)[kF], float (&last)[kF], int t0) {
  using G = Geometry<C>;
  constexpr Shape s = C.shape;
  constexpr Config c = C.config;
  constexpr int kT = G::kT, kFeatureLanes = G::kFeatureLanes;
  constexpr int kSums = sums(s), kAll = schedule::ceil_div(kSums * kT, kFeatureLanes) * kFeatureLanes;
  float sum[kAll], states[kT][kF];
#pragma unroll
  for (int i = 0; i < kAll; ++i) sum[i] = 0.0f;
#pragma unroll
  for (int t = 0; t < kT; ++t) {
    const Gains gain = g[t];
#pragma unroll
    for (int f = 0; f < kF; ++f) {
      const float value = x.get(t, f), outer = dy.get(t, f);
      states[t][f] = state[f];
      sum[kTarget * kT + t] = fmaf(outer, state[f], sum[kTarget * kT + t]);
      sum[kDiagonal * kT + t] = fmaf(outer, value, sum[kDiagonal * kT + t]);
      if constexpr (s.bias) sum[kVectors * kT + t] += outer;
      state[f] = fmaf(gain.keep, state[f], gain.write * value);
    }
    sum[kTarget * kT + t] *= gain.keep;
  }
  [[maybe_unused]] float dx[kT][kF];
  // Beside dx they are read again: fewer registers than to keep them, of which there are 128 where 16 warps fill an SM.
  Elements<C> x_again = x, dy_again = dy;
  if constexpr (s.grad_input) ring.read(x_again, turn, 0), ring.read(dy_again, turn, 1);
#pragma unroll
  for (int i = 0; i < kT; ++i) {
    const int t = kT - 1 - i;
    const Gains gain = g[t];
#pragma unroll
    for (int f = 0; f < kF; ++f) {
      const float value = x_again.get(t, f), outer = dy_again.get(t, f);
      sum[kSource * kT + t] = fmaf(value, last[f], sum[kSource * kT + t]);
      if constexpr (s.grad_input) dx[t][f] = fmaf(gain.write, last[f], gain.diagonal * outer);
      const float here = fmaf(gain.read, outer, last[f]);
      sum[kDecay * kT + t] = fmaf(here, states[t][f], sum[kDecay * kT + t]);
      last[f] = gain.keep * here;
    }
  }
  if constexpr (s.grad_input) {
    // Opaque, so that no part of an address is kept in registers from step to step.
    Place<C> here = at;
    asm volatile("" : "+r"(here.batch), "+r"(here.head), "+r"(here.feature));
    store_elements(here, t0, dx);
  }
  add_lanes<kFeatureLanes>(sum, at.feature_lane);
  const long long block = (static_cast<long long>(at.head) * at.z.B + at.batch) * slabs(c, at.z.D) + at.slab;
  float* const to = static_cast<float*>(at.p.workspace) + carry_floats(s.op, c, at.z) + step_floats(c, at.z) +
                    block * kSums * at.z.T;
#pragma unroll
  for (int i = 0; i < kAll / kFeatureLanes; ++i) {
    const int n = at.feature_lane * (kAll / kFeatureLanes) + i, t = t0 + n % kT;
    if (n < kSums * kT && t < at.z.T) to[static_cast<long long>(n / kT) * at.z.T + t] = sum[i];
  }
}

// The last launch of scan_grad_weight: adds the blocks' sums of a head. Grid {sums of tokens in groups of 32, H}.
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr Config c = C.config;
  constexpr int kRows = kSumThreads / 32, kSums = sums(s);
  extern __shared__ __align__(16) unsigned char scan_shared[];  // the sums of kRows rows
  auto* const shared = reinterpret_cast<float*>(scan_shared);
  begin();
  const Sizes z = sizes_of<C>(p);
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32,
            head = static_cast<int>(blockIdx.y), parts = z.B * slabs(c, z.D);
  const long long count = static_cast<long long>(kSums) * z.T,
                  n = static_cast<long long>(blockIdx.x) * 32 + lane;
  const float* const from = static_cast<const float*>(p.workspace) + carry_floats(s.op, c, z) +
                            step_floats(c, z) + head * parts * count;
  const int i = static_cast<int>(n / z.T), t = static_cast<int>(n % z.T);
  const auto add = [&](long long at) {
    float sum = 0.0f;
#pragma unroll 8
    for (int part = row; part < parts; part += kRows) sum += from[part * count + at];
    return sum;
  };
  float sum = 0.0f;
  if (n < count) {
    sum = add(n);
    // Where the diagonal is source * target, its derivative is theirs, too.
    if (i <= kTarget && p.vectors[kDiagonal].data == nullptr)
      sum = fmaf(number_of<C>(p, i == kSource ? kTarget : kSource, head, t),
                 add(static_cast<long long>(kDiagonal) * z.T + t), sum);
  }
  shared[row * 32 + lane] = sum;
  __syncthreads();
  if (row != 0 || n >= count) return;
#pragma unroll
  for (int r = 1; r < kRows; ++r) sum += shared[r * 32 + lane];
  if (i == kDecay) {  // 0 beyond the bounds of clip, whose derivative is that of what is inside at them, too
    const float decay = number_of<C>(p, kDecay, head, t);
    if (decay < p.decay_low || decay > p.decay_high) sum = 0.0f;
  }
  constexpr DType kW = s.wdtype;
  if (i < kVectors)
    static_cast<Storage<kW>*>(p.residual.data)[head * p.residual.head + i * p.residual.row + t] =
        from_float<kW>(sum);
  else
    store_bias<C>(p, z, head, t, sum);
}

}  // namespace trigen::scan
