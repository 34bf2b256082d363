// The ring of shared-memory stages between the loading warp and the multiplying warpgroups, and the rules
// that a wgmma_sm90 kernel's config obeys. forward, grad_input and grad_weight use the same ring.
#pragma once

#include "config.h"
#include "pack_activations.h"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "wgmma_sm90.h"

namespace trigen::wgmma_sm90 {

template <Kernel C>
struct Geometry {
  static constexpr Config c = C.config;
  static constexpr int kConsumers = consumers(c);
  static constexpr int kPanels = panels(c);
  static constexpr int kStages = c.stages;
  static constexpr int kCluster = c.cluster;
  static constexpr bool kSquares = squares(C.shape.op, c);
  static constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
  static constexpr int kMajorB = kTokens ? 0 : 1;  // forward, grad_input: 0 is K-major
  static constexpr int kStepB =
      kTokens ? 32 >> 4 : 2048 >> 4;  // 16 elements of k, in units of the descriptor
  static constexpr int kBytesA = rows_bytes(C.shape, c);
  static constexpr int kStageBytes = stage_bytes(C.shape, c);
  static constexpr bool kF32Weights = reads_f32_weights(C.shape, c);
  static constexpr int kStorePanels = store_panels(C.shape, c), kPanelBuffers = panel_buffers(C.shape);
  static constexpr int kSharedBytes = shared_bytes(C.shape, c);
  static constexpr int kReleasingWarps = 4 * kConsumers;  // of a block, for every stage

  static_assert(C.shape.layout == Layout::kBTD || packing::packs_activations(C.shape, C.config) ||
                    (C.shape.op != Op::kGradWeight && !exchanges(C.shape)),
                "features contiguous, or tokens without other tensors than the output");
  static_assert(C.shape.dtype != DType::kF32 ||
                    (C.shape.op == Op::kGradWeight && C.shape.math == Math::kTF32 && C.shape.K <= 1),
                "16-bit data; grad_weight of one tap takes f32, too, multiplied as tf32");
  static_assert(C.shape.op == Op::kGradWeight || (C.shape.K <= 1 && C.shape.pad == 0),
                "one tap: the copy engine cannot shift by single elements");
  static_assert(c.tile_m == 64 || c.tile_m == 128, "one or two warpgroups of 64 rows");
  static_assert(c.tile_n == 64 || c.tile_n == 128 || c.tile_n == 192 || c.tile_n == 256,
                "panels of 64 columns, 256 at most");
  static_assert(c.tile_k == (C.shape.dtype == DType::kF32 ? 32 : 64), "one 128-byte swizzled row");
  static_assert(c.warps_m == 4 * kConsumers && c.warps_n == 1, "a warpgroup is 4 warps along m");
  static_assert(kStages >= 2 && kStages <= 12, "a ring has at least two stages");
  static_assert(kCluster == 1 || kCluster == 2 || (kSquares && kCluster == 4),
                "column tiles that share the row tile of W; squares of 2 x 2 blocks");
  static_assert(kSquares || kConsumers >= kCluster,
                "each block of a cluster loads its share of W's row tile");
  static_assert(kStorePanels >= 1, "no shared memory left to stage the output: fewer stages");
  static_assert(c.blocks == 1, "registers are handed out for one block on an SM");
  static_assert(load_registers(c) + kConsumers * sum_registers(c) <=
                    (kConsumers + 1) * (65536 / register_threads(c) / 8 * 8),
                "setmaxnreg hands out no more registers than the block started with");
};

// Where a loader or consumer stands in the ring.
template <int kStages>
struct RingPosition {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Barriers of the ring: full[stage] completes when a stage's bytes have landed, empty[stage] when every
// consumer warp of the cluster that reads (a share of) this stage has let go of it.
template <class G>
struct Ring {
  static constexpr bool kSquares = requires { requires G::kSquares; };  // other families have none
  static constexpr int kReleases = kSquares ? 3 : G::kCluster;          // blocks whose copies fill a stage
  unsigned base;                                                        // shared address of stage 0
  unsigned barriers;  // shared address of full[0]; empty[0] follows full[kStages - 1]

  __device__ __forceinline__ unsigned a(int stage) const { return base + stage * G::kStageBytes; }
  __device__ __forceinline__ unsigned b(int stage) const {
    return base + stage * G::kStageBytes + G::kBytesA;
  }
  __device__ __forceinline__ unsigned full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ unsigned empty(int stage) const { return barriers + 8 * (G::kStages + stage); }

  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < G::kStages; ++stage) {
      ptx::mbarrier_init(full(stage), 1);
      ptx::mbarrier_init(empty(stage), G::kReleasingWarps * kReleases);
    }
    ptx::mbarrier_fence_init();
  }

  // The loading thread lets go of the stage that it fills for the warps that will not read it. Only it knows
  // that all have let go of what was in the stage before.
  __device__ __forceinline__ void release_unread(int stage, int warps) const {
    ptx::mbarrier_arrive(empty(stage), static_cast<unsigned>(warps));
  }
  // Called by all lanes of a consumer warp once its reads of the stage are complete.
  __device__ __forceinline__ void release(int stage, unsigned lane) const {
    if constexpr (G::kCluster == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty(stage));
    } else if constexpr (kSquares) {  // this block, the other of its row, the other of its column
      if (lane < 3) ptx::mbarrier_arrive_cluster(empty(stage), ptx::cluster_rank() ^ lane);
    } else {
      if (lane < G::kCluster) ptx::mbarrier_arrive_cluster(empty(stage), lane);
    }
  }
};

// Barriers of the staging panels of a warpgroup, behind the ring's: the epilogue's operands have landed in
// one (or it is free), its output is in it.
template <Kernel C>
struct PanelBarriers {
  using G = Geometry<C>;
  unsigned barriers;
  __device__ __forceinline__ PanelBarriers(const Ring<G>& ring, unsigned group)
      : barriers(ring.empty(G::kStages) + 16 * G::kStorePanels * group) {}
  __device__ __forceinline__ unsigned fetched(int slot) const { return barriers + 16 * slot; }
  __device__ __forceinline__ unsigned staged(int slot) const { return barriers + 16 * slot + 8; }
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < G::kStorePanels; ++slot) {
      ptx::mbarrier_init(fetched(slot), 1);
      ptx::mbarrier_init(staged(slot), 4);  // warps
    }
  }
};

// Barriers and maps made ready; every thread of the block calls it first.
template <Kernel C>
__device__ __forceinline__ Ring<Geometry<C>> start(const TensorMap& m0, const TensorMap& m1,
                                                   const TensorMap& m2) {
  using G = Geometry<C>;
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const unsigned base = ptx::shared_address(wgmma_shared);
  const Ring<G> ring{base, base + G::kSharedBytes - kBarrierBytes};
  if (threadIdx.x == 0) {
    if constexpr (exchanges(C.shape))
      for (unsigned group = 0; group < G::kConsumers; ++group) PanelBarriers<C>(ring, group).init();
    ring.init();
    ptx::tma_prefetch(m0);
    ptx::tma_prefetch(m1);
    ptx::tma_prefetch(m2);
  }
  if constexpr (G::kCluster > 1)
    ptx::cluster_sync();
  else
    __syncthreads();
  return ring;
}

}  // namespace trigen::wgmma_sm90
