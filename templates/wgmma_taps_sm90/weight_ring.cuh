// Panels of dy and x on their way to grad_weight's products: shared memory, barriers, the loading thread. One of the two
// operands is shifted for taps and has one panel more in a batch element: x, transposed, of 16-bit data (weight.cuh), dy of f32
// (weight_tf32.cuh).
#pragma once

#include "pack_activations.h"
#include "persistent/roles.cuh"
#include "wgmma_taps_sm90/weight_sums.cuh"

namespace trigen::wgmma_taps_sm90::weight {

using persistent::RingPosition;

template <Kernel C>
inline constexpr bool kShiftsDy = shifts_dy(C.shape.dtype);

// Barriers: panels of dy and of x have landed and are free again; x lies transposed, is used up.
template <Kernel C>
struct Shared {
  static constexpr int kStages = C.config.stages;
  static constexpr int kDyBytes = row_panels(C.config) * kPanelBytes;
  static constexpr int kXBytes = column_panels(C.config, C.shape.K) * kPanelBytes;
  static constexpr int kBuffers = kShiftsDy<C> ? 0 : kTransposed;
  static_assert(8 * (4 * kStages + 2 * kBuffers) <= kBarrierBytes, "the barriers fit");
  unsigned base, barriers;

  __device__ __forceinline__ unsigned dy(int stage) const { return base + stage * kDyBytes; }
  __device__ __forceinline__ unsigned x(int stage) const {
    return base + kStages * kDyBytes + stage * kXBytes;
  }
  __device__ __forceinline__ unsigned transposed(int buffer) const {
    return base + kStages * stage_bytes(C.shape, C.config) + buffer * kTransposedBytes;
  }
  __device__ __forceinline__ unsigned store() const { return transposed(kBuffers); }
  __device__ __forceinline__ unsigned dy_full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ unsigned dy_empty(int stage) const { return dy_full(kStages + stage); }
  __device__ __forceinline__ unsigned x_full(int stage) const { return dy_full(2 * kStages + stage); }
  __device__ __forceinline__ unsigned x_empty(int stage) const { return dy_full(3 * kStages + stage); }
  __device__ __forceinline__ unsigned ready(int buffer) const { return dy_full(4 * kStages + buffer); }
  __device__ __forceinline__ unsigned done(int buffer) const { return ready(kBuffers + buffer); }

  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(dy_full(stage), 1);
      ptx::mbarrier_init(dy_empty(stage), kSumWarps);
      ptx::mbarrier_init(x_full(stage), 1);
      ptx::mbarrier_init(x_empty(stage), kShiftsDy<C> ? kSumWarps : 1);
    }
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      ptx::mbarrier_init(ready(buffer), 1);
      ptx::mbarrier_init(done(buffer), kSumWarps);
    }
    ptx::mbarrier_fence_init();
  }
};

template <Kernel C>
struct Work {
  static constexpr int kFeatures = step_features(C.shape.dtype), kTaps = group_taps(C.shape.K);
  static constexpr int kSteps = schedule::ceil_div(C.shape.D, kFeatures);  // of one batch element
  // The first feature of the shifted operand that a group's taps multiply with the other one's first: x's of the first tap, dy's of
  // the last one.
  __device__ __forceinline__ static int first(int group) {
    return kShiftsDy<C> ? C.shape.pad - kTaps * (group + 1) + 1 : kTaps * group - C.shape.pad;
  }
  // It is loaded from a multiple of 16 bytes on, so many features ahead: the same for all groups.
  static constexpr int kVector = 16 / kBytes<C.shape.dtype>;
  static constexpr int kAhead = (kShiftsDy<C> ? C.shape.pad - kTaps + 1 : -C.shape.pad) & (kVector - 1);
  static_assert(few(C.shape.K) || kTaps % kVector == 0, "groups begin alike");
  // Pieces of 16 features that a batch element's last panel is multiplied by. (A second version of a step costs the
  // sums of all columns of two row panels a copy of their registers: they spill.)
  static constexpr int kLast = row_panels(C.config) > 1
                                   ? 4
                                   : schedule::ceil_div(C.shape.D - kFeatures * (kSteps - 1), kFeatures / 4);
};

template <DType kType>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = kConsumers,
                                                    .load_registers = load_registers(kType),
                                                    .sum_registers = sum_registers(kType),
                                                    .register_threads = kThreads};
template <Kernel C>
struct Geometry : persistent::Geometry<C.config, kWarpgroups<C.shape.dtype>> {
  static_assert((C.shape.dtype != DType::kF32 || C.shape.math == Math::kTF32) &&
                    (C.shape.layout == Layout::kBTD || packing::packs_activations(C.shape, C.config)),
                "16-bit data or f32 as tf32, features contiguous");
  static_assert(C.shape.T > 0 && C.shape.K > 1, "sizes are compiled in");
  static_assert(C.config.tile_k == step_features(C.shape.dtype), "a swizzled row");
  static_assert(kShiftsDy<C> || column_panels(C.config, C.shape.K) == 1, "64 columns of x are transposed");
};

// The loading thread. In a batch element the shifted operand has one panel more: the last panel's taps read into it.
template <Kernel C>
__device__ __forceinline__ void load(const Shared<C>& shared, const StreamK& stream_k,
                                     const TensorMap& map_dy, const TensorMap& map_x) {
  using W = Work<C>;
  RingPosition<C.config.stages> at_dy, at_x;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  for (WorkTile work; walk.next(work);) {
    int head, row, column, group;
    stream_k.locate(work.item, head, row, column, group);
    const int shift = W::first(group) - W::kAhead;
    const auto load_dy = [&](int batch, int feature) {
      ptx::mbarrier_wait(shared.dy_empty(at_dy.stage), at_dy.parity ^ 1);
      ptx::mbarrier_arrive_expect(shared.dy_full(at_dy.stage), Shared<C>::kDyBytes);
#pragma unroll
      for (int panel = 0; panel < row_panels(C.config); ++panel)
        ptx::tma_load(shared.dy(at_dy.stage) + panel * kPanelBytes, map_dy, shared.dy_full(at_dy.stage),
                      feature, C.config.tile_m * row + kPanel * panel, head, batch);
      at_dy.advance();
    };
    const auto load_x = [&](int batch, int feature) {
      ptx::mbarrier_wait(shared.x_empty(at_x.stage), at_x.parity ^ 1);
      ptx::mbarrier_arrive_expect(shared.x_full(at_x.stage), Shared<C>::kXBytes);
#pragma unroll
      for (int panel = 0; panel < column_panels(C.config, C.shape.K); ++panel)
        ptx::tma_load(shared.x(at_x.stage) + panel * kPanelBytes, map_x, shared.x_full(at_x.stage), feature,
                      kBlockColumns<C> * column + kPanel * panel, head, batch);
      at_x.advance();
    };
    const auto load_shifted = [&](int batch, int feature) {
      if constexpr (kShiftsDy<C>)
        load_dy(batch, feature + shift);
      else
        load_x(batch, feature + shift);
    };
    for (int step = work.begin; step < work.end; ++step) {
      const int batch = step / W::kSteps, feature = (step - batch * W::kSteps) * W::kFeatures;
      if (step == work.begin || feature == 0) load_shifted(batch, feature);
      if constexpr (kShiftsDy<C>)
        load_x(batch, feature);
      else
        load_dy(batch, feature);
      load_shifted(batch, feature + W::kFeatures);
    }
  }
}

// True if `step` is the last one of a batch element or of a work tile.
template <Kernel C>
__device__ __forceinline__ bool ends(const WorkTile& work, int step) {
  return step + 1 == work.end || (step + 1) % Work<C>::kSteps == 0;
}

}  // namespace trigen::wgmma_taps_sm90::weight
