// grad_weight with several taps: dW[t, s, j] = sum over (b, d) of dy[b, t, d] x[b, s, d + j - pad].
//
// A thread block sums 64 or 128 t by 64 s and a group of taps (wgmma_taps_sm90.h): A = dy, read into registers once
// for all taps, B = x^T, transposed once in shared memory as in transpose.cuh and read MN-major: k is the
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
#include "wgmma_taps_sm90/weight_rows.cuh"

namespace trigen::wgmma_taps_sm90::weight {

using persistent::RingPosition;
using persistent::weight::fill_zeros;
using persistent::weight::write_bias;

// Barriers: panels of dy and of x have landed and are free again; x lies transposed, is used up.
template <Kernel C>
struct Shared {
  static constexpr int kStages = C.config.stages;
  static constexpr int kDyBytes = row_panels(C.config) * kPanelBytes;
  static_assert(8 * (4 * kStages + 2 * kTransposed) <= kBarrierBytes, "the barriers fit");
  unsigned base, barriers;

  __device__ __forceinline__ unsigned dy(int stage) const { return base + stage * kDyBytes; }
  __device__ __forceinline__ unsigned x(int stage) const {
    return base + kStages * kDyBytes + stage * kPanelBytes;
  }
  __device__ __forceinline__ unsigned transposed(int buffer) const {
    return base + kStages * stage_bytes(C.config) + buffer * kTransposedBytes;
  }
  __device__ __forceinline__ unsigned store() const { return transposed(kTransposed); }
  __device__ __forceinline__ unsigned dy_full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ unsigned dy_empty(int stage) const { return dy_full(kStages + stage); }
  __device__ __forceinline__ unsigned x_full(int stage) const { return dy_full(2 * kStages + stage); }
  __device__ __forceinline__ unsigned x_empty(int stage) const { return dy_full(3 * kStages + stage); }
  __device__ __forceinline__ unsigned ready(int buffer) const { return dy_full(4 * kStages + buffer); }
  __device__ __forceinline__ unsigned done(int buffer) const { return ready(kTransposed + buffer); }

  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(dy_full(stage), 1);
      ptx::mbarrier_init(dy_empty(stage), kSumWarps);
      ptx::mbarrier_init(x_full(stage), 1);
      ptx::mbarrier_init(x_empty(stage), 1);
    }
    for (int buffer = 0; buffer < kTransposed; ++buffer) {
      ptx::mbarrier_init(ready(buffer), 1);
      ptx::mbarrier_init(done(buffer), kSumWarps);
    }
    ptx::mbarrier_fence_init();
  }
};

template <Kernel C>
struct Work {
  static constexpr int kSteps = schedule::ceil_div(C.shape.D, kPanel);  // of one batch element
  // The feature of x that a group's first tap multiplies with dy's first; x is loaded from a multiple of 8 on.
  __device__ __forceinline__ static int first(int group) {
    return group_taps(C.config) * group - C.shape.pad;
  }
  // Pieces of 16 features that a batch element's last panel is multiplied by. (A second version of a step costs the
  // sums of all columns of two row panels a copy of their registers: they spill.)
  static constexpr int kLast = row_panels(C.config) > 1
                                   ? 4
                                   : schedule::ceil_div(C.shape.D - kPanel * (kSteps - 1), 16);
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
    const int shift = W::first(group) & ~7;
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
      ptx::mbarrier_arrive_expect(shared.dy_full(at_dy.stage), Shared<C>::kDyBytes);
#pragma unroll
      for (int panel = 0; panel < row_panels(C.config); ++panel)
        ptx::tma_load(shared.dy(at_dy.stage) + panel * kPanelBytes, map_dy, shared.dy_full(at_dy.stage),
                      feature, C.config.tile_m * row + kPanel * panel, head, batch);
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

// A block's row that this warp's 16 begin with.
template <Kernel C>
__device__ __forceinline__ unsigned first_row() {
  return threadIdx.x / 32 % (C.config.tile_m / 16) * 16;
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
  const int lane = thread % 32, tap = kManyTaps * group + 4 * (thread / 128);
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
  const int lane = static_cast<int>(threadIdx.x % 32), blocks = static_cast<int>(gridDim.x);
  for (int all = static_cast<int>(blockIdx.x * kSumWarps + threadIdx.x / 32); all < s.H * s.T;
       all += kSumWarps * blocks) {
    const int head = all / s.T, row = all - head * s.T, item = row / C.config.tile_m;
    const int begin = s.fill == Fill::kLower ? kPanel * stream_k.span(item) : 0;
    const int end = s.fill == Fill::kLower ? s.T : schedule::min(kPanel * stream_k.first(item), s.T);
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

// The block of dW that a work tile sums.
struct Block {
  int head, row, column, group;
  bool part, begins;  // an incomplete sum; its first part
  __device__ __forceinline__ Block(const StreamK& stream_k, const WorkTile& work)
      : part(work.end - work.begin < stream_k.depth), begins(work.begin == 0) {
    stream_k.locate(work.item, head, row, column, group);
  }
};

template <Kernel C>
__device__ __forceinline__ void store_bias(const Params& p, const StreamK& stream_k, const Block& block,
                                           const float (&bias)[2]) {
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = static_cast<int>(first_row<C>() + threadIdx.x % 32 / 4) + 8 * r;
    if (block.part)
      static_cast<float*>(p.workspace)[stream_k.bias_slot(static_cast<int>(blockIdx.x), block.begins) + own] =
          bias[r];
    else
      write_bias<C>(p, block.head, C.shape.T, C.config.tile_m * block.row + own, bias[r]);
  }
}

// The sums go to the workspace or to dW.
template <Kernel C, int kTaps>
__device__ __forceinline__ void store(const Params& p, unsigned staged, const StreamK& stream_k,
                                      const Block& block, const float (&sum)[kTaps][32]) {
  constexpr int kLanes = 32 * kSumWarps, kAtOnce = kStoreColumns / 8;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  if (block.part) {
    // 16 bytes a thread, one thread after the other, as `reduce` reads them.
    auto* const to = reinterpret_cast<float4*>(static_cast<float*>(p.workspace) +
                                               stream_k.slot(static_cast<int>(blockIdx.x), block.begins)) +
                     thread;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice)
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap)
        to[(kTaps * slice + tap) * kLanes] = make_float4(sum[tap][4 * slice], sum[tap][4 * slice + 1],
                                                         sum[tap][4 * slice + 2], sum[tap][4 * slice + 3]);
    return;
  }
  if constexpr (few(C.shape.K)) {
    staged += thread / 32 * 16 * store_pitch(kTaps, kStoreColumns);
#pragma unroll
    for (int slice = 0; slice < kSlices; slice += kAtOnce)
      store_rows<C, kStoreColumns>(p, staged, block.head,
                                   C.config.tile_m * block.row + static_cast<int>(first_row<C>()),
                                   kPanel * block.column + 8 * slice, lane,
                                   [&](int i, int tap, int e) { return sum[tap][4 * (slice + i) + e]; });
  } else {
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice)
      write_slice<C>(p, block.head, block.row, block.column, block.group, slice, thread,
                     [&](int tap, int e) { return sum[tap][4 * slice + e]; });
  }
}

// All taps of the first 16 * kPieces features of a step. A's registers are free afterwards; the other warpgroup
// multiplies while this one reads.
template <DType kType, int kPieces, int kTaps>
__device__ __forceinline__ void multiply_step(float (&sum)[kTaps][32], const unsigned (&a)[4][4],
                                              unsigned long long b, int keep) {
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      ptx::wgmma_rs<kType, 64, 1>(sum[tap], a[i], b + 16 * i + tap, keep | i);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply(const Params& p, const Shared<C>& shared, const StreamK& stream_k,
                                         unsigned group) {
  using W = Work<C>;
  constexpr DType kType = C.shape.dtype;
  constexpr bool kDividesTaps = divides_taps(C.config);
  constexpr int kTaps = warpgroup_taps(C.config);
  const unsigned lane = threadIdx.x % 32;
  // Row lane % 16 of the warp's, 16-byte chunk 2 i + lane / 16 of 16 features.
  const unsigned line = (first_row<C>() + lane % 16) * 128;
  RingPosition<C.config.stages> at;
  RingPosition<kTransposed> from;
  float sum[kTaps][32];
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    Block block(stream_k, work);
    const bool with_bias = C.shape.bias && (!kDividesTaps || group == 0) &&
                           stream_k.sums_bias(block.row, block.column, block.group);
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
          shared.transposed(from.stage) +
              ((W::first(block.group) & 7) + (kDividesTaps ? kTaps * group : 0)) * 16,
          16 * kFeatures);
      if (W::kLast < 4 && (step + 1) % W::kSteps == 0)
        multiply_step<kType, W::kLast>(sum, a, b, step > work.begin);
      else
        multiply_step<kType, 4>(sum, a, b, step > work.begin);
      __syncwarp();  // one lane lets go of what all have read
      if (lane == 0) {
        ptx::mbarrier_arrive(shared.dy_empty(at.stage));
        ptx::mbarrier_arrive(shared.done(from.stage));
      }
      at.advance();
      from.advance();
    }
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) ptx::pin(sum[tap]);
    if constexpr (C.shape.bias) {
      if (with_bias) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          bias[r] += __shfl_xor_sync(~0u, bias[r], 1);
          bias[r] += __shfl_xor_sync(~0u, bias[r], 2);
        }
      }
    }
    if (with_bias) store_bias<C>(p, stream_k, block, bias);
    store<C>(p, shared.store(), stream_k, block, sum);
  }
}

template <Kernel C>
__device__ __forceinline__ void run(const Params& p, const TensorMap& map_dy, const TensorMap& map_x) {
  const unsigned base = ptx::shared_address(persistent::shared_memory());
  const Shared<C> shared{base, base + static_cast<unsigned>(shared_bytes(C.config)) - kBarrierBytes};
  persistent::prepare<Geometry<C>>([&] { shared.init(); }, map_dy, map_x);
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();  // the reduction waits for what is written here
  const StreamK stream_k(C.shape, C.config, p.B, static_cast<int>(gridDim.x));
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

// The second kernel: adds the parts of every shared item, a warp 8 columns of 16 rows at a time.
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  constexpr int kTaps = warpgroup_taps(C.config), kUnits = kSlices * kSumWarps;
  const StreamK stream_k(C.shape, C.config, p.B, static_cast<int>(gridDim.x) / kReduceBlocks);
  const int lane = static_cast<int>(threadIdx.x % 32), own_warp = static_cast<int>(threadIdx.x / 32),
            warps = static_cast<int>(gridDim.x) * (kReduceThreads / 32);
  ptx::wait_for_launches_before();
  for (int all = static_cast<int>(blockIdx.x) * (kReduceThreads / 32) + own_warp;
       all < stream_k.rest() * kUnits; all += warps) {
    const int index = all / kUnits, slice = all % kUnits / kSumWarps, warp = all % kSumWarps;
    const int first = stream_k.owner(index * stream_k.depth),
              last = stream_k.owner((index + 1) * stream_k.depth - 1);
    if (first == last) continue;
    const auto part = [&](int block, int tap) {
      return reinterpret_cast<const float4*>(
          static_cast<const float*>(p.workspace) +
          stream_k.slot(block, block == first))[((kTaps * slice + tap) * kSumWarps + warp) * 32 + lane];
    };
    float4 sum[kTaps];
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) sum[tap] = part(first, tap);
#pragma unroll 4
    for (int block = first + 1; block <= last; ++block)
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const float4 v = part(block, tap);
        sum[tap].x += v.x, sum[tap].y += v.y, sum[tap].z += v.z, sum[tap].w += v.w;
      }
    int head, row, column, group;
    stream_k.locate(stream_k.whole_items + index, head, row, column, group);
    if constexpr (C.shape.bias) {
      if (slice == 0 && lane < 16 && warp < C.config.tile_m / 16 && stream_k.sums_bias(row, column, group)) {
        const auto* const from = static_cast<const float*>(p.workspace) + 16 * warp + lane;
        float v = from[stream_k.bias_slot(first, true)];
        for (int block = first + 1; block <= last; ++block) v += from[stream_k.bias_slot(block, false)];
        write_bias<C>(p, head, C.shape.T, C.config.tile_m * row + 16 * warp + lane, v);
      }
    }
    const auto own = [&](int tap, int e) {
      return e == 0 ? sum[tap].x : e == 1 ? sum[tap].y : e == 2 ? sum[tap].z : sum[tap].w;
    };
    if constexpr (few(C.shape.K)) {
      constexpr int kWarpBytes = reduce_bytes(kTaps) / (kReduceThreads / 32);
      store_rows<C, 8>(p, ptx::shared_address(persistent::shared_memory()) + own_warp * kWarpBytes, head,
                       C.config.tile_m * row + 16 * warp, kPanel * column + 8 * slice, lane,
                       [&](int, int tap, int e) { return own(tap, e); });
    } else {
      write_slice<C>(p, head, row, column, group, slice, 32 * warp + lane, own);
    }
  }
}

}  // namespace trigen::wgmma_taps_sm90::weight
