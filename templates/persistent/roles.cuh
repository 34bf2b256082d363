// Start and roles of a persistent block: barriers and tensor maps are made ready, then the last warpgroup
// gives registers up and loads while the others take them and multiply.
#pragma once

#include "params.h"
#include "persistent/tile_scheduler.h"

#include "persistent/ring.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"

namespace trigen::persistent {

__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(1024) unsigned char persistent_shared[];
  return persistent_shared;
}

// The block's ring in shared memory.
template <class G>
__device__ __forceinline__ Ring<G> ring_of_block() {
  const unsigned base = ptx::shared_address(shared_memory());
  return {base, base + G::kSharedBytes - G::kBarrierBytes};
}

// Every thread of the block calls it first. init(): one thread makes the barriers.
template <class G, class Init, class... Maps>
__device__ __forceinline__ void prepare(const Init& init, const Maps&... maps) {
  if (threadIdx.x == 0) {
    init();
    (ptx::tma_prefetch(maps), ...);
  }
  if constexpr (G::kCluster > 1)
    ptx::cluster_sync();
  else
    __syncthreads();
}

// load(thread): the threads of the last warpgroup, from 0 on. multiply(group): the other ones.
template <class G, class Load, class Multiply>
__device__ __forceinline__ void split_roles(const Load& load, const Multiply& multiply) {
  const unsigned group = threadIdx.x / 128;
  if (group == G::kConsumers) {
    ptx::release_registers<G::kLoadRegisters>();
    load(threadIdx.x - 128 * G::kConsumers);
  } else {
    ptx::claim_registers<G::kSumRegisters>();
    multiply(group);
  }
  if constexpr (G::kCluster > 1) ptx::cluster_sync();  // no block may leave while a peer still writes into it
}

// A problem's sizes, compiled in or given at run time.
template <Kernel C>
struct Extents {
  int tokens, features, heads;
  int width;  // of a band, or 0
  int diag;  // of the product, in terms of (row, k): lower keeps k <= row + diag, upper keeps k >= row + diag
  __device__ __forceinline__ explicit Extents(const Params& p)
      : tokens(C.shape.T ? C.shape.T : p.T),
        features(C.shape.D ? C.shape.D : p.D),
        heads(C.shape.H ? C.shape.H : p.H),
        width(C.shape.w != WeightForm::kBand ? 0
              : C.shape.T                    ? C.shape.width
                                             : p.width),
        diag((C.shape.op == Op::kGradInput ? -1 : 1) * (C.shape.T ? C.shape.diag : p.diag)) {}
};

// Does the L2 have no room for a 16-bit output?
template <Kernel C>
__device__ __forceinline__ bool output_exceeds_l2(const Params& p) {
  const Extents<C> e(p);
  return 2LL * p.B * e.heads * e.tokens * e.features > kL2Bytes;
}
// Do its rows end with sectors of 32 bytes? Two boxes write a sector that is of two rows, or of two panels behind such a row.
template <Kernel C>
__device__ __forceinline__ bool output_has_whole_sectors(const Params& p) {
  const Extents<C> e(p);
  return (C.shape.layout == Layout::kBTD ? e.features : e.tokens) % 16 == 0;
}
// Where the L2 has no room for the output, its lines, which no launch after will find there, give way to what is read: 1 to 4 % of
// a product that memory bounds, nothing or less elsewhere (docs/experiments/wgmma_sm90.md). Sectors that wait for a second box
// stay: 1 to 4 % (docs/experiments/wgmma_resident_sm90.md).
template <Kernel C>
__device__ __forceinline__ ptx::Evicted output_eviction(const Params& p) {
  return !output_exceeds_l2<C>(p)         ? ptx::Evicted::kNormal
         : output_has_whole_sectors<C>(p) ? ptx::Evicted::kFirst
                                          : ptx::Evicted::kLast;
}

// This block's walk over the tiles.
template <Kernel C>
__device__ __forceinline__ TileScheduler scheduler_of_block(int rows, int columns) {
  return scheduler_of(C.shape, C.config, rows, columns, static_cast<int>(gridDim.x) / C.config.cluster,
                      static_cast<int>(blockIdx.x) / C.config.cluster);
}
// This block's number in its cluster.
template <class G>
__device__ __forceinline__ unsigned rank_in_cluster() {
  return G::kCluster == 1 ? 0 : ptx::cluster_rank();
}

}  // namespace trigen::persistent
