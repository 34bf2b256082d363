// grad_weight with several taps: dW[t, s, j] = sum over (b, d) of dy[b, t, d] x[b, s, d + j - pad].
//
// A thread block sums 64 t by 64 s and eight taps, four to a warpgroup: A = dy, read into registers once for
// all taps, B = x^T, transposed once in shared memory as in transpose.cuh and read MN-major: k is the
// feature, a row of 16 bytes, so that a tap is a shift of the descriptor's start by a row.
#pragma once

#include "pack_activations.h"
#include "params.h"
#include "persistent/roles.cuh"
#include "persistent/weight_store.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "types.cuh"
#include "wgmma_taps_sm90.h"

namespace trigen::wgmma_taps_sm90::weight {

using persistent::RingPosition;
using persistent::weight::fill_zeros;
using persistent::weight::write_bias;

// Barriers: panels of dy and of x have landed and are free again; x lies transposed, is used up.
template <Kernel C>
struct Shared {
  static constexpr int kStages = C.config.stages;
  static_assert(8 * (4 * kStages + 2 * kTransposed) <= kBarrierBytes, "the barriers fit");
  unsigned base, barriers;

  __device__ __forceinline__ unsigned dy(int stage) const { return base + stage * kPanelBytes; }
  __device__ __forceinline__ unsigned x(int stage) const { return base + (kStages + stage) * kPanelBytes; }
  __device__ __forceinline__ unsigned transposed(int buffer) const {
    return base + 2 * kStages * kPanelBytes + buffer * kTransposedBytes;
  }
  __device__ __forceinline__ unsigned dy_full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ unsigned dy_empty(int stage) const { return dy_full(kStages + stage); }
  __device__ __forceinline__ unsigned x_full(int stage) const { return dy_full(2 * kStages + stage); }
  __device__ __forceinline__ unsigned x_empty(int stage) const { return dy_full(3 * kStages + stage); }
  __device__ __forceinline__ unsigned ready(int buffer) const { return dy_full(4 * kStages + buffer); }
  __device__ __forceinline__ unsigned done(int buffer) const { return ready(kTransposed + buffer); }

  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(dy_full(stage), 1);
      ptx::mbarrier_init(dy_empty(stage), 4 * kConsumers);
      ptx::mbarrier_init(x_full(stage), 1);
      ptx::mbarrier_init(x_empty(stage), 1);
    }
    for (int buffer = 0; buffer < kTransposed; ++buffer) {
      ptx::mbarrier_init(ready(buffer), 1);
      ptx::mbarrier_init(done(buffer), 4 * kConsumers);
    }
    ptx::mbarrier_fence_init();
  }
};

template <Kernel C>
struct Work {
  static constexpr int kSteps = schedule::ceil_div(C.shape.D, kPanel);  // of one batch element
  // The first tap of a group reads `kExtra` features to the right of a multiple of 8.
  static constexpr int kExtra = (8 - C.shape.pad % 8) % 8;
};

template <Config c>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = kConsumers,
                                                    .load_registers = load_registers(c),
                                                    .sum_registers = kSumRegisters,
                                                    .register_threads = kThreads};
template <Kernel C>
struct Geometry : persistent::Geometry<C.config, kWarpgroups<C.config>> {
  static_assert(C.shape.dtype != DType::kF32 &&
                    (C.shape.layout == Layout::kBTD || packing::packs_activations(C.shape, C.config)),
                "16-bit data, features contiguous");
  static_assert(C.shape.T > 0 && C.shape.K > 1, "sizes are compiled in");
};

// The loading thread. In a batch element x has one panel more than dy: the last panel's taps read into it.
template <Kernel C>
__device__ __forceinline__ void load(const Shared<C>& shared, const StreamK& stream_k,
                                     const TensorMap& map_dy, const TensorMap& map_x) {
  using W = Work<C>;
  RingPosition<C.config.stages> at_dy, at_x;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    int head, row, column, group;
    stream_k.locate(work.item, head, row, column, group);
    const int shift = kGroupTaps * group - C.shape.pad - W::kExtra;
    const auto load_x = [&](int batch, int feature) {
      ptx::mbarrier_wait(shared.x_empty(at_x.stage), at_x.parity ^ 1);
      ptx::mbarrier_arrive_expect(shared.x_full(at_x.stage), kPanelBytes);
      ptx::tma_load(shared.x(at_x.stage), map_x, shared.x_full(at_x.stage), feature + shift, kPanel * column,
                    head, batch);
      at_x.advance();
    };
    for (int step = work.begin; step < work.end; ++step) {
      const int batch = step / W::kSteps, feature = (step - batch * W::kSteps) * kPanel;
      if (step == work.begin || feature == 0) load_x(batch, feature);
      ptx::mbarrier_wait(shared.dy_empty(at_dy.stage), at_dy.parity ^ 1);
      ptx::mbarrier_arrive_expect(shared.dy_full(at_dy.stage), kPanelBytes);
      ptx::tma_load(shared.dy(at_dy.stage), map_dy, shared.dy_full(at_dy.stage), feature, kPanel * row, head,
                    batch);
      at_dy.advance();
      load_x(batch, feature + kPanel);
    }
  }
}

// Three warps, `warp` 0 to 2.
template <Kernel C>
__device__ __forceinline__ void transpose(const Shared<C>& shared, const StreamK& stream_k, unsigned warp,
                                          unsigned lane) {
  constexpr int kStages = C.config.stages, kUnits = 2 * kFeatures / 8;  // of 8 features by 32 tokens
  RingPosition<kStages> at;
  RingPosition<kTransposed> to;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    for (int step = work.begin; step < work.end; ++step) {
      RingPosition<kStages> next = at;
      next.advance();
      ptx::mbarrier_wait(shared.x_full(at.stage), at.parity);
      ptx::mbarrier_wait(shared.x_full(next.stage), next.parity);
      ptx::mbarrier_wait(shared.done(to.stage), to.parity ^ 1);
      const unsigned from = shared.x(at.stage), after = shared.x(next.stage),
                     target = shared.transposed(to.stage);
#pragma unroll
      for (unsigned i = 0; i < (kUnits + 2) / 3; ++i) {
        const unsigned unit = 3 * i + warp;
        if (unit >= kUnits) break;
        const unsigned chunk = unit / 2, half = unit % 2;
        unsigned word[4];
        // 128-byte swizzle: 16-byte chunk ^ row % 8.
        ptx::ldmatrix_x4_trans(
            word, (chunk < 8 ? from : after) + (32 * half + lane) * 128 + (((chunk % 8) ^ (lane % 8)) << 4));
        ptx::stmatrix_x4(target + ((4 * half + lane / 8) * kFeatures + 8 * chunk + lane % 8) * 16, word[0],
                         word[1], word[2], word[3]);
      }
      ptx::fence_async_shared();
      ptx::named_barrier(3, 96);
      const bool ends = step + 1 == work.end || (step + 1) % Work<C>::kSteps == 0;
      if (warp == 0 && lane == 0) {
        ptx::mbarrier_arrive(shared.ready(to.stage));
        ptx::mbarrier_arrive(shared.x_empty(at.stage));
        if (ends) ptx::mbarrier_arrive(shared.x_empty(next.stage));
      }
      at = next;
      if (ends) at.advance();
      to.advance();
    }
  }
}

// dW[row, column, tap .. tap + 3].
template <Kernel C>
__device__ __forceinline__ void write_taps(const Params& p, int head, int row, int column, int tap,
                                           float (&v)[4]) {
  constexpr Shape s = C.shape;
  constexpr DType kW = s.wdtype;
  constexpr bool kVector = s.K % 4 == 0 && C.config.vec_c == 4;
  if (row >= s.T || column >= s.T || tap >= s.K) return;
  const bool inside = s.fill == Fill::kLower ? column <= row + s.diag : column >= row + s.diag;
  if (!inside && !s.zero_outside) return;
  auto* const to = static_cast<Storage<kW>*>(p.w) +
                   (head * p.w_head + row * p.w_row + static_cast<long long>(column) * s.K + tap);
  if constexpr (s.accumulate) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (tap + i < s.K) v[i] += to_float<kW>(to[i]);
  }
  if (!inside) v[0] = v[1] = v[2] = v[3] = 0.0f;
  if constexpr (kVector && kW == DType::kF32) {
    *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
  } else if constexpr (kVector) {
    *reinterpret_cast<uint2*>(to) = make_uint2(pack<kW>(v[0], v[1]), pack<kW>(v[2], v[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (tap + i < s.K) to[i] = from_float<kW>(v[i]);
  }
}

// Writes a thread's sums of columns [8 * slice, 8 * slice + 8): sum[tap][4] in the order of wgmma.cuh.
template <Kernel C, class Sum>
__device__ __forceinline__ void write_slice(const Params& p, int head, int row, int column, int group,
                                            int slice, int thread, const Sum& sum) {
  const int lane = thread % 32, tap = kGroupTaps * group + 4 * (thread / 128);
  row = kPanel * row + thread / 32 % 4 * 16 + lane / 4;
  column = kPanel * column + 8 * slice + lane % 4 * 2;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    float v[4] = {sum(0, e), sum(1, e), sum(2, e), sum(3, e)};
    write_taps<C>(p, head, row + e / 2 * 8, column + e % 2, tap, v);
  }
}

// Zeros into the blocks outside every row's span.
template <Kernel C>
__device__ __forceinline__ void write_zeros(const Params& p, const StreamK& stream_k) {
  constexpr Shape s = C.shape;
  constexpr int kWarps = 4 * kConsumers;
  const int lane = static_cast<int>(threadIdx.x % 32), blocks = static_cast<int>(gridDim.x);
  for (int all = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32); all < s.H * s.T;
       all += kWarps * blocks) {
    const int head = all / s.T, row = all - head * s.T, span = stream_k.span(row / kPanel);
    const int begin = s.fill == Fill::kLower ? kPanel * span : 0;
    const int end = s.fill == Fill::kLower ? s.T : schedule::min(kPanel * (stream_k.rows - span), s.T);
    if (begin < end)
      fill_zeros<s.wdtype>(static_cast<Storage<s.wdtype>*>(p.w) +
                               (head * p.w_head + row * p.w_row + static_cast<long long>(begin) * s.K),
                           (end - begin) * s.K, lane);
  }
}

// Adds a thread's elements of a 64 x 64 panel of dy: rows lane / 4 and lane / 4 + 8 of its warp.
template <DType kType>
__device__ __forceinline__ void add_rows(float (&bias)[2], const unsigned (&a)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      bias[j % 2] += to_float<kType>(static_cast<unsigned short>(a[i][j])) +
                     to_float<kType>(static_cast<unsigned short>(a[i][j] >> 16));
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply(const Params& p, const Shared<C>& shared, const StreamK& stream_k,
                                         unsigned group) {
  using W = Work<C>;
  constexpr DType kType = C.shape.dtype;
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  // Row lane % 16 of the warp's, 16-byte chunk 2 i + lane / 16 of 16 features.
  const unsigned line = (16 * warp + lane % 16) * 128;
  RingPosition<C.config.stages> at;
  RingPosition<kTransposed> from;
  float sum[4][32];
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    int head, row, column, taps;
    stream_k.locate(work.item, head, row, column, taps);
    const bool with_bias = C.shape.bias && group == 0 && stream_k.sums_bias(row, column, taps);
    float bias[2] = {};
    for (int step = work.begin; step < work.end; ++step) {
      ptx::mbarrier_wait(shared.dy_full(at.stage), at.parity);
      unsigned a[4][4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        ptx::ldmatrix_x4(a[i], shared.dy(at.stage) + line + (((2 * i + lane / 16) ^ (lane % 8)) << 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::pin(a[i]);
      if constexpr (C.shape.bias)
        if (with_bias) add_rows<kType>(bias, a);
      ptx::mbarrier_wait(shared.ready(from.stage), from.parity);
      const unsigned long long b = ptx::descriptor_plain_mn(
          shared.transposed(from.stage) + (W::kExtra + 4 * group) * 16, 16 * kFeatures);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int tap = 0; tap < 4; ++tap)
          ptx::wgmma_rs<kType, 64, 1>(sum[tap], a[i], b + 16 * i + tap, (step - work.begin) | i);
      ptx::wgmma_commit();
      // A's registers are free then; the other warpgroup multiplies while this one reads.
      ptx::wgmma_wait<0>();
      if (lane == 0) {
        ptx::mbarrier_arrive(shared.dy_empty(at.stage));
        ptx::mbarrier_arrive(shared.done(from.stage));
      }
      at.advance();
      from.advance();
    }
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) ptx::pin(sum[tap]);
    const bool part = work.end - work.begin < stream_k.depth, begins = work.begin == 0;
    if constexpr (C.shape.bias) {
      if (with_bias) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float v = bias[r];
          v += __shfl_xor_sync(~0u, v, 1);
          v += __shfl_xor_sync(~0u, v, 2);
          const int own = static_cast<int>(16 * warp + lane / 4) + 8 * r;
          if (lane % 4 == 0 && part)
            static_cast<float*>(p.workspace)[stream_k.bias_slot(static_cast<int>(blockIdx.x), begins) + own] =
                v;
          else if (lane % 4 == 0)
            write_bias<C>(p, head, C.shape.T, kPanel * row + own, v);
        }
      }
    }
    if (part) {
      // 16 bytes a thread, one thread after the other, as `reduce` reads them.
      auto* const to = reinterpret_cast<float4*>(static_cast<float*>(p.workspace) +
                                                 StreamK::slot(static_cast<int>(blockIdx.x), begins)) +
                       threadIdx.x;
#pragma unroll
      for (int slice = 0; slice < kSlices; ++slice)
#pragma unroll
        for (int tap = 0; tap < 4; ++tap)
          to[(4 * slice + tap) * 128 * kConsumers] = make_float4(
              sum[tap][4 * slice], sum[tap][4 * slice + 1], sum[tap][4 * slice + 2], sum[tap][4 * slice + 3]);
      continue;
    }
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice)
      write_slice<C>(p, head, row, column, taps, slice, static_cast<int>(threadIdx.x),
                     [&](int tap, int e) { return sum[tap][4 * slice + e]; });
  }
}

template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& map_dy, const TensorMap& map_x) {
  const unsigned base = ptx::shared_address(persistent::shared_memory());
  const Shared<C> shared{base, base + static_cast<unsigned>(shared_bytes(C.config)) - kBarrierBytes};
  persistent::prepare<Geometry<C>>([&] { shared.init(); }, map_dy, map_x);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();  // the reduction waits for what is written here
  const StreamK stream_k(C.shape, p.B, static_cast<int>(gridDim.x));
  persistent::split_roles<Geometry<C>>(
      [&](unsigned) {
        const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        if (warp > 0)
          transpose<C>(shared, stream_k, warp - 1, lane);
        else if (lane == 0)
          load<C>(shared, stream_k, map_dy, map_x);
      },
      [&](unsigned group) {
        if constexpr (C.shape.zero_outside)
          write_zeros<C>(p, stream_k);  // while the first panels are on their way
        multiply<C>(p, shared, stream_k, group);
      });
}

// The second kernel: adds the parts of every shared item, 8 columns at a time.
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  const StreamK stream_k(C.shape, p.B, static_cast<int>(gridDim.x) / kReduceBlocks);
  const int thread = static_cast<int>(threadIdx.x);
  ptx::wait_for_launches_before();
  for (int all = static_cast<int>(blockIdx.x); all < stream_k.rest() * kSlices;
       all += static_cast<int>(gridDim.x)) {
    const int index = all / kSlices, slice = all - index * kSlices;
    const int first = stream_k.owner(index * stream_k.depth),
              last = stream_k.owner((index + 1) * stream_k.depth - 1);
    if (first == last) continue;
    const auto part = [&](int block, int tap) {
      return reinterpret_cast<const float4*>(
          static_cast<const float*>(p.workspace) +
          StreamK::slot(block, block == first))[(4 * slice + tap) * kReduceThreads + thread];
    };
    float4 sum[4];
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) sum[tap] = part(first, tap);
#pragma unroll 4
    for (int block = first + 1; block <= last; ++block)
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) {
        const float4 v = part(block, tap);
        sum[tap].x += v.x, sum[tap].y += v.y, sum[tap].z += v.z, sum[tap].w += v.w;
      }
    int head, row, column, group;
    stream_k.locate(stream_k.whole_items + index, head, row, column, group);
    if constexpr (C.shape.bias) {
      if (slice == 0 && thread < kPanel && stream_k.sums_bias(row, column, group)) {
        const auto* const from = static_cast<const float*>(p.workspace) + thread;
        float v = from[stream_k.bias_slot(first, true)];
        for (int block = first + 1; block <= last; ++block) v += from[stream_k.bias_slot(block, false)];
        write_bias<C>(p, head, C.shape.T, kPanel * row + thread, v);
      }
    }
    write_slice<C>(p, head, row, column, group, slice, thread, [&](int tap, int e) {
      return e == 0 ? sum[tap].x : e == 1 ? sum[tap].y : e == 2 ? sum[tap].z : sum[tap].w;
    });
  }
}

}  // namespace trigen::wgmma_taps_sm90::weight
