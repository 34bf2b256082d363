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
// A cluster takes as many steps in a row at a time as it has blocks, so that x is read once however few the columns are.
// Each block sends the map of its step to all of them, and they put the maps together in the order of the tokens. It does so
// ahead of the outputs of its step before.
//
// scan_grad_weight adds up over batches and features, with the forward state h[t] before token t, the backward one g[t]
// behind it:  source x g, target dy decay h, decay (g + target dy) h, diagonal dy x, grad_bias dy. With Shape::grad_input it
// stores dx beside them. These are of W's vectors; reduce (scan/sums.cuh) makes those of what was given: it adds the share of a
// diagonal that is source target to both, and decays that were clipped have none.
#pragma once

#include "scan/outputs.cuh"
#include "scan/place.cuh"
#include "scan/ring.cuh"
#include "scan/states.cuh"
#include "scan/sums.cuh"

namespace trigen::scan {

template <Kernel C>
class Block {
  using G = Geometry<C>;
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr bool kBTD = G::kBTD;
  static constexpr int kF = G::kF, kT = G::kT;
  // A thread that has all tokens of its blocks' steps needs no map of them.
  static constexpr bool kAlone = G::kWarps * G::kTokenLanes * G::kBlocks == 1;

 public:
  __device__ __forceinline__ Block(const Params& p, unsigned char* shared)
      : at_(p),
        ring_(at_, shared),
        states_(at_, reinterpret_cast<float*>(shared + exchange_begin(s.op, s.layout, c, kBytes<s.dtype>))) {}

  // y of scan, dx of scan_grad_input.
  template <bool kBackward>
  __device__ __forceinline__ void make_outputs() {
    Map<kF> carry;
    states_.template take_carry<kBackward>(carry, 0);
    const Activations* const in = kBackward ? &at_.p.y : &at_.p.x;
    if constexpr (G::kBlocks > 1) {
      Elements<C> x;  // read again: fewer registers than to keep them beside the outputs of the step before
      walk_behind_maps<kBackward>(
          in, carry, [&](int i) { ring_.read(x, i, 0); },
          [&](int i, Map<kF>& state) {
            make_outputs_from<kBackward>(state, ring_.gains_at(i), x,
                                         at_.token(at_.template step_at<kBackward>(i)));
          });
    } else {
      ring_.template walk<kBackward>(in, nullptr, ready(), [&](int i, int step) {
        Elements<C> x;
        ring_.read(x, i, 0);
        if constexpr (kAlone)
          make_outputs_from<kBackward>(carry, ring_.gains_at(i), x, at_.token(step));
        else
          make_outputs_and_map<kBackward>(carry, i, x, at_.token(step));
      });
    }
  }

  // The state that this part's tokens leave, and the product of their decays, to the workspace.
  template <bool kBackward>
  __device__ __forceinline__ void make_carry() {
    Map<kF> carry = unchanged<kF>();
    ring_.template walk<kBackward>(kBackward ? &at_.p.y : &at_.p.x, nullptr, ready(),
                                   [&](int i, int) { pass<kBackward>(i, carry); });
    if (at_.warp != 0 || at_.token_lane != 0) return;
    float* const to = states_.carries(static_cast<int>(blockIdx.z), at_.part);
#pragma unroll
    for (int f = 0; f < kF; ++f)
      if (at_.feature + f < at_.z.D) to[at_.z.H + at_.column() + f] = carry.state[f];
    if (at_.slab == 0 && at_.batch == 0 && at_.feature_lane == 0) to[at_.head] = carry.product;
  }

  // The sums of scan_grad_weight over this block's features, to the workspace.
  __device__ __forceinline__ void make_sums() {
    Map<kF> carry, back;
    float* const states = static_cast<float*>(at_.p.workspace) + carry_floats(s.op, c, at_.z) + at_.column();
    states_.template take_carry<false>(carry, 0);
    const auto keep = [&](int step, const Map<kF>& state) {
      if (at_.warp != 0 || at_.token_lane != 0) return;
#pragma unroll
      for (int f = 0; f < kF; ++f)
        if (at_.feature + f < at_.z.D) states[step * columns(at_.z) + f] = state.state[f];
    };
    if constexpr (G::kBlocks > 1)
      walk_behind_maps<false>(
          &at_.p.x, carry, [](int) {},
          [&](int i, const Map<kF>& state) { keep(at_.template step_at<false>(i), state); });
    else
      ring_.template walk<false>(&at_.p.x, nullptr, ready(),
                                 [&](int i, int step) { keep(step, pass<false>(i, carry)); });
    states_.template take_carry<true>(back, 1);
    ring_.template walk<true>(
        &at_.p.x, &at_.p.y, [] {},
        [&](int i, int step) {
#pragma unroll
          for (int f = 0; f < kF; ++f)
            carry.state[f] = at_.feature + f < at_.z.D ? states[step * columns(at_.z) + f] : 0.0f;
          const Gains* const g = ring_.gains_at(i);
          Elements<C> x, dy;
          ring_.read(x, i, 0);
          ring_.read(dy, i, 1);
          Map<kF> forward = map_of<false>(g, x), backward = map_of<true>(g, dy);
          const Map<kF> before = states_.template join_lanes<false>(forward),
                        behind = states_.template join_lanes<true>(backward);
          float *const here = states_.exchange_at(i, 0), *const there = states_.exchange_at(i, 1);
          states_.template hand_on<false>(forward, here);
          states_.template hand_on<true>(backward, there);
          __syncthreads();
          Map<kF> state = states_.template behind_warps<false>(here, before, carry),
                  last = states_.template behind_all<true>(there, behind, at_.steps() + i, back);
          add_up<C>(at_, g, x, dy, ring_, i, state.state, last.state, at_.token(step));
        });
  }

 private:
  // What the first walk waits for.
  __device__ __forceinline__ auto ready() const {
    return [this] { states_.wait_for_blocks(); };
  }

  template <bool kBackward>
  __device__ __forceinline__ static Map<kF> map_of(const Gains* g, const Elements<C>& x) {
    Map<kF> map = unchanged<kF>();
#pragma unroll
    for (int i = 0; i < kT; ++i) {
      const int t = kBackward ? kT - 1 - i : i;
      const Gains gain = g[t];
      const float write = makes_vectors(s.op) && kBackward ? gain.keep * gain.read : gain.write;
      map.product *= gain.keep;
#pragma unroll
      for (int f = 0; f < kF; ++f) map.state[f] = fmaf(gain.keep, map.state[f], write * x.get(t, f));
    }
    return map;
  }

  // Of a cluster: a step's map is sent ahead of what the step before is for, finish(i, state) with the state before the
  // thread's tokens, so that the other blocks' maps come meanwhile. hold(i) takes what finish(i) needs of the ring.
  template <bool kBackward, class Hold, class Finish>
  __device__ __forceinline__ void walk_behind_maps(const Activations* in, Map<kF>& carry, const Hold& hold,
                                                   const Finish& finish) {
    Map<kF> here;  // of the block's tokens before the thread's
    const auto arrive = [&](int i) {
      Map<kF> state = states_.template receive<kBackward>(i, carry);
      pass_on(here, state);
      return state;
    };
    ring_.template walk<kBackward>(in, nullptr, ready(), [&](int i, int) {
      Elements<C> x;
      ring_.read(x, i, 0);
      Map<kF> map = map_of<kBackward>(ring_.gains_at(i), x), state;
      const Map<kF> before = states_.template join_lanes<kBackward>(map);
      float* const through = states_.exchange_at(i);
      states_.template hand_on<kBackward>(map, through);
      if (i > 0) state = arrive(i - 1);
      __syncthreads();
      states_.template send_to_blocks<kBackward>(through, i);
      if (i > 0) finish(i - 1, state);
      here = states_.template behind_warps_before<kBackward>(through, before);
      hold(i);
    });
    Map<kF> state = arrive(at_.steps() - 1);
    finish(at_.steps() - 1, state);
  }

  // Of a block alone: outputs as of the state 0, and what the state before adds to them.
  template <bool kBackward>
  __device__ __forceinline__ void make_outputs_and_map(Map<kF>& carry, int i, const Elements<C>& x, int t0) {
    const Gains* const g = ring_.gains_at(i);
    float out[kT][kF], factor[kT];
    Map<kF> map = unchanged<kF>();
#pragma unroll
    for (int j = 0; j < kT; ++j) {
      const int t = kBackward ? kT - 1 - j : j;
      const Gains gain = g[t];
      factor[t] = gain.read * map.product;
      map.product *= gain.keep;
#pragma unroll
      for (int f = 0; f < kF; ++f) out[t][f] = make_output(gain, x.get(t, f), map.state[f]);
    }
    const Map<kF> before = states_.template join_lanes<kBackward>(map);
    const Map<kF> state = states_.template exchange<kBackward>(map, before, i, carry);
#pragma unroll
    for (int t = 0; t < kT; ++t)
#pragma unroll
      for (int f = 0; f < kF; ++f) out[t][f] = fmaf(factor[t], state.state[f], out[t][f]);
    store_elements(at_, t0, out);
  }

  // Takes `state`, before the thread's tokens, past them. An output of btd is stored as soon as it is made, so that registers
  // need not hold all of them.
  template <bool kBackward>
  __device__ __forceinline__ void make_outputs_from(Map<kF>& state, const Gains* g, const Elements<C>& x,
                                                    int t0) const {
    float out[kT][kF];
    Rows<C> rows(at_, t0, kBTD && kBackward ? kT - 1 : 0, kBackward ? -1 : 1);
#pragma unroll
    for (int j = 0; j < kT; ++j) {
      const int t = kBackward ? kT - 1 - j : j;
      const Gains gain = g[t];
#pragma unroll
      for (int f = 0; f < kF; ++f) out[t][f] = make_output(gain, x.get(t, f), state.state[f]);
      if constexpr (kBTD) store_row(at_, t0, t, rows, out[t]);
    }
    if constexpr (!kBTD) store_elements(at_, t0, out);
  }
  __device__ __forceinline__ static float make_output(const Gains& gain, float in, float& state) {
    const float out = fmaf(gain.read, state, gain.diagonal * in);
    state = fmaf(gain.keep, state, gain.write * in);
    return out;
  }

  // Takes `carry` past step i, whose outputs nobody makes; returns the state before this thread's tokens.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> pass(int i, Map<kF>& carry) const {
    Elements<C> x;
    ring_.read(x, i, 0);
    Map<kF> map = map_of<kBackward>(ring_.gains_at(i), x);
    const Map<kF> before = states_.template join_lanes<kBackward>(map);
    return states_.template exchange<kBackward>(map, before, i, carry);
  }

  const Place<C> at_;
  Ring<C> ring_;
  const States<C> states_;
};

// Grid {blocks of a cluster of slabs of every head of every batch, parts}.
template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(16) unsigned char scan_shared[];
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
  extern __shared__ __align__(16) unsigned char scan_shared[];
  begin();
  Block<C> block(p, scan_shared);
  if (C.shape.op == Op::kScan || (makes_vectors(C.shape.op) && blockIdx.z == 0))
    block.template make_carry<false>();
  else
    block.template make_carry<true>();
}

}  // namespace trigen::scan
