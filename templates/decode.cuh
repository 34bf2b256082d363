// Family decode: a few rows t of forward, as a mixer is served token by token. Nothing but reading x costs
// time: every thread keeps tile_k independent loads in flight and sums in f32; the weights of the rows, a few
// KiB, wait in shared memory. Every target, every dtype.
//
// Taps need no neighbours while x streams by: a thread sums q[j][d] = sum_s W[s,j] x[s,d] over its own
// features d, and y[d] = sum_j q[j][d+j-pad] is put together once, from shared memory.
//
// A token outside a row's part of the triangle is not multiplied for that row, so nothing there can reach an
// output.
#pragma once

#include "decode.h"
#include "epilogue.cuh"

namespace trigen::decode {

template <Kernel C>
inline constexpr int kThreads = threads(C.config);

// y's row `row` of this run, features [d, d + kVec) of batch b.
template <Kernel C, int kVec>
__device__ __forceinline__ void store_row(const Params& p, const Sizes& z, int head, int row, int b, int d,
                                          float (&v)[kVec]) {
  constexpr Shape s = C.shape;
  const auto* const bias = static_cast<const Storage<s.wdtype>*>(p.bias) +
                           (static_cast<long long>(head) * z.T + p.first_row + row);
  store_outputs<C>(
      p,
      [&](const Activations& t) {
        const long long offset =
            b * t.batch + head * t.head + (tokens_contiguous(s.layout) ? d * t.row + row : row * t.row + d);
        return static_cast<Storage<s.dtype>*>(t.data) + offset;
      },
      [&](int) { return to_float<s.wdtype>(*bias); }, v);
}

__device__ __forceinline__ long long workspace_at(const Params& p, const Sizes& z, int split, int head,
                                                  int row, int b, int d) {
  return (((static_cast<long long>(split) * z.H + head) * p.rows + row) * z.B + b) * z.D + d;
}

template <Kernel C>
class Block {
  static constexpr Shape s = C.shape;
  static constexpr Config c = C.config;
  static constexpr DType kD = s.dtype, kW = s.wdtype;
  static constexpr bool kTokensContiguous = tokens_contiguous(s.layout);
  static constexpr bool kLower = s.fill == Fill::kLower;
  static constexpr int kRows = c.tile_m, kTaps = c.stages, kSums = kRows * kTaps, kVec = c.vec_b,
                       kAtOnce = c.tile_k;
  static constexpr int kUnit = kTokensContiguous ? 1 : kVec;
  static constexpr int kSplits = c.split_k > 1 ? c.split_k : 1;
  static constexpr int kStep = step_tokens(s.layout, c), kChunk = chunk_tokens(s.layout, c);
  static constexpr bool kManyGroups = many_groups(c, kGeneric<C> ? 1 : s.K);
  static constexpr int kPasses = kTokensContiguous ? c.tile_n / (c.warps_n * kAtOnce) : 1;
  static_assert(s.op == Op::kDecode, "this family makes decode only");
  static_assert(c.tile_m >= 1 && c.stages >= 1 && c.vec_a == 1, "sums of one row and tap at least");
  static_assert(kTokensContiguous ? c.tile_n % (c.warps_n * kAtOnce) == 0 : c.tile_n == 32 * c.warps_n * kVec,
                "btd: a thread has one vector of features; bdt: a warp has whole passes");
  static_assert(kTokensContiguous || kAtOnce % 4 == 0, "weights of a step are read in vectors of 4 floats");
  static_assert(shared_bytes(s.layout, c, s.K) <= kSharedLimit, "shared memory that every target gives");

 public:
  __device__ __forceinline__ Block(const Params& p, float* shared)
      : p_(p),
        z_(sizes_of<C>(p)),
        tiling_(tiling(c, z_, kUnit)),
        weights_(shared),
        sums_(shared + weight_floats(s.layout, c)),
        outputs_(sums_ + sum_floats(c)),
        thread_(static_cast<int>(threadIdx.x)),
        tile_(static_cast<int>(blockIdx.x)),
        head_(static_cast<int>(blockIdx.y)),
        split_(static_cast<int>(blockIdx.z) % kSplits),
        row0_(static_cast<int>(blockIdx.z) / kSplits * kRows) {}

  __device__ __forceinline__ void run() {
    count_ = schedule::min(kRows, p_.rows - row0_);
    if (count_ <= 0) return;
    const Range first = schedule::weight_row(s.fill, z_.diag, t(0), z_.T),
                last = schedule::weight_row(s.fill, z_.diag, t(count_ - 1), z_.T);
    // Lower: the first row is the shortest. Upper: the last one is.
    common_ = kLower ? Range{0, first.end} : Range{last.begin, z_.T};
    const Range all = kLower ? Range{0, last.end} : Range{first.begin, z_.T};
    const int begin = kTokensContiguous ? all.begin / kVec * kVec : all.begin;
    const int part = round_up(ceil_div(schedule::max(all.end - begin, 0), kSplits), kStep);
    tokens_ = {
        static_cast<int>(schedule::clamp(begin + static_cast<long long>(split_) * part, begin, all.end)),
        static_cast<int>(
            schedule::clamp(begin + (static_cast<long long>(split_) + 1) * part, begin, all.end))};
    first_token_ = all.begin;
    for (int tap = 0; tap < z_.K; tap += kTaps) {
      for (int pass = 0; pass < kPasses; ++pass) stream(tap, pass);
      __syncthreads();
      combine(tap);
      if (kManyGroups) __syncthreads();  // before the next group's sums
    }
  }

 private:
  // The row of W that row r of this block is.
  __device__ __forceinline__ int t(int r) const { return p_.first_row + row0_ + r; }
  // Does token `token` take part in row r?
  __device__ __forceinline__ bool inside(int r, int token) const {
    return kLower ? token < t(r) + z_.diag + 1 : token >= t(r) + z_.diag;
  }

  // First feature of x in the tile for taps from `tap` on; the same for every batch.
  __device__ __forceinline__ int base(int tap) const {
    if (tiling_.per_row == 1) return 0;
    const int wanted = tile_ % tiling_.per_row * tiling_.outputs + tap - z_.pad;
    return static_cast<int>(schedule::clamp(wanted < 0 ? 0 : wanted / kUnit * kUnit, 0, z_.D - c.tile_n));
  }
  // Offset of token 0 of the tile's feature f (a multiple of kUnit), or -1 beyond the end.
  __device__ __forceinline__ long long feature(int f, int tap) const {
    int b, d;
    if (tiling_.flat) {
      const int n = tile_ * c.tile_n + f;
      b = n / z_.D, d = n - b * z_.D;
    } else {
      const int local = f / tiling_.width;
      if (local >= tiling_.batches) return -1;
      b = tile_ / tiling_.per_row * tiling_.batches + local;
      d = base(tap) + f - local * tiling_.width;
    }
    if (b >= z_.B || d >= z_.D) return -1;
    return b * p_.x.batch + head_ * p_.x.head +
           (kTokensContiguous ? d * p_.x.row : static_cast<long long>(d));
  }

  // The weights of the tokens from `from` on that a chunk holds, zero where none takes part. Several loads of
  // a thread are in flight: nothing is summed before they are there.
  __device__ __forceinline__ void stage(int from, int tap) const {
    constexpr int kLoads = 4;
    const auto* w = static_cast<const Storage<kW>*>(p_.w) + head_ * p_.w_head;
    const int count = schedule::min(kChunk, round_up(tokens_.end - from, kStep)) * kTaps;
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) {
      const auto* row = w + t(r) * p_.w_row + tap;
      for (int i = thread_; i < count; i += kLoads * kThreads<C>) {
        Raw<kW, 1> raw[kLoads];
#pragma unroll
        for (int e = 0; e < kLoads; ++e) {
          const int at = i + e * kThreads<C>, token = from + at / kTaps, j = at % kTaps;
          const bool used = at < count && r < count_ && token >= first_token_ && token < tokens_.end &&
                            tap + j < z_.K && inside(r, token);
          raw[e].clear();
          if (used) ptx::load_global_nc<kBytes<kW>>(raw[e].w, row + static_cast<long long>(token) * z_.K + j);
        }
#pragma unroll
        for (int e = 0; e < kLoads; ++e) {
          const int at = i + e * kThreads<C>, token = at / kTaps, j = at % kTaps;
          float v = to_float<kW>(raw[e].get(0));
          // Wider weights are rounded to x's type, as forward does.
          if constexpr (kW != kD) v = to_float<kD>(from_float<kD>(v));
          if (at < count)
            weights_[kTokensContiguous ? (r * kTaps + j) * kChunk + token : (token * kRows + r) * kTaps + j] =
                v;
        }
      }
    }
  }

  __device__ __forceinline__ void stream(int tap, int pass) {
    const int warp = thread_ / 32, wm = warp / c.warps_n, wn = warp % c.warps_n, lane = thread_ % 32;
    float sum[kSums][kTokensContiguous ? kAtOnce : kVec];
#pragma unroll
    for (auto& of_feature : sum)
#pragma unroll
      for (float& v : of_feature) v = 0.0f;
    const int f = kTokensContiguous ? (pass * c.warps_n + wn) * kAtOnce : (wn * 32 + lane) * kVec;
    long long offset[kTokensContiguous ? kAtOnce : 1];
#pragma unroll
    for (int i = 0; i < (kTokensContiguous ? kAtOnce : 1); ++i) offset[i] = feature(f + i, tap);
    const bool one_chunk = tokens_.end - tokens_.begin <= kChunk;
    // One step ahead of the sums: the first loads are on their way while the weights are staged.
    Raw<kD, kVec> x[kAtOnce];
    int at = tokens_.begin + wm * (kStep / c.warps_m);
    load(x, offset, at + (kTokensContiguous ? lane * kVec : 0));
    for (int from = tokens_.begin; from < tokens_.end; from += kChunk) {
      if (pass == 0 || !one_chunk) {
        __syncthreads();
        stage(from, tap);
        __syncthreads();
      }
      const int end = schedule::min(tokens_.end - from, kChunk) + from;
      for (; at < end; at += kStep) {
        if constexpr (kTokensContiguous)
          add_features(sum, x, at + lane * kVec, weights_ + (at - from) + lane * kVec);
        else
          add_tokens(sum, x, at, weights_ + (at - from) * kSums);
        load(x, offset, at + kStep + (kTokensContiguous ? lane * kVec : 0));
      }
    }
    float* const to = sums_ + wm * kSums * c.tile_n + f;
    if constexpr (kTokensContiguous) {
#pragma unroll
      for (int q = 0; q < kSums; ++q)
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          float v = sum[q][i];
#pragma unroll
          for (int distance = 16; distance > 0; distance /= 2) v += __shfl_xor_sync(0xffffffffu, v, distance);
          if (lane == i % 32) to[q * c.tile_n + i] = v;
        }
    } else {
#pragma unroll
      for (int q = 0; q < kSums; ++q)
#pragma unroll
        for (int e = 0; e < kVec; ++e) to[q * c.tile_n + e] = sum[q][e];
    }
  }

  // btd: tokens [token, token + kAtOnce) of one vector of features. bdt: tokens [token, token + kVec) of
  // kAtOnce features. Zero beyond this split's tokens and the tile's features, where nothing is read.
  template <int kOffsets>
  __device__ __forceinline__ void load(Raw<kD, kVec> (&x)[kAtOnce], const long long (&offset)[kOffsets],
                                       int token) const {
    const auto* from = static_cast<const Storage<kD>*>(p_.x.data);
    if constexpr (kTokensContiguous) {
      from += token;
    } else {
      from += offset[0] + token * p_.x.row;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      x[i].clear();
      const int last = kTokensContiguous ? token : token + i;
      if (offset[kTokensContiguous ? i : 0] >= 0 && last < tokens_.end)
        ptx::load_global_nc<kVec * kBytes<kD>>(x[i].w, from + (kTokensContiguous ? offset[i] : i * p_.x.row));
    }
  }

  __device__ __forceinline__ void add_tokens(float (&sum)[kSums][kVec], const Raw<kD, kVec> (&x)[kAtOnce],
                                             int token, const float* weights) const {
    const bool whole = token >= common_.begin && token + kAtOnce <= schedule::min(common_.end, tokens_.end);
    if (whole) {
#pragma unroll
      for (int i = 0; i < kAtOnce * kSums; i += 4) {
        float w[4];
        read_floats(w, weights + i);
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int v = 0; v < kVec; ++v)
            sum[(i + e) % kSums][v] += w[e] * to_float<kD>(x[(i + e) / kSums].get(v));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (token + i >= tokens_.end || !inside(r, token + i)) continue;
#pragma unroll
          for (int j = 0; j < kTaps; ++j)
#pragma unroll
            for (int v = 0; v < kVec; ++v)
              sum[r * kTaps + j][v] += weights[(i * kRows + r) * kTaps + j] * to_float<kD>(x[i].get(v));
        }
    }
  }

  __device__ __forceinline__ void add_features(float (&sum)[kSums][kAtOnce],
                                               const Raw<kD, kVec> (&x)[kAtOnce], int token,
                                               const float* weights) const {
    const bool whole = token >= common_.begin && token + kVec <= schedule::min(common_.end, tokens_.end);
#pragma unroll
    for (int q = 0; q < kSums; ++q) {
      float w[kVec];
      read_floats(w, weights + q * kChunk);
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        if (!whole && (token + v < first_token_ || token + v >= tokens_.end || !inside(q / kTaps, token + v)))
          continue;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) sum[q][i] += w[v] * to_float<kD>(x[i].get(v));
      }
    }
  }

  // From the sums of one group of taps to outputs: the warps along the tokens are added in their order.
  __device__ __forceinline__ void combine(int tap) const {
    constexpr int kOut = c.vec_c;
    const int per_row = tiling_.outputs * tiling_.batches / kOut;
    const bool first = tap == 0, last = tap + kTaps >= z_.K;
    const int start = base(tap);
    for (int i = thread_; i < count_ * per_row; i += kThreads<C>) {
      const int r = i / per_row, o = i % per_row * kOut;
      const int local = o / tiling_.outputs, along = o - local * tiling_.outputs;
      int b, d;
      if (tiling_.flat) {
        const int n = tile_ * c.tile_n + o;
        b = n / z_.D, d = n - b * z_.D;
      } else {
        b = tile_ / tiling_.per_row * tiling_.batches + local;
        d = tile_ % tiling_.per_row * tiling_.outputs + along;
      }
      if (b >= z_.B || d >= z_.D) continue;
      float v[kOut];
#pragma unroll
      for (int e = 0; e < kOut; ++e) v[e] = kManyGroups && !first ? outputs_[r * c.tile_n + o + e] : 0.0f;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        if (tap + j >= z_.K) break;
#pragma unroll
        for (int e = 0; e < kOut; ++e) {
          int f = o + e;
          if (!tiling_.flat) {
            const int from = d + e + tap + j - z_.pad;
            if (from < 0 || from >= z_.D) continue;
            f = local * tiling_.width + from - start;
          }
#pragma unroll
          for (int m = 0; m < c.warps_m; ++m) v[e] += sums_[(m * kSums + r * kTaps + j) * c.tile_n + f];
        }
      }
      if (kManyGroups && !last) {
#pragma unroll
        for (int e = 0; e < kOut; ++e) outputs_[r * c.tile_n + o + e] = v[e];
        continue;
      }
      if constexpr (kSplits > 1) {
        auto* to = static_cast<float*>(p_.workspace) + workspace_at(p_, z_, split_, head_, row0_ + r, b, d);
#pragma unroll
        for (int e = 0; e < kOut; ++e) to[e] = v[e];
      } else {
        store_row<C>(p_, z_, head_, row0_ + r, b, d, v);
      }
    }
  }

  const Params& p_;
  const Sizes z_;
  const Tiling tiling_;
  float *weights_, *sums_, *outputs_;
  const int thread_, tile_, head_, split_, row0_;
  int count_ = 0, first_token_ = 0;  // rows of this block, the first token that any of them reads
  Range common_{}, tokens_{};        // tokens that all rows read, tokens of this split
};

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(16) float decode_shared[];
  Block<C>(p, decode_shared).run();
}

// The second launch of split_k > 1: grid {vectors of (b,d) in blocks of kReduceThreads, H, rows}.
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  constexpr int kOut = C.config.vec_c;
  const Sizes z = sizes_of<C>(p);
  const long long n = (static_cast<long long>(blockIdx.x) * kReduceThreads + threadIdx.x) * kOut;
  const int head = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  if (row >= p.rows || n >= static_cast<long long>(z.B) * z.D) return;
  const int b = static_cast<int>(n / z.D), d = static_cast<int>(n % z.D);
  float v[kOut];
#pragma unroll
  for (int e = 0; e < kOut; ++e) v[e] = 0.0f;
#pragma unroll 4
  for (int split = 0; split < C.config.split_k; ++split) {
    float part[kOut];
    read_floats(part, static_cast<const float*>(p.workspace) + workspace_at(p, z, split, head, row, b, d));
#pragma unroll
    for (int e = 0; e < kOut; ++e) v[e] += part[e];
  }
  store_row<C>(p, z, head, row, b, d, v);
}

}  // namespace trigen::decode
