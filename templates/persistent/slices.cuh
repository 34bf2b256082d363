// grad_weight of few tiles in one launch (grad_weight.h, slices): the blocks of a cluster multiply a slice of
// one tile's depth each. Every block owns some of the tile's rows, by eights: the others send it their sums of
// these through distributed shared memory, it adds them in the blocks' order and writes them. A block alone
// turns its sums into whole rows by the same way, or, where TMA can store gram's, stages them in the ring.
#pragma once

#include "persistent/grad_weight.cuh"

namespace trigen::persistent::weight {

// The ring is a block's own.
TRIGEN_HOST_DEVICE constexpr Config own_ring(Config c) {
  c.cluster = 1;
  return c;
}

// Output panels are staged in the ring.
template <Kernel C>
inline constexpr bool kStagesOutput = C.shape.op == Op::kGram&& C.config.cluster == 1 && kStagedOutput<C>;

template <Kernel C>
struct SliceGeometry
    : persistent::Geometry<own_ring(C.config), Warpgroups{consumers(C.config), 0, 0, threads(C.config)}> {
  static constexpr Config c = C.config;
  static constexpr int kBytesA = consumers(c) * kPanelBytes;
  static constexpr int kStageBytes = stage_bytes(c);
  static constexpr int kSharedBytes = shared_bytes(c);
  static constexpr int kBarrierBytes = weight::kBarrierBytes;
  // Of the block, in shared memory: the sums that it is sent, [eight][rank], then those of grad_bias, [rank][row].
  static constexpr int kExchange = reuses_ring(c) ? 0 : c.stages * kStageBytes;
  static constexpr int kBiasExchange = kExchange + owned_eights(c) * c.split_k * eight_bytes(c);
  static constexpr int kBiasBytes = owned_eights(c) * kSentRows * 4;
  // Staged output, where a block is alone.
  static constexpr int kStorePanels = ring_panels(c);
  static constexpr bool kReusesPanels = false, kTokens = false;

  static_assert(makes_weights(C.shape.op) && C.shape.K <= 1 && !schedule::sums_diagonals(C.shape),
                "sums dW of one tap, element by element");
  static_assert(c.split_k == c.cluster, "a slice for every block");
  static_assert((c.tile_m == c.tile_n && (c.tile_n == 64 || c.tile_n == 128)) ||
                    (C.shape.op == Op::kGram && c.tile_m == 64 && c.tile_n == 128),
                "the tiles that StreamK counts");
  static_assert(kStagesOutput<C> ? consumers(c) * kStorePanels * kPanelBytes <= c.stages * kStageBytes : true,
                "staged in the ring");
  static_assert(c.warps_m == 4 * consumers(c) && c.warps_n == 1, "a warpgroup is 4 warps along m");
  static_assert(kSharedBytes <= kSharedLimit && c.stages <= 12, "fits");
};

struct SlicedTile {
  int head, row, column;  // first element
  int panels;             // of its columns
  int own;                // of own_panel
  bool any, sums_bias;    // any: there is one for this cluster
};

template <Kernel C>
__device__ __forceinline__ SlicedTile sliced_tile(const StreamK& stream_k, int number, bool itself) {
  SlicedTile tile{.any = number < stream_k.wide + stream_k.narrow};
  if (!tile.any) return tile;
  const bool narrow = number >= stream_k.wide;
  int place, row, column;
  tile.head = stream_k.copy_of(narrow, narrow ? number - stream_k.wide : number, place);
  stream_k.locate(narrow, place, row, column);
  tile.row = kEdge<C> * row;
  tile.column = kEdge<C> * column;
  tile.panels = narrow ? 1 : panels(C.config);
  tile.own = own_panel<C>(itself, tile.row, tile.column, tile.panels);
  tile.sums_bias = C.shape.bias && column == stream_k.first(row);
  return tile;
}

// The loading thread, ahead of griddepcontrol.wait: the first k blocks, into the L2. No value is read.
template <Kernel C>
__device__ __forceinline__ void prefetch_slice(const SlicedTile& tile, int depth, int features, int rank,
                                               const TensorMap& map_dy, const TensorMap& map_x) {
  constexpr int kBlocks = 4;
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
  const int end = schedule::min(depth, rank + kBlocks * C.config.cluster);
  const auto prefetch = [&](const TensorMap& map, const BlockBoxes<C>& from, int token) {
    ptx::tma_prefetch_box(map, kTokens ? token : from.feature, kTokens ? from.feature : token, tile.head,
                          from.batch);
  };
#pragma unroll 1
  for (int block = rank; block < end; block += C.config.cluster) {
    const BlockBoxes<C> from(features, block);
    for (int i = 0; i < tile.panels; ++i) prefetch(map_x, from, tile.column + kPanel * i);
    if (tile.own >= 0) continue;
    for (int i = 0; i < C.config.tile_m / kPanel; ++i) prefetch(map_dy, from, tile.row + kPanel * i);
  }
}

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_slice(const Ring<SliceGeometry<C>>& ring, const SlicedTile& tile,
                                           int depth, int features, int rank, const TensorMap& map_dy,
                                           const TensorMap& map_x) {
  constexpr int kRows = C.config.tile_m / kPanel, kColumns = C.config.tile_n / kPanel;  // in panels
  RingPosition<C.config.stages> at;
  for (int block = rank; block < depth; block += C.config.cluster) {
    const BlockBoxes<C> from(features, block);
    ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
    ptx::mbarrier_arrive_expect(ring.full(at.stage),
                                (tile.panels + (tile.own >= 0 ? 0 : kRows)) * kPanelBytes);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (tile.own >= 0) break;
      load_panel<C, kRows>(ring.a(at.stage), i, map_dy, ring.full(at.stage), from, tile.row + kPanel * i,
                           tile.head);
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i >= tile.panels) break;
      load_panel<C, kColumns>(ring.b(at.stage), i, map_x, ring.full(at.stage), from, tile.column + kPanel * i,
                              tile.head);
    }
    at.advance();
  }
}

// The same shared-memory address in another block of the cluster. A block's own addresses are some of the
// cluster's.
template <Kernel C>
__device__ __forceinline__ unsigned address_in(unsigned address, unsigned rank) {
  if constexpr (C.config.cluster == 1) return address;
  return ptx::cluster_address(address, rank);
}

// Each row to the block that owns it.
template <Kernel C>
__device__ __forceinline__ void send_sums(unsigned shared, const float* sum, const float* bias,
                                          const SlicedTile& tile, unsigned rank) {
  using G = SliceGeometry<C>;
  constexpr unsigned kSlices = C.config.cluster;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned eight = 2 * warp + half, slot = eight / kSlices, owner = eight % kSlices;
    const unsigned to = address_in<C>(
        shared + G::kExchange + (slot * kSlices + rank) * eight_bytes(C.config) + 16 * lane, owner);
#pragma unroll
    for (unsigned i = 0; i < C.config.tile_n / 16; ++i) {
      if (i >= 4 && static_cast<int>(i / 4) >= tile.panels) break;
      const float* const own = sum + 8 * i + 2 * half;
      ptx::store_cluster(to + i * kSentBytes, own[0], own[1], own[4], own[5]);
    }
    if (C.shape.bias && tile.sums_bias && lane % 4 == 0)
      ptx::store_cluster(
          address_in<C>(shared + G::kBiasExchange + rank * G::kBiasBytes + slot * (kSentRows * 4) + lane,
                        owner),
          bias[2 * half]);
  }
}

// This block's rows.
template <Kernel C>
__device__ __forceinline__ void add_sent(const Params& p, unsigned shared, const SlicedTile& tile, int tokens,
                                         int diag, unsigned rank) {
  using G = SliceGeometry<C>;
  constexpr unsigned kSlices = C.config.cluster, kPairs = C.config.tile_n / 2,
                     kAtOnce = kSentRows * kPairs / (128 * G::kConsumers);
  const unsigned thread = threadIdx.x, pairs = static_cast<unsigned>(tile.panels) * (kPanel / 2);
  // Neighbours have one row; where columns become rows, too, they have the eight rows of one pair.
  const auto line_of = [](unsigned at) { return C.shape.mirror ? at % kSentRows : at / kPairs; };
  const auto pair_of = [](unsigned at) { return C.shape.mirror ? at / kSentRows : at % kPairs; };
#pragma unroll 1
  for (unsigned eight = rank; eight < C.config.tile_m / kSentRows; eight += kSlices) {
    const unsigned from = shared + G::kExchange + eight / kSlices * kSlices * eight_bytes(C.config);
    unsigned words[kAtOnce][kSlices][2];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread + i * (128 * G::kConsumers), line = line_of(at), pair = pair_of(at);
      if (pair >= pairs) continue;
      // In the order of send_sums's lanes: columns 16 k + 2 l and + 1, then 16 k + 8 + 2 l and + 1.
      const unsigned own = from + pair / 8 * kSentBytes + (4 * line + pair % 4) * 16 + pair / 4 % 2 * 8;
#pragma unroll
      for (unsigned r = 0; r < kSlices; ++r)
        ptx::load_shared<8>(words[i][r], own + r * eight_bytes(C.config));
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread + i * (128 * G::kConsumers);
      if (pair_of(at) >= pairs) continue;
      float v[2] = {__uint_as_float(words[i][0][0]), __uint_as_float(words[i][0][1])};
#pragma unroll
      for (unsigned r = 1; r < kSlices; ++r) {
        v[0] += __uint_as_float(words[i][r][0]);
        v[1] += __uint_as_float(words[i][r][1]);
      }
      write_pair<C>(p, tile.head, 0, tokens, diag,
                    tile.row + static_cast<int>(eight * kSentRows + line_of(at)),
                    tile.column + static_cast<int>(pair_of(at) * 2), v[0], v[1]);
    }
  }
  const unsigned eight = thread / kSentRows * kSlices + rank;
  if (C.shape.bias && tile.sums_bias && eight < C.config.tile_m / kSentRows) {
    float v = 0;
#pragma unroll
    for (unsigned r = 0; r < kSlices; ++r) {
      unsigned word;
      ptx::load_shared<4>(&word, shared + G::kBiasExchange + r * G::kBiasBytes + thread * 4);
      v = r == 0 ? __uint_as_float(word) : v + __uint_as_float(word);
    }
    write_bias<C>(p, tile.head, tokens, tile.row + static_cast<int>(eight * kSentRows + thread % kSentRows),
                  v);
  }
}

// A cluster for every tile, at least one.
template <Kernel C>
__device__ __forceinline__ void run_slices(const Params& p, const TensorMap& map_dy, const TensorMap& map_x,
                                           const TensorMap& map_dw) {
  using G = SliceGeometry<C>;
  constexpr int kSlices = C.config.cluster, kN = C.config.tile_n;
  const Extents<C> z(p);
  const StreamK stream_k = stream_k_of<C>(p, z, 1);
  constexpr bool kAlone = kSlices == 1;
  const int rank = kAlone ? 0 : static_cast<int>(ptx::cluster_rank());
  const Ring<G> ring = ring_of_block<G>();
  if constexpr (C.shape.bias) {
    if (threadIdx.x < kOnesBytes / 4)
      reinterpret_cast<unsigned*>(shared_memory() + G::kSharedBytes - kOnesBytes)[threadIdx.x] =
          pack<C.shape.dtype>(1.0f, 1.0f);
    ptx::fence_async_shared();
  }
  if (threadIdx.x == 0) {
    ring.init();
    ptx::tma_prefetch(map_dy);
    ptx::tma_prefetch(map_x);
  }
  if constexpr (!kAlone) ptx::cluster_arrive();
  ptx::let_next_launch_start();
  const SlicedTile tile =
      sliced_tile<C>(stream_k, static_cast<int>(blockIdx.x) / kSlices, multiplies_itself<C>(p));
  const int features = depth_rows<C>(p, z.features).features;
  if (C.shape.op == Op::kGram && tile.any && threadIdx.x == 128 * G::kConsumers)
    prefetch_slice<C>(tile, stream_k.depth, features, rank, map_dy, map_x);
  // Every block has begun, and the writes of its first threads are visible.
  if constexpr (kAlone)
    __syncthreads();
  else
    ptx::cluster_wait();
  ptx::wait_for_launches_before();
  const unsigned group = threadIdx.x / 128, lane = threadIdx.x % 32;
  if (group == G::kConsumers) {
    const int warp = static_cast<int>(threadIdx.x / 32 % 4);
    if (tile.any && threadIdx.x % 128 == 0)
      load_slice<C>(ring, tile, stream_k.depth, features, rank, map_dy, map_x);
    __syncwarp();
    if constexpr (reuses_ring(C.config) && !kStagesOutput<C>) ptx::cluster_sync();
    if constexpr (!kAlone) ptx::cluster_arrive();
    if (C.shape.zero_outside && warp > 0)
      write_zeros<C>(p, stream_k, z.heads, z.tokens, static_cast<int>(blockIdx.x) * 3 + warp - 1,
                     static_cast<int>(gridDim.x) * 3, static_cast<int>(lane));
    if constexpr (!kAlone) ptx::cluster_wait();
    return;
  }
  float sum[kN / 2], bias[4];
  if (tile.any) {
    RingPosition<C.config.stages> at;
    const int count = (stream_k.depth - rank + kSlices - 1) / kSlices;
    const BatchEnds<C> ends(rank, kSlices);
    auto& half = reinterpret_cast<float(&)[32]>(sum);
    if (C.shape.bias && tile.sums_bias)
      multiply_work<C, kN, C.shape.bias>(sum, bias, ring, at, count, ends, tile.own, group, lane);
    else if (kN > C.config.tile_m && tile.panels == 1)
      multiply_work<C, 64, false>(half, bias, ring, at, count, ends, tile.own, group, lane);
    else
      multiply_work<C, kN, false>(sum, bias, ring, at, count, ends, tile.own, group, lane);
  }
  if constexpr (kStagesOutput<C>) {
    if (!tile.any) return;
    ptx::named_barrier(G::kConsumers + 1, 128 * G::kConsumers);  // no warp multiplies what lies in the ring
    OutputPanels<G> output(ring, group);
#pragma unroll
    for (int i = 0; i < kN / kPanel; ++i) {
      if (i >= tile.panels) break;
      store_panel<C>(p, output, sum + 32 * i, map_dw, tile.head, 0, z.tokens, z.diag,
                     tile.row + kPanel * static_cast<int>(group), tile.column + kPanel * i);
    }
    output.finish();
    return;
  }
  if constexpr (reuses_ring(C.config)) ptx::cluster_sync();
  if (tile.any) send_sums<C>(ring.base, sum, bias, tile, static_cast<unsigned>(rank));
  // All sums have come.
  if constexpr (kAlone) {
    ptx::named_barrier(1, 128 * G::kConsumers);
  } else {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  if (tile.any) add_sent<C>(p, ring.base, tile, z.tokens, z.diag, static_cast<unsigned>(rank));
}

}  // namespace trigen::persistent::weight
