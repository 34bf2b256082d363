// The ring of stages and a multiplying warpgroup's products of a stage: three products of planes in f16,
// summed by the tensor core over 64 elements of k, then scaled and added to the sums proper in registers.
#pragma once

#include "config.h"
#include "persistent/roles.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "wgmma_split_sm90.h"

namespace trigen::wgmma_split_sm90 {

template <Config c>
inline constexpr persistent::Warpgroups kWarpgroups{.consumers = consumers(c),
                                                    .load_registers = splits_inside(c) ? 0 : kLoadRegisters,
                                                    .sum_registers = splits_inside(c) ? 0 : sum_registers(c),
                                                    .register_threads = threads(c)};

template <Kernel C>
struct Geometry : persistent::Geometry<C.config, kWarpgroups<C.config>> {
  static constexpr Config c = C.config;
  using Base = persistent::Geometry<c, kWarpgroups<c>>;
  using Base::kCluster, Base::kConsumers, Base::kStages;
  static constexpr bool kInside = splits_inside(c);
  static constexpr bool kStacks = stacks(c, C.shape.T);
  static constexpr int kPanels = c.tile_n / kPanel;
  static constexpr int kColumns = kStacks ? kPanel : c.tile_n;  // of a warpgroup's products
  static constexpr int kPlaneA = kConsumers * kPanelBytes;      // bytes from one plane of a stage to the next
  static constexpr int kPlaneB = kPanels * kPanelBytes;
  static constexpr int kBytesA = kPlanes * kPlaneA;
  static constexpr int kStageBytes = stage_bytes(c);
  static constexpr int kSharedBytes = shared_bytes(c);
  static constexpr int kBarrierBytes = wgmma_split_sm90::kBarrierBytes;
  static constexpr int kSums = kColumns / 2;  // of a thread

  static_assert(C.shape.dtype == DType::kF32 && C.shape.wdtype == DType::kF32 &&
                    C.shape.math == Math::kF16x3 && C.shape.layout == Layout::kBTD,
                "f32 data, features contiguous");
  static_assert(C.shape.K <= 1 && C.shape.pad == 0, "one tap");
  static_assert(c.tile_n == 128 && c.tile_k == 64, "three sets of 64 sums a thread");
  static_assert(c.tile_m == 128 || (c.tile_m == 64 && !makes_weights(C.shape.op)),
                "two warpgroups, or one where no other block has parts of its tile");
  static_assert(c.warps_m == 4 * kConsumers && c.warps_n == 1, "a warpgroup is 4 warps along m");
  static_assert(kSharedBytes <= kSharedLimit, "stages in all of shared memory");
  static_assert(16 * kStages <= kBarrierBytes, "two barriers a stage");
  static_assert(!kInside || (C.shape.op == Op::kGradWeight && c.box == kBox && kStages == 2),
                "dW from boxes of a swizzled row of f32, two stages beside the slots");
  static_assert(!kInside || (threads(c) == 512 && kConsumers == kSplitGroups),
                "a splitting and a multiplying thread have 2 x 128 registers, which the block started with");
  static_assert(kCluster == 1, "blocks share nothing");
};

template <class G>
struct SplitRing : persistent::Ring<G> {
  unsigned scales;  // shared address of stage 0's: A's boxes, then B's

  // A splitting warp's slots, behind the stages; their barriers, ahead of the ring's.
  __device__ __forceinline__ unsigned raw(int warp, int slot) const {
    return this->base + G::kStages * G::kStageBytes + (warp * kRawSlots + slot) * 2 * kRawBoxBytes;
  }
  __device__ __forceinline__ unsigned raw_full(int warp, int slot) const {
    return this->barriers - kRawBarrierBytes + 8 * (warp * kRawSlots + slot);
  }
  __device__ __forceinline__ void init() const {
    if constexpr (G::kInside) {
      for (int i = 0; i < kSplitWarps * kRawSlots; ++i) ptx::mbarrier_init(raw_full(0, i), 1);
      persistent::Ring<G>::init(kSplitWarps);
    } else {
      persistent::Ring<G>::init();
    }
  }
  __device__ __forceinline__ unsigned scales_a(int stage) const {
    return scales + stage * (G::kConsumers + G::kPanels) * kScaleBytes;
  }
  __device__ __forceinline__ unsigned scales_b(int stage) const {
    return scales_a(stage) + G::kConsumers * kScaleBytes;
  }
};

// A plan that all warps of the block read, in the second half of the barriers' bytes. In registers it would
// take the place of sums while a tile is multiplied.
template <Kernel C, class T>
__device__ __forceinline__ T& shared_plan() {
  static_assert(16 * C.config.stages <= kBarrierBytes / 2 && sizeof(T) <= kBarrierBytes / 2,
                "barriers and plan have half each");
  return *reinterpret_cast<T*>(persistent::shared_memory() + Geometry<C>::kSharedBytes - kBarrierBytes / 2);
}

// Barriers and plan made ready; every thread of the block calls it first.
template <Kernel C, class T, class... Maps>
__device__ __forceinline__ SplitRing<Geometry<C>> start(const T& plan, const Maps&... maps) {
  using G = Geometry<C>;
  const persistent::Ring<G> base = persistent::ring_of_block<G>();
  const SplitRing<G> ring{base, base.base + G::kStages * G::kStageBytes + (G::kInside ? kRawBytes : 0)};
  T& shared = shared_plan<C, T>();
  // Gaps between members too: wide loads read them.
  if (threadIdx.x < sizeof(T) / 4) reinterpret_cast<unsigned*>(&shared)[threadIdx.x] = 0;
  __syncthreads();
  persistent::prepare<G>(
      [&] {
        shared = plan;
        ring.init();
      },
      maps...);
  return ring;
}

// Loads of boxes, by number in the workspace: of A and of B.
template <Kernel C>
struct BoxLoader {
  using G = Geometry<C>;
  const SplitRing<G>& ring;
  const unsigned char* workspace;
  const Workspace& ws;

  __device__ __forceinline__ void load_a(int stage, int i, int box) const {
    const unsigned char* from = workspace + ws.a + static_cast<long long>(box) * kBoxBytes;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane)
      ptx::bulk_load(ring.a(stage) + plane * G::kPlaneA + i * kPanelBytes, from + plane * kPanelBytes,
                     kPanelBytes, ring.full(stage));
    ptx::bulk_load(ring.scales_a(stage) + i * kScaleBytes,
                   workspace + ws.a_scales + static_cast<long long>(box) * kScaleBytes, kScaleBytes,
                   ring.full(stage));
  }
  __device__ __forceinline__ void load_b(int stage, int i, int box) const {
    const unsigned char* from = workspace + ws.b + static_cast<long long>(box) * kBoxBytes;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane)
      ptx::bulk_load(ring.b(stage) + plane * G::kPlaneB + i * kPanelBytes, from + plane * kPanelBytes,
                     kPanelBytes, ring.full(stage));
    ptx::bulk_load(ring.scales_b(stage) + i * kScaleBytes,
                   workspace + ws.b_scales + static_cast<long long>(box) * kScaleBytes, kScaleBytes,
                   ring.full(stage));
  }
};

// One multiplying warpgroup over the stages of a tile. Two sets of block sums take turns: the products of one
// stage run while the sums of the stage before are scaled and added.
template <Kernel C, int kTransposeA, int kTransposeB>
struct Multiplier {
  using G = Geometry<C>;
  static constexpr int kStepA = kTransposeA ? 2048 >> 4 : 32 >> 4;  // 16 elements of k, in descriptor units
  static constexpr int kStepB = kTransposeB ? 2048 >> 4 : 32 >> 4;
  const SplitRing<G>& ring;
  persistent::RingPosition<G::kStages> at;
  unsigned group, warp, lane;
  float sum[G::kSums];
  float even[G::kSums], odd[G::kSums];

  __device__ __forceinline__ Multiplier(const SplitRing<G>& r, unsigned g)
      : ring(r), group(g), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32) {}

  // The products of this stage, smallest first: of kSteps times 16 elements of k.
  template <int kSteps = 4>
  __device__ __forceinline__ void issue(float (&part)[G::kSums]) {
    constexpr int kN = G::kColumns;
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned long long a = ptx::descriptor(ring.a(at.stage) + group * kPanelBytes, kPanelBytes);
    const unsigned long long b =
        ptx::descriptor(ring.b(at.stage) + (G::kStacks ? group * kPanelBytes : 0), kPanelBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
      ptx::wgmma_ss<DType::kF16, kN, kTransposeA, kTransposeB>(part, a + (G::kPlaneA >> 4) + i * kStepA,
                                                               b + i * kStepB, i);
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
      ptx::wgmma_ss<DType::kF16, kN, kTransposeA, kTransposeB>(part, a + i * kStepA,
                                                               b + (G::kPlaneB >> 4) + i * kStepB, 1);
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
      ptx::wgmma_ss<DType::kF16, kN, kTransposeA, kTransposeB>(part, a + i * kStepA, b + i * kStepB, 1);
    ptx::wgmma_commit();
  }

  // The stage is let go; sum += part, scaled.
  __device__ __forceinline__ void add(float (&part)[G::kSums], int stage) {
    ptx::pin(part);
    const unsigned from_a = ring.scales_a(stage) + group * kScaleBytes + 16 * warp + lane / 4;
    const float row0 = scale(from_a), row1 = scale(from_a + 8);
    constexpr int kPanels = G::kColumns / kPanel;
    unsigned bytes[kPanels][4];
#pragma unroll
    for (int i = 0; i < kPanels; ++i)
      ptx::load_shared<16>(bytes[i], ring.scales_b(stage) + i * kScaleBytes +
                                         (G::kStacks ? group * kScaleBytes : 0) + lane % 4 * 16);
    __syncwarp();
    ring.release(stage, lane);
#pragma unroll
    for (int i = 0; i < kPanels; ++i)
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        const float column = __uint_as_float((bytes[i][n / 4] >> (n % 4 * 8) & 0xff) << 23);
        const int at_sum = 32 * i + n / 2 * 4 + n % 2;
        sum[at_sum] = fmaf(part[at_sum], row0 * column, sum[at_sum]);
        sum[at_sum + 2] = fmaf(part[at_sum + 2], row1 * column, sum[at_sum + 2]);
      }
  }
  __device__ __forceinline__ static float scale(unsigned address) {
    return __uint_as_float(ptx::load_shared_byte(address) << 23);
  }

  // `count` stages of products, one set of block sums. halves(i): 1 where a stage has 32 elements of k, else 2.
  template <class Halves>
  __device__ __forceinline__ void multiply_one_by_one(int count, const Halves& halves) {
#pragma unroll
    for (int i = 0; i < G::kSums; ++i) sum[i] = 0.0f;
    for (int i = 0; i < count; ++i) {
      if (halves(i) == 1)
        issue<2>(even);
      else
        issue(even);
      ptx::wgmma_wait<0>();
      add(even, at.stage);
      at.advance();
    }
  }

  // `count` stages of products, then `skipped` ones that only the other warpgroup multiplies.
  __device__ __forceinline__ void multiply(int count, int skipped) {
#pragma unroll
    for (int i = 0; i < G::kSums; ++i) sum[i] = 0.0f;
    if (count > 0) {
      issue(even);
      int in_flight = at.stage;
      at.advance();
      int left = count - 1;
      for (; left >= 2; left -= 2) {
        issue(odd);
        ptx::wgmma_wait<1>();
        add(even, in_flight);
        in_flight = at.stage;
        at.advance();
        issue(even);
        ptx::wgmma_wait<1>();
        add(odd, in_flight);
        in_flight = at.stage;
        at.advance();
      }
      if (left == 1) {
        issue(odd);
        ptx::wgmma_wait<1>();
        add(even, in_flight);
        in_flight = at.stage;
        at.advance();
        ptx::wgmma_wait<0>();
        add(odd, in_flight);
      } else {
        ptx::wgmma_wait<0>();
        add(even, in_flight);
      }
    }
    for (int i = 0; i < skipped; ++i) {
      ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      persistent::stay_together<G>();
      ring.release(at.stage, lane);
      at.advance();
    }
  }
};

}  // namespace trigen::wgmma_split_sm90
