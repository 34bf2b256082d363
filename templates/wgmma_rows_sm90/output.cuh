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
    if constexpr (
        !G::kPairs) {  // first words that rows begin inside of are read whole, and this warp's features are theirs
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
  // Reads the thread's two features of one of its tokens after the other. (Addresses one from another: the multiples of a stride
  // that 16 of them need would stay in registers beside the sums.)
  struct Reader {
    const unsigned short* from;
    long long stride;
    int token, tokens, left;  // features from here on
    __device__ __forceinline__ Reader(const RowPanel& rows, int token, int feature, int tokens)
        : from(rows.start + token * rows.stride + feature),
          stride(rows.stride),
          token(token),
          tokens(tokens),
          left(rows.count - feature) {}
    // `steps` tokens on to the next one.
    __device__ __forceinline__ unsigned next(int steps) {
      unsigned low = 0, high = 0;
      if (token < tokens) {
        if (G::kPairs && left > 1) {
          ptx::load_global<4>(&low, from);
        } else {
          if (left > 0) ptx::load_global<2>(&low, from);
          if (left > 1) ptx::load_global<2>(&high, from + 1);
        }
      }
      token += steps;
      from += steps * stride;
      return low | high << 16;
    }
  };
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
  // Bias of 64 tokens, two for each lane: asked for before the products, while which it comes, but beside other tensors, for
  // whose pointers there are no registers then.
  static constexpr bool kEarlyBias = s.bias && !s.pre && !s.gate && !s.residual;
  struct Bias {
    float own[2] = {};
    __device__ __forceinline__ void load(const Params& p, int head, int first, int tokens, int lane) {
      if constexpr (s.bias) {
        const auto* const from =
            static_cast<const Storage<s.wdtype>*>(p.bias) + static_cast<long long>(head) * tokens;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = first + lane + 32 * i;
          if (token < tokens) own[i] = to_float<s.wdtype>(from[token]);
        }
      }
    }
    // Of token `line`, in half `half` of the 64.
    __device__ __forceinline__ float of(int line, int half) const {
      return __shfl_sync(~0u, own[half], line % 32);
    }
  };
  // 64 tokens from `first` on, whose 32 sums a thread begin at `sum`. `any`: false where these have no weight.
  __device__ __forceinline__ void store(const Params& p, const Tensors& t, const float* sum, Bias bias,
                                        int head, int first, int tokens, bool any) const {
    if constexpr (!kEarlyBias) bias.load(p, head, first, tokens, static_cast<int>(lane));
    // Both features of token token_of(i / 2, i % 2), before the activation.
    const auto value = [&](int i, float& low, float& high) {
      const int at = i / 2 * 4 + i % 2;
      low = any ? sum[at] : 0.0f, high = any ? sum[at + 2] : 0.0f;
      if constexpr (s.bias) {
        const float own = bias.of(token_of(i / 2, i % 2), i / 8);
        low += own, high += own;
      }
    };
    float low, high;
    if constexpr (s.pre) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        value(i, low, high);
        stage(t.pre, token_of(i / 2, i % 2), pack<kType>(low, high));
      }
      send(t.pre, first, tokens);
    }
    constexpr int kAtOnce = !s.bias && s.act == Activation::kNone ? 8
                            : G::kPairs                           ? 4
                                                                  : 2;  // operands asked for together
    Reader gates(t.gate, first + token_of(0, 0), feature, tokens),
        residuals(t.residual, first + token_of(0, 0), feature, tokens);
#pragma unroll
    for (int begin = 0; begin < 16; begin += kAtOnce) {
      unsigned gate[kAtOnce], residual[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if constexpr (s.gate) gate[i] = gates.next(i % 2 ? 7 : 1);
        if constexpr (s.residual) residual[i] = residuals.next(i % 2 ? 7 : 1);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        value(begin + i, low, high);
        activate_pair<s.act, kType>(low, high);
        if constexpr (s.gate) {
          low *= to_float<kType>(static_cast<unsigned short>(gate[i]));
          high *= to_float<kType>(static_cast<unsigned short>(gate[i] >> 16));
        }
        if constexpr (s.residual) {
          low += to_float<kType>(static_cast<unsigned short>(residual[i]));
          high += to_float<kType>(static_cast<unsigned short>(residual[i] >> 16));
        }
        stage(t.output, token_of((begin + i) / 2, i % 2), pack<kType>(low, high));
      }
    }
    send(t.output, first, tokens);
  }

 private:
  // Of 64 tokens: sums 4 j + i and 4 j + 2 + i are of this one.
  __device__ __forceinline__ int token_of(int j, int i) const {
    return 8 * j + static_cast<int>(lane % 4 * 2) + i;
  }
};

}  // namespace trigen::wgmma_rows_sm90
