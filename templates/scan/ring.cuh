// Steps of the inputs on their way through a ring in shared memory, and their tokens' gains.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"
#include "scan/place.cuh"

namespace trigen::scan {

template <Kernel C>
class Ring {
  using G = Geometry<C>;
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr DType kD = s.dtype;
  static constexpr bool kBTD = G::kBTD, kWholeTokens = G::kWholeTokens, kWholeFeatures = G::kWholeFeatures;
  static constexpr int kF = G::kF, kT = G::kT, kThreads = G::kThreads;
  static constexpr int kStage = stage_bytes(s.layout, c, kBytes<kD>);
  static constexpr int kRow = row_bytes(s.layout, c, kBytes<kD>), kGap = chunk_gap(s.layout, c, kBytes<kD>);

 public:
  __device__ __forceinline__ Ring(const Place<C>& at, unsigned char* shared)
      : at_(at),
        ring_(ptx::shared_address(shared)),
        gains_(reinterpret_cast<Gains*>(shared + ring_bytes(s.op, s.layout, c, kBytes<kD>))) {}

  // Calls body(i, step) for the part's steps in the order of time, when the inputs `a` and `b` of step i, and the gains of
  // its tokens, are in shared memory; ready() before all of them, behind the first copies.
  template <bool kBackward, class Ready, class Body>
  __device__ __forceinline__ void walk(const Activations* a, const Activations* b, const Ready& ready,
                                       const Body& body) {
    const int count = at_.steps();
    const auto step_at = [&](int i) { return at_.template step_at<kBackward>(i); };
    const auto load = [&](int i) {
      if (i < count) {
        copy(*a, step_at(i), i % c.stages * inputs(s.op));
        if (b != nullptr) copy(*b, step_at(i), i % c.stages * inputs(s.op) + 1);
      }
      if constexpr (kAsynchronous) ptx::cp_async_commit();
    };
    // Numbers on their way for two steps, as they are: loads take longer than a step does, and what is made of them would
    // wait. A warp has its own tokens', which nobody else reads.
    constexpr int kTokens = c.tile_m / c.warps_m, kEach = ceil_div(kTokens, 32);
    const int lane = static_cast<int>(threadIdx.x) % 32, of_warp = at_.warp * kTokens;
    Gains next[kEach];
    const auto fetch = [&](int i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (const int t = lane + j * 32; i < count && t < kTokens)
          next[j] = numbers_of<kBackward>(step_at(i) * c.tile_m + of_warp + t);
    };
    const auto put_gains = [&](int i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (const int t = lane + j * 32; t < kTokens)
          gains_[gain_place(i, of_warp + t)] =
              gains_of<kBackward>(next[j], step_at(i) * c.tile_m + of_warp + t);
    };
    for (int i = 0; i + 1 < c.stages; ++i) load(i);
    fetch(0);
    put_gains(0);
    fetch(1);
    ready();
    for (int i = 0; i < count; ++i) {
      if constexpr (kAsynchronous) ptx::cp_async_wait<c.stages - 2>();
      __syncthreads();  // step i has landed, and step i - 1 was read
      load(i + c.stages - 1);
      body(i, step_at(i));
      __syncwarp();  // the gains of step i - 1 were read for the last time
      put_gains(i + 1);
      fetch(i + 2);
    }
  }

  // This thread's elements of step i, of input `input`.
  __device__ __forceinline__ void read(Elements<C>& to, int i, int input) const {
    const unsigned first =
        ring_ + (i % c.stages * inputs(s.op) + input) * kStage + offset(at_.chunk(), at_.feature_lane * kF);
#pragma unroll
    for (int r = 0; r < c.tile_k; ++r)
      ptx::load_shared<Raw<kD, c.vec_c>::kSize>(to.raw[r].w, first + r * kRow);
  }
  __device__ __forceinline__ const Gains* gains_at(int i) const {
    return gains_ + gain_place(i, at_.chunk());
  }

 private:
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
    const int first = static_cast<int>(threadIdx.x) / kAcross, t0 = step * c.tile_m, d0 = at_.slab * c.tile_n;
    const bool any = G::kAllSteps || t0 < at_.z.T;
    const bool whole =
        (kWholeTokens ? any : t0 + c.tile_m <= at_.z.T) && (kWholeFeatures || d0 + c.tile_n <= at_.z.D);
    const long long down = static_cast<long long>(from.row) * kDown;
#pragma unroll
    for (int k = 0; k < kPieces / kAcross; ++k) {
      const int inner = (static_cast<int>(threadIdx.x) % kAcross + k * kAcross) * kCopy;
      const auto* source =
          static_cast<const Storage<kD>*>(from.data) +
          (at_.batch * from.batch + at_.head * from.head +
           (kBTD ? (t0 + first) * from.row + d0 + inner : (d0 + first) * from.row + t0 + inner));
      const unsigned place = stage + (kBTD ? offset(first, inner) : offset(inner, first));
#pragma unroll
      for (int j = 0; j < ceil_div(kRows, kDown); ++j, source += down) {
        const int outer = first + j * kDown;
        if (kRows % kDown != 0 && outer >= kRows) break;
        const int token = kBTD ? outer : inner, feature = kBTD ? inner : outer;
        const bool inside = whole || (any && (kWholeTokens || t0 + token < at_.z.T) &&
                                      (kWholeFeatures || d0 + feature < at_.z.D));
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

  // Of token t of step i: 16 bytes behind each chunk keep lanes of different chunks off each other's banks.
  __device__ __forceinline__ static int gain_place(int i, int t) {
    return i % 2 * gains(s.layout, c) + t + t / kT;
  }
  // The vectors of token t: write is the source, read the target.
  template <bool kBackward>
  __device__ __forceinline__ Gains numbers_of(int t) const {
    Gains given = {0.0f, 0.0f, 0.0f, 0.0f};
    if (!(kWholeTokens && G::kAllSteps) && t >= at_.z.T) return given;
    int head = at_.head;
    asm volatile("" : "+r"(head));  // opaque, so that no address is kept in registers from step to step
    const auto number = [&](Vector i) { return number_of<C>(at_.p, i, head, t); };
    given.write = number(kSource);
    given.read = number(kTarget);
    if (t > 0) given.keep = number(kDecay);
    if (uses_diagonal<kBackward>()) given.diagonal = number(kDiagonal);
    return given;
  }
  // Beyond the last token the state stays, and nothing is before the first one. scan_grad_weight takes them as they are,
  // for both directions; the diagonal is for dx.
  template <bool kBackward>
  __device__ __forceinline__ Gains gains_of(Gains given, int t) const {
    const Params& p = at_.p;
    if (!(kWholeTokens && G::kAllSteps) && t >= at_.z.T) return {0.0f, 1.0f, 0.0f, 0.0f};
    if (t > 0) {
      if (given.keep < p.decay_low) given.keep = p.decay_low;  // a NaN stays
      if (given.keep > p.decay_high) given.keep = p.decay_high;
    }
    if (uses_diagonal<kBackward>() && p.vectors[kDiagonal].data == nullptr)
      given.diagonal = given.write * given.read;
    if constexpr (makes_vectors(s.op))
      return given;
    else if constexpr (kBackward)
      return {given.keep * given.read, given.keep, given.write, given.diagonal};
    else
      return {given.write, given.keep, given.read * given.keep, given.diagonal};
  }
  template <bool kBackward>
  __device__ __forceinline__ static constexpr bool uses_diagonal() {
    return !makes_vectors(s.op) || (s.grad_input && kBackward);
  }

  const Place<C> at_;  // a copy: a reference would put it into local memory
  const unsigned ring_;
  Gains* const gains_;
};

}  // namespace trigen::scan
