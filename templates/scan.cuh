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
// Each block sends the map of its step to all of them, and they put the maps together in the order of the tokens.
//
// scan_grad_weight adds up over batches and features, with the forward state h[t] before token t, the backward one g[t]
// behind it:  source x g, target dy decay h, decay (g + target dy) h, diagonal dy x, grad_bias dy.
#pragma once

#include "epilogue.cuh"
#include "operand.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "scan.h"

namespace trigen::scan {

struct __align__(16) Gains {
  float write, keep, read, diagonal;
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
  static constexpr int kWarps = c.warps_m, kThreads = threads(c), kVec = c.vec_c, kRaws = c.tile_k;
  static constexpr int kPitch = pitch(c), kBlocks = blocks(c);
  static constexpr int kStage = stage_bytes(s.layout, c, kBytes<kD>);
  static constexpr int kRow = row_bytes(s.layout, c, kBytes<kD>), kGap = chunk_gap(s.layout, c, kBytes<kD>);
  // All steps are of tokens that there are, all blocks of such features.
  static constexpr bool kWholeTokens = !kGeneric<C> && s.T % (c.tile_m * kBlocks) == 0;
  static constexpr bool kWholeFeatures = !kGeneric<C> && s.D % c.tile_n == 0;
  // A thread that has all tokens of its blocks' steps needs no map of them.
  static constexpr bool kAlone = kWarps * kTokenLanes * kBlocks == 1;
  static_assert(c.tile_m == step_tokens(s.layout, c), "a step has one chunk of every thread");
  static_assert(32 % kFeatureLanes == 0 && kFeatureLanes * kF == c.tile_n, "lanes lie along whole features");
  static_assert((kBTD ? c.tile_n : c.tile_m) % c.vec_b == 0, "rows of a step are whole copies");

  // A thread's elements of a step.
  struct Elements {
    Raw<kD, kVec> raw[kRaws];
    __device__ __forceinline__ float get(int t, int f) const {
      return to_float<kD>(kBTD ? raw[t].get(f) : raw[f].get(t));
    }
  };

  __device__ __forceinline__ Block(const Params& p, unsigned char* shared)
      : p_(p),
        z_(sizes_of<C>(p)),
        ring_(ptx::shared_address(shared)),
        warp_(static_cast<int>(threadIdx.x) / 32) {
    constexpr int kRing = ring_bytes(s.op, s.layout, c, kBytes<kD>);
    gains_ = reinterpret_cast<Gains*>(shared + kRing);
    exchange_ = reinterpret_cast<float*>(shared + kRing + 2 * 16 * gains(s.layout, c));
    met_ = exchange_ + 2 * inputs(s.op) * exchange_floats(c);
    const int lane = static_cast<int>(threadIdx.x) % 32, each = slabs(c, z_.D),
              place = static_cast<int>(blockIdx.x) / kBlocks;
    feature_lane_ = lane % kFeatureLanes;
    token_lane_ = lane / kFeatureLanes;
    slab_ = place % each;
    head_ = place / each % z_.H;
    batch_ = place / each / z_.H;
    feature_ = slab_ * c.tile_n + feature_lane_ * kF;
    part_ = static_cast<int>(blockIdx.y);
    rank_ = kBlocks > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
    first_ = part_ * part_steps(c, z_.T);
    // All blocks of a cluster have as many steps, the last of which may have no tokens.
    end_ = kBlocks > 1 ? schedule::ceil_div(schedule::ceil_div(z_.T, c.tile_m), kBlocks) * kBlocks
                       : schedule::min(first_ + part_steps(c, z_.T), schedule::ceil_div(z_.T, c.tile_m));
    if constexpr (kBlocks > 1) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) ptx::mbarrier_init(met_barrier(i), 1);
        ptx::mbarrier_fence_init();
      }
      __syncwarp();
      ptx::cluster_arrive_relaxed();
    }
  }

  // y of scan, dx of scan_grad_input.
  template <bool kBackward>
  __device__ __forceinline__ void make_outputs() {
    Map<kF> carry;
    take_carry<kBackward>(carry, 0);
    walk<kBackward>(kBackward ? &p_.y : &p_.x, nullptr, [&](int i, int step) {
      Elements x;
      read(x, i, 0);
      // Outputs as of the state 0, or the carry of a thread that has it, and what a state before adds to them.
      const Gains* const g = gains_at(i);
      float out[kT][kF], factor[kT];
      Map<kF> map;
      map.product = 1.0f;
#pragma unroll
      for (int f = 0; f < kF; ++f) map.state[f] = kAlone ? carry.state[f] : 0.0f;
#pragma unroll
      for (int j = 0; j < kT; ++j) {
        const int t = kBackward ? kT - 1 - j : j;
        const Gains gain = g[t];
        factor[t] = gain.read * map.product;
        map.product *= gain.keep;
#pragma unroll
        for (int f = 0; f < kF; ++f) {
          const float in = x.get(t, f);
          out[t][f] = fmaf(gain.read, map.state[f], gain.diagonal * in);
          map.state[f] = fmaf(gain.keep, map.state[f], gain.write * in);
        }
      }
      if constexpr (kAlone) {
#pragma unroll
        for (int f = 0; f < kF; ++f) carry.state[f] = map.state[f];
      } else {
        const Map<kF> before = join_lanes<kBackward>(map);
        const Map<kF> state = exchange<kBackward>(map, before, i, carry);
#pragma unroll
        for (int t = 0; t < kT; ++t)
#pragma unroll
          for (int f = 0; f < kF; ++f) out[t][f] = fmaf(factor[t], state.state[f], out[t][f]);
      }
      store(out, token(step));
    });
  }

  // The state that this part's tokens leave, and the product of their decays, to the workspace.
  template <bool kBackward>
  __device__ __forceinline__ void make_carry() {
    Map<kF> carry = unchanged();
    walk<kBackward>(kBackward ? &p_.y : &p_.x, nullptr, [&](int i, int) { pass<kBackward>(i, carry); });
    if (warp_ != 0 || token_lane_ != 0) return;
    float* const to = carries(static_cast<int>(blockIdx.z), part_);
#pragma unroll
    for (int f = 0; f < kF; ++f)
      if (feature_ + f < z_.D) to[z_.H + column() + f] = carry.state[f];
    if (slab_ == 0 && batch_ == 0 && feature_lane_ == 0) to[head_] = carry.product;
  }

  // The sums of scan_grad_weight over this block's features, to the workspace.
  __device__ __forceinline__ void make_sums() {
    Map<kF> carry, back;
    float* const states = static_cast<float*>(p_.workspace) + carry_floats(s.op, c, z_) + column();
    take_carry<false>(carry, 0);
    walk<false>(&p_.x, nullptr, [&](int i, int step) {
      const Map<kF> state = pass<false>(i, carry);
      if (warp_ == 0 && token_lane_ == 0) {
#pragma unroll
        for (int f = 0; f < kF; ++f)
          if (feature_ + f < z_.D) states[step * columns(z_) + f] = state.state[f];
      }
    });
    take_carry<true>(back, 1);
    walk<true>(&p_.x, &p_.y, [&](int i, int step) {
#pragma unroll
      for (int f = 0; f < kF; ++f)
        carry.state[f] = feature_ + f < z_.D ? states[step * columns(z_) + f] : 0.0f;
      const Gains* const g = gains_at(i);
      Elements x, dy;
      read(x, i, 0);
      read(dy, i, 1);
      Map<kF> forward = map_of<false>(g, x), backward = map_of<true>(g, dy);
      const Map<kF> before = join_lanes<false>(forward), behind = join_lanes<true>(backward);
      float* const here = exchange_ + (i % 2) * 2 * exchange_floats(c);
      hand_on<false>(forward, here);
      hand_on<true>(backward, here + exchange_floats(c));
      __syncthreads();
      Map<kF> state = behind_warps<false>(here, before, carry),
              last = behind_all<true>(here + exchange_floats(c), behind, i, back);
      add_up(g, x, dy, state.state, last.state, token(step));
    });
  }

 private:
  // Calls body(i, step) for the part's steps in the order of time, when the inputs `a` and `b` of step i, and the gains of
  // its tokens, are in shared memory.
  template <bool kBackward, class Body>
  __device__ __forceinline__ void walk(const Activations* a, const Activations* b, const Body& body) {
    const int count = (end_ - first_) / kBlocks;
    const auto step_at = [&](int i) {
      return (kBackward ? end_ - (i + 1) * kBlocks : first_ + i * kBlocks) + rank_;
    };
    const auto load = [&](int i) {
      if (i < count) {
        copy(*a, step_at(i), i % c.stages * inputs(s.op));
        if (b != nullptr) copy(*b, step_at(i), i % c.stages * inputs(s.op) + 1);
      }
      if constexpr (kAsynchronous) ptx::cp_async_commit();
    };
    // Gains on their way for two steps: loads take longer than a step does.
    constexpr int kEach = ceil_div(c.tile_m, kThreads);
    Gains next[kEach];
    const auto fetch = [&](int i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (const int t = static_cast<int>(threadIdx.x) + j * kThreads; i < count && t < c.tile_m)
          next[j] = gains_of<kBackward>(step_at(i) * c.tile_m + t);
    };
    const auto put_gains = [&](int i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (const int t = static_cast<int>(threadIdx.x) + j * kThreads; t < c.tile_m)
          gains_[gain_place(i, t)] = next[j];
    };
    for (int i = 0; i + 1 < c.stages; ++i) load(i);
    fetch(0);
    put_gains(0);
    fetch(1);
    if (kBlocks > 1 && b == nullptr) ptx::cluster_wait();  // all blocks have begun, with barriers
    for (int i = 0; i < count; ++i) {
      if constexpr (kAsynchronous) ptx::cp_async_wait<c.stages - 2>();
      __syncthreads();  // step i has landed, and step i - 1 was read
      load(i + c.stages - 1);
      put_gains(i + 1);
      fetch(i + 2);
      body(i, step_at(i));
    }
    done_ += count;
  }

#if __CUDA_ARCH__ >= 800
  static constexpr bool kAsynchronous = c.vec_b * kBytes<kD> >= 4;
#else
  static constexpr bool kAsynchronous = false;
#endif

  // Of element (token, feature) of a step, from the stage's beginning.
  __device__ __forceinline__ static int offset(int token, int feature) {
    return kBTD ? token * kRow + token / kT * kGap + feature * kBytes<kD>
                : feature * kRow + token * kBytes<kD>;
  }

  // A step of `from` into place `at` of the ring, zeros beyond the last token and feature.
  __device__ __forceinline__ void copy(const Activations& from, int step, int at) const {
    constexpr int kCopy = c.vec_b, kBytesOfCopy = kCopy * kBytes<kD>;
    constexpr int kPieces = (kBTD ? c.tile_n : c.tile_m) / kCopy, kRows = kBTD ? c.tile_m : c.tile_n;
    // Copies of a row go to neighbouring threads, and a thread's own lie kDown rows below each other.
    constexpr int kAcross = schedule::min(kPieces, kThreads), kDown = kThreads / kAcross;
    static_assert(kPieces % kAcross == 0 && kThreads % kAcross == 0,
                  "threads are whole rows of copies, or rows of threads");
    // In shared memory, too, they are equally far apart, unless a gap is between some of them.
    constexpr bool kEven = kGap == 0 || kDown % kT == 0;
    constexpr int kFar = kDown * kRow + kDown / kT * kGap;
    const unsigned stage = ring_ + at * kStage;
    const int first = static_cast<int>(threadIdx.x) / kAcross, t0 = step * c.tile_m, d0 = slab_ * c.tile_n;
    const bool whole = (kWholeTokens || t0 + c.tile_m <= z_.T) && (kWholeFeatures || d0 + c.tile_n <= z_.D);
    const long long down = static_cast<long long>(from.row) * kDown;
#pragma unroll
    for (int k = 0; k < kPieces / kAcross; ++k) {
      const int inner = (static_cast<int>(threadIdx.x) % kAcross + k * kAcross) * kCopy;
      const auto* source =
          static_cast<const Storage<kD>*>(from.data) +
          (batch_ * from.batch + head_ * from.head +
           (kBTD ? (t0 + first) * from.row + d0 + inner : (d0 + first) * from.row + t0 + inner));
      const unsigned place = stage + (kBTD ? offset(first, inner) : offset(inner, first));
#pragma unroll
      for (int j = 0; j < ceil_div(kRows, kDown); ++j, source += down) {
        const int outer = first + j * kDown;
        if (kRows % kDown != 0 && outer >= kRows) break;
        const int token = kBTD ? outer : inner, feature = kBTD ? inner : outer;
        const bool inside = whole || (t0 + token < z_.T && d0 + feature < z_.D);
        const unsigned to = kEven ? place + j * kFar : stage + offset(token, feature);
        if constexpr (kAsynchronous) {
          ptx::cp_async<kBytesOfCopy>(to, inside ? source : from.data, inside ? kBytesOfCopy : 0);
        } else {
          Raw<kD, kCopy> raw;
          raw.clear();
          if (inside) ptx::load_global_nc<kBytesOfCopy>(raw.w, source);
          ptx::store_shared<kBytesOfCopy>(to, raw.w);
        }
      }
    }
  }

  // This thread's elements of step i, of input `input`.
  __device__ __forceinline__ void read(Elements& to, int i, int input) const {
    const unsigned first = ring_ + (i % c.stages * inputs(s.op) + input) * kStage +
                           offset((warp_ * kTokenLanes + token_lane_) * kT, feature_lane_ * kF);
#pragma unroll
    for (int r = 0; r < kRaws; ++r) ptx::load_shared<Raw<kD, kVec>::kSize>(to.raw[r].w, first + r * kRow);
  }
  // Of token t of step i: 16 bytes behind each chunk keep lanes of different chunks off each other's banks.
  __device__ __forceinline__ static int gain_place(int i, int t) {
    return i % 2 * gains(s.layout, c) + t + t / kT;
  }
  __device__ __forceinline__ const Gains* gains_at(int i) const {
    return gains_ + gain_place(i, (warp_ * kTokenLanes + token_lane_) * kT);
  }
  __device__ __forceinline__ float* exchange_at(int i) const {
    return exchange_ + i % 2 * exchange_floats(c);
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
  // Of row r of a thread's elements, whose first token is t0.
  __device__ __forceinline__ Storage<kD>* at(const Activations& a, int t0, int r) const {
    return static_cast<Storage<kD>*>(a.data) +
           (batch_ * a.batch + head_ * a.head + (kBTD ? t0 * a.row + feature_ : feature_ * a.row + t0)) +
           r * a.row;
  }
  // Beyond the last token the state stays, and nothing is before the first one. scan_grad_weight takes them as they are, for both directions: write is
  // the source, read the target.
  template <bool kBackward>
  __device__ __forceinline__ Gains gains_of(int t) const {
    constexpr DType kW = s.wdtype;
    if (!kWholeTokens && t >= z_.T) return {0.0f, 1.0f, 0.0f, 0.0f};
    const auto* const w = static_cast<const Storage<kW>*>(p_.w) + (head_ * p_.w_head + t);
    const auto row = [&](Vector i) { return to_float<kW>(w[i * p_.w_row]); };
    const float source = row(kSource), target = row(kTarget), decay = t > 0 ? row(kDecay) : 0.0f;
    if constexpr (makes_vectors(s.op))
      return {source, decay, target, 0.0f};
    else if constexpr (kBackward)
      return {decay * target, decay, source, row(kDiagonal)};
    else
      return {source, decay, target * decay, row(kDiagonal)};
  }

  __device__ __forceinline__ static Map<kF> unchanged() {
    Map<kF> map;
    map.product = 1.0f;
#pragma unroll
    for (int f = 0; f < kF; ++f) map.state[f] = 0.0f;
    return map;
  }
  // `map`, and `next` behind it.
  __device__ __forceinline__ static void pass_on(const Map<kF>& next, Map<kF>& map) {
#pragma unroll
    for (int f = 0; f < kF; ++f) map.state[f] = fmaf(next.product, map.state[f], next.state[f]);
    map.product *= next.product;
  }

  template <bool kBackward>
  __device__ __forceinline__ static Map<kF> map_of(const Gains* g, const Elements& x) {
    Map<kF> map = unchanged();
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

  template <bool kBackward>
  __device__ __forceinline__ static float from_lane_before(float v, int lanes) {
    return kBackward ? __shfl_down_sync(0xffffffffu, v, lanes) : __shfl_up_sync(0xffffffffu, v, lanes);
  }

  // `map` becomes that of all lanes up to this one in the direction of time; returns that of those before it.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> join_lanes(Map<kF>& map) const {
    Map<kF> before = unchanged();
    if constexpr (kTokenLanes > 1) {
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
    if (token_lane_ != (kBackward ? 0 : kTokenLanes - 1)) return;
    float* const row = to + warp_ * kPitch;
#pragma unroll
    for (int f = 0; f < kF; ++f) row[feature_lane_ * kF + f] = map.state[f];
    if (feature_lane_ == 0) row[c.tile_n] = map.product;
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
    read_floats(map.state, row + feature_lane_ * kF);
    return map;
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
    return kBlocks > 1 ? behind_blocks<kBackward>(through, before, done_ + i, carry)
                       : behind_warps<kBackward>(through, before, carry);
  }
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> behind_warps(const float* through, const Map<kF>& before,
                                                  Map<kF>& carry) const {
    Map<kF> state = enter<kBackward, kWarps>(through, warp_, carry);
    if constexpr (kTokenLanes > 1) pass_on(before, state);
    return state;
  }
  // Where a cluster's blocks have a step each, along the tokens by their ranks. Maps, and the mbarrier that counts them, have
  // two places. Whoever sends those of step i + 2 has all of step i + 1, and who sent these had read step i. No block
  // ends before all has come that is sent to it.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> behind_blocks(const float* through, const Map<kF>& before, int step,
                                                   Map<kF>& carry) const {
    const float* const met = met_ + step % 2 * kBlocks * kPitch;
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect(met_barrier(step), kBlocks * 4 * (c.tile_n + 1));
    if (warp_ < kBlocks) {
      Map<kF> all = unchanged();
      enter<kBackward, kWarps>(through, -1, all);
      if (token_lane_ == 0) {
#pragma unroll
        for (int i = 0; i < ceil_div(kBlocks, kWarps); ++i)
          if (const int to = warp_ + i * kWarps; to < kBlocks) send(all, met, step, to);
      }
    }
    Map<kF> here = unchanged();
#pragma unroll 1
    for (int i = 0; i < (kBackward ? kWarps - 1 - warp_ : warp_); ++i)
      pass_on(handed(through, kBackward ? kWarps - 1 - i : i), here);
    if constexpr (kTokenLanes > 1) pass_on(before, here);
    ptx::mbarrier_wait(met_barrier(step), step / 2 % 2);
    Map<kF> state = enter<kBackward, kBlocks>(met, rank_, carry);
    pass_on(here, state);
    return state;
  }
  // The map of this block's step, into its row in block `to`.
  __device__ __forceinline__ void send(const Map<kF>& map, const float* met, int step, int to) const {
    const unsigned barrier = ptx::cluster_address(met_barrier(step), to),
                   row = ptx::cluster_address(ptx::shared_address(met + rank_ * kPitch), to),
                   states = row + 4 * kF * feature_lane_;
    if constexpr (kF % 4 == 0) {
#pragma unroll
      for (int f = 0; f < kF; f += 4)
        ptx::store_cluster_async(states + 4 * f, barrier, map.state[f], map.state[f + 1], map.state[f + 2],
                                 map.state[f + 3]);
    } else {
#pragma unroll
      for (int f = 0; f < kF; ++f) ptx::store_cluster_async(states + 4 * f, barrier, map.state[f]);
    }
    if (feature_lane_ == 0) ptx::store_cluster_async(row + 4 * c.tile_n, barrier, map.product);
  }
  __device__ __forceinline__ unsigned met_barrier(int i) const {
    return ptx::shared_address(met_ + 2 * kBlocks * kPitch) + 8 * (i % 2);
  }

  // Takes `carry` past step i, whose outputs nobody makes; returns the state before this thread's tokens.
  template <bool kBackward>
  __device__ __forceinline__ Map<kF> pass(int i, Map<kF>& carry) const {
    Elements x;
    read(x, i, 0);
    Map<kF> map = map_of<kBackward>(gains_at(i), x);
    const Map<kF> before = join_lanes<kBackward>(map);
    return exchange<kBackward>(map, before, i, carry);
  }

  // The state before this part: of the parts before it in time, in their order.
  template <bool kBackward>
  __device__ __forceinline__ void take_carry(Map<kF>& carry, int direction) const {
    carry = unchanged();
    if constexpr (c.split_k > 1) {
      for (int i = 0; i < (kBackward ? c.split_k - 1 - part_ : part_); ++i) {
        const float* const from = carries(direction, kBackward ? c.split_k - 1 - i : i);
        const float product = from[head_];
#pragma unroll
        for (int f = 0; f < kF; ++f)
          if (feature_ + f < z_.D) carry.state[f] = fmaf(product, carry.state[f], from[z_.H + column() + f]);
      }
    }
  }

  __device__ __forceinline__ void store(float (&out)[kT][kF], int t0) const {
    if constexpr (kBTD) {
      if (!kWholeFeatures && feature_ >= z_.D) return;
      const bool whole = kWholeTokens || t0 + kT <= z_.T;
#pragma unroll
      for (int t = 0; t < kT; ++t)
        if (whole || t0 + t < z_.T) put(t0, t, out[t]);
    } else {
      if (!kWholeTokens && t0 >= z_.T) return;
#pragma unroll
      for (int f = 0; f < kF; ++f) {
        float v[kT];
#pragma unroll
        for (int t = 0; t < kT; ++t) v[t] = out[t][f];
        if (kWholeFeatures || feature_ + f < z_.D) put(t0, f, v);
      }
    }
  }
  __device__ __forceinline__ void put(int t0, int r, float (&v)[kVec]) const {
    const auto* const bias =
        static_cast<const Storage<s.wdtype>*>(p_.bias) + (static_cast<long long>(head_) * z_.T + t0);
    store_outputs<C>(
        p_, [&](const Activations& a) { return at(a, t0, r); },
        [&](int i) { return to_float<s.wdtype>(bias[kBTD ? r : i]); }, v);
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

  __device__ __forceinline__ void add_up(const Gains* g, const Elements& x, const Elements& dy,
                                         float (&state)[kF], float (&last)[kF], int t0) const {
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
#pragma unroll
    for (int i = 0; i < kT; ++i) {
      const int t = kT - 1 - i;
      const Gains gain = g[t];
#pragma unroll
      for (int f = 0; f < kF; ++f) {
        const float value = x.get(t, f), outer = dy.get(t, f);
        sum[kSource * kT + t] = fmaf(value, last[f], sum[kSource * kT + t]);
        const float here = fmaf(gain.read, outer, last[f]);
        sum[kDecay * kT + t] = fmaf(here, states[t][f], sum[kDecay * kT + t]);
        last[f] = gain.keep * here;
      }
    }
    add_lanes<kFeatureLanes>(sum);
    const long long block = (static_cast<long long>(head_) * z_.B + batch_) * slabs(c, z_.D) + slab_;
    float* const to = static_cast<float*>(p_.workspace) + carry_floats(s.op, c, z_) + step_floats(c, z_) +
                      block * kSums * z_.T;
#pragma unroll
    for (int i = 0; i < kAll / kFeatureLanes; ++i) {
      const int n = feature_lane_ * (kAll / kFeatureLanes) + i, t = t0 + n % kT;
      if (n < kSums * kT && t < z_.T) to[static_cast<long long>(n / kT) * z_.T + t] = sum[i];
    }
  }

  const Params& p_;
  const Sizes z_;
  const unsigned ring_;
  const int warp_;
  Gains* gains_;
  float *exchange_, *met_;
  int feature_lane_, token_lane_, slab_, head_, batch_, feature_, part_, rank_, first_, end_;
  int done_ = 0;  // steps of walks before
};

__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
#endif
}

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
  float sum = 0.0f;
  if (n < count) {
#pragma unroll 8
    for (int part = row; part < parts; part += kRows) sum += from[part * count + n];
  }
  shared[row * 32 + lane] = sum;
  __syncthreads();
  if (row != 0 || n >= count) return;
#pragma unroll
  for (int r = 1; r < kRows; ++r) sum += shared[r * 32 + lane];
  const int i = static_cast<int>(n / z.T), t = static_cast<int>(n % z.T);
  constexpr DType kW = s.wdtype;
  if (i < kVectors)
    static_cast<Storage<kW>*>(p.residual.data)[head * p.residual.head + i * p.residual.row + t] =
        from_float<kW>(sum);
  else
    store_bias<C>(p, z, head, t, sum);
}

}  // namespace trigen::scan
