// Output of a multiplying warpgroup, 64 tokens by 64 features at a time: from registers through shared memory, where a
// row begins as far inside a word as it does in memory, so that a warp writes words of a row behind each other.
#pragma once

#include "activation.cuh"
#include "ptx/cluster.cuh"
#include "wgmma_rows_sm90/rows.cuh"

namespace trigen::wgmma_rows_sm90 {

template <Kernel C>
struct RowOutput {
  using G = Geometry<C>;
  static constexpr Shape s = C.shape;
  static constexpr DType kType = s.dtype;
  unsigned base, barrier;  // shared address of the staged rows; the warpgroup's named barrier
  unsigned warp, lane;
  int feature;  // the thread's first one of the panel

  __device__ __forceinline__ RowOutput(const Ring<G>& ring, unsigned group, unsigned warp, unsigned lane)
      : base(ring.base + G::kStages * G::kStageBytes + group * kRowsBytes),
        barrier(1 + group),
        warp(warp),
        lane(lane),
        feature(static_cast<int>(16 * warp + lane / 4 * 2)) {
    if constexpr (!G::kPairs) {  // first words that rows begin inside of are read whole, and this warp's features are theirs
      const unsigned none = 0;
      if (warp == 0) {
        ptx::store_shared<4>(base + lane * kRowBytes, &none);
        ptx::store_shared<4>(base + (lane + 32) * kRowBytes, &none);
        __syncwarp();
      }
    }
  }

  // Elements by which rows begin inside a word: those of even tokens, of odd ones.
  __device__ __forceinline__ static int inside(const RowPanel& rows, int odd) {
    return G::kPairs ? 0 : rows.skew(odd) / 2 % 2;
  }
  // The thread's two features of a row of the output's shape.
  __device__ __forceinline__ unsigned read(const RowPanel& rows, int token, int tokens) const {
    unsigned low = 0, high = 0;
    const auto* const from = rows.start + token * rows.stride + feature;
    const int left = token < tokens ? rows.count - feature : 0;
    if (G::kPairs && left > 1) {
      ptx::load_global<4>(&low, from);
      return low;
    }
    if (left > 0) ptx::load_global<2>(&low, from);
    if (left > 1) ptx::load_global<2>(&high, from + 1);
    return low | high << 16;
  }
  __device__ __forceinline__ void stage(const RowPanel& rows, int line, unsigned pair) const {
    const unsigned at = base + line * kRowBytes + 2 * (inside(rows, line % 2) + feature);
    if constexpr (G::kPairs) {
      ptx::store_shared<4>(at, &pair);
    } else {
      const unsigned high = pair >> 16;
      ptx::store_shared<2>(at, &pair);
      ptx::store_shared<2>(at + 2, &high);
    }
  }
  // The staged rows of tokens `first` and on to where they belong, four warps one row each time. They begin alike.
  __device__ __forceinline__ void send(const RowPanel& rows, int first, int tokens) const {
    constexpr int kAtOnce = 8;
    ptx::named_barrier(barrier, 128);
    const int own = static_cast<int>(lane), line = static_cast<int>(warp),
              lines = schedule::min((tokens - first - line + 3) / 4, kPanel / 4),
              at = 2 * own - inside(rows, line % 2);
    const unsigned from = base + line * kRowBytes + 4 * lane;
    auto* to = rows.start + (first + line) * rows.stride + at;
    const bool low = at >= 0 && at < rows.count, high = at + 1 < rows.count;
#pragma unroll
    for (int i = 0; i < kPanel / 4; i += kAtOnce) {
      unsigned word[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) ptx::load_shared<4>(&word[j], from + 4 * (i + j) * kRowBytes);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const unsigned upper = word[j] >> 16;
        const bool there = i + j < lines;
        if (there && low && high) ptx::store_global<4>(to, &word[j]);
        if (there && low && !high) ptx::store_global<2>(to, &word[j]);
        if (!G::kPairs && there && !low && high) ptx::store_global<2>(to + 1, &upper);
        to += 4 * rows.stride;
      }
    }
    if constexpr (!G::kPairs) {  // the last feature of 64, in a word of its own
      if (own < lines && rows.count == kPanel && inside(rows, line % 2)) {
        unsigned word;
        ptx::load_shared<2>(&word, base + (line + 4 * own) * kRowBytes + 2 * kPanel);
        ptx::store_global<2>(rows.start + (first + line + 4 * own) * rows.stride + kPanel - 1, &word);
      }
    }
    ptx::named_barrier(barrier, 128);
  }

  // Tensors of the output's shape; those that the problem does not have are not touched.
  struct Tensors {
    RowPanel output, pre, gate, residual;
  };
  // 64 tokens from `first` on, whose 32 sums a thread begin at `sum`. `any`: false where these have no weight.
  __device__ __forceinline__ void store(const Params& p, const Tensors& t, const float* sum, int head, int first,
                                        int tokens, bool any) const {
    // Both features of token token_of(j, i), before the activation.
    const auto value = [&](int j, int i, float& low, float& high) {
      low = any ? sum[4 * j + i] : 0.0f, high = any ? sum[4 * j + 2 + i] : 0.0f;
      if constexpr (s.bias) {
        const int token = first + token_of(j, i);
        const auto* const from =
            static_cast<const Storage<s.wdtype>*>(p.bias) + static_cast<long long>(head) * tokens;
        const float bias = token < tokens ? to_float<s.wdtype>(from[token]) : 0.0f;
        low += bias, high += bias;
      }
    };
    float low, high;
    if constexpr (s.pre) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        value(i / 2, i % 2, low, high);
        stage(t.pre, token_of(i / 2, i % 2), pack<kType>(low, high));
      }
      send(t.pre, first, tokens);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int line = token_of(i / 2, i % 2);
      value(i / 2, i % 2, low, high);
      activate_pair<s.act, kType>(low, high);
      if constexpr (s.gate) {
        const unsigned gate = read(t.gate, first + line, tokens);
        low *= to_float<kType>(static_cast<unsigned short>(gate));
        high *= to_float<kType>(static_cast<unsigned short>(gate >> 16));
      }
      if constexpr (s.residual) {
        const unsigned residual = read(t.residual, first + line, tokens);
        low += to_float<kType>(static_cast<unsigned short>(residual));
        high += to_float<kType>(static_cast<unsigned short>(residual >> 16));
      }
      stage(t.output, line, pack<kType>(low, high));
    }
    send(t.output, first, tokens);
  }

 private:
  // Of 64 tokens: sums 4 j + i and 4 j + 2 + i are of this one.
  __device__ __forceinline__ int token_of(int j, int i) const { return 8 * j + static_cast<int>(lane % 4 * 2) + i; }
};

}  // namespace trigen::wgmma_rows_sm90
