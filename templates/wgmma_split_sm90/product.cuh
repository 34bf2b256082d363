// forward and grad_input: as wgmma_sm90's product.cuh, on the planes that the first launch wrote. Masked
// weights are zeros there, so that whole blocks are multiplied.
//
//   forward     A = W, K-major;    B = x, MN-major
//   grad_input  A = W^T, MN-major; B = dy, MN-major
#pragma once

#include "activation.cuh"
#include "params.h"
#include "wgmma_split_sm90/pipeline.cuh"

namespace trigen::wgmma_split_sm90 {

// The tiles of this block, and their blocks of k.
template <Kernel C>
struct ProductTiles : persistent::Extents<C> {
  using G = Geometry<C>;
  static constexpr Fill kFill = persistent::product_fill(C.shape);
  int blocks, batch_panels, head_units;

  __device__ __forceinline__ explicit ProductTiles(const Params& p)
      : persistent::Extents<C>(p),
        blocks(schedule::ceil_div(this->tokens, kPanel)),
        batch_panels(schedule::ceil_div(this->features, kPanel)),
        head_units(column_units(C.config, p.B, this->features)) {}
  __device__ __forceinline__ persistent::TileScheduler scheduler() const {
    return persistent::scheduler_of_block<C>(persistent::row_tiles(C.config, this->tokens),
                                             this->heads * head_units);
  }
  // Blocks of k that 64 rows meet; none where all of them are beyond the last token.
  __device__ __forceinline__ int k_blocks(int row, int group) const {
    const int first = row * C.config.tile_m + 64 * group;
    return first < this->tokens ? persistent::KRange(kFill, first, this->diag, blocks).blocks : 0;
  }
  __device__ __forceinline__ int longest(int row) const {
    int most = 0;
#pragma unroll
    for (int i = 0; i < G::kConsumers; ++i) most = schedule::max(most, k_blocks(row, i));
    return most;
  }
};

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_product(const BoxLoader<C>& loader, const ProductTiles<C>& tiles,
                                             int batches) {
  using G = Geometry<C>;
  const Workspace& ws = loader.ws;
  persistent::RingPosition<G::kStages> at;
  persistent::TileScheduler scheduler = shared_plan<C, persistent::TileScheduler>();
  for (int row, column; scheduler.next(row, column);) {
    const int head = column / tiles.head_units;
    const int panel = (column - head * tiles.head_units) * G::kPanels;
    const int total = tiles.longest(row);
    int k_blocks[G::kConsumers];
#pragma unroll
    for (int i = 0; i < G::kConsumers; ++i) k_blocks[i] = tiles.k_blocks(row, i);
    for (int block = 0; block < total; ++block) {
      const int k = ProductTiles<C>::kFill == Fill::kLower ? block : tiles.blocks - 1 - block;
      int count = G::kPanels;
#pragma unroll
      for (int i = 0; i < G::kConsumers; ++i) count += block < k_blocks[i];
      ptx::mbarrier_wait(loader.ring.empty(at.stage), at.parity ^ 1);
      ptx::mbarrier_arrive_expect(loader.ring.full(at.stage), count * (kBoxBytes + kScaleBytes));
#pragma unroll
      for (int i = 0; i < G::kConsumers; ++i)
        if (block < k_blocks[i]) {
          const int m = G::kConsumers * row + i;
          loader.load_a(at.stage, i,
                        C.shape.op == Op::kForward ? ws.weight(head, m, k) : ws.weight(head, k, m));
        }
#pragma unroll
      for (int i = 0; i < G::kPanels; ++i) {
        // Beyond the last batch: any box, its sums are not stored.
        const int own = schedule::min(panel + i, batches * tiles.batch_panels - 1),
                  batch = own / tiles.batch_panels;
        loader.load_b(at.stage, i,
                      ws.activation(tiles.heads, batch, head, k, own - batch * tiles.batch_panels));
      }
      at.advance();
    }
  }
}

// A panel's sums of one row become outputs: two features a thread, from `feature` on, in each of eight groups of 8. What is added
// comes in before the first output leaves, all loads under way at once.
template <Kernel C>
struct RowEpilogue {
  static constexpr Shape s = C.shape;
  static constexpr bool kPairs = C.config.vec_c > 1;
  static constexpr int kGroups = 8;

  const Params& p;
  int head, batch, row, feature, features;
  float gate[s.gate ? kGroups : 1][2], residual[s.residual ? kGroups : 1][2];

  __device__ __forceinline__ RowEpilogue(const Params& p, int head, int batch, int row, int feature,
                                         int features)
      : p(p), head(head), batch(batch), row(row), feature(feature), features(features) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if constexpr (s.gate) read(gate[n], p.gate, n);
      if constexpr (s.residual) read(residual[n], p.residual, n);
    }
  }
  __device__ __forceinline__ void store(int n, float bias, float low, float high) const {
    if (count(n) == 0) return;
    float v[2] = {low, high};
    if constexpr (s.bias) v[0] += bias, v[1] += bias;
    if constexpr (s.pre) write(p.pre, n, v);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      v[e] = activate<s.act, DType::kF32>(v[e]);
      if constexpr (s.gate) v[e] *= gate[n][e];
      if constexpr (s.residual) v[e] += residual[n][e];
    }
    write(s.op == Op::kForward ? p.y : p.x, n, v);
  }

 private:
  // Features of the thread's two that there are.
  __device__ __forceinline__ int count(int n) const {
    const int left = features - (feature + 8 * n);
    return kPairs ? (left > 0 ? 2 : 0) : left > 1 ? 2 : left > 0 ? 1 : 0;
  }
  // The row's features from the thread's first one on; the tensor's first ones where there are none.
  __device__ __forceinline__ float* at(const Activations& t) const {
    return static_cast<float*>(t.data) +
           (count(0) > 0 ? batch * t.batch + head * t.head + row * t.row + feature : 0);
  }
  // Without branches: features that are not there are the first ones.
  __device__ __forceinline__ void read(float (&w)[2], const Activations& t, int n) const {
    const float* const from = at(t) + (count(n) > 0 ? 8 * n : 0);
    unsigned bits[2];
    if constexpr (kPairs) {
      ptx::load_global<8>(bits, from);
    } else {
      ptx::load_global<4>(bits, from);
      ptx::load_global<4>(bits + 1, from + (count(n) > 1));
    }
    w[0] = __uint_as_float(bits[0]), w[1] = __uint_as_float(bits[1]);
  }
  __device__ __forceinline__ void write(const Activations& t, int n, const float (&v)[2]) const {
    float* const to = at(t) + 8 * n;
    if constexpr (kPairs) {
      *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
    } else {
      to[0] = v[0];
      if (count(n) > 1) to[1] = v[1];
    }
  }
};

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_product(const Params& p, const SplitRing<Geometry<C>>& ring,
                                                 const ProductTiles<C>& tiles, unsigned group) {
  using G = Geometry<C>;
  Multiplier<C, C.shape.op == Op::kGradInput, 1> multiplier(ring, group);
  // Between two tiles only the scheduler's position stays in registers.
  int start = 0, round = 0, backwards = 1;
  for (int row, column;;) {
    persistent::TileScheduler scheduler = shared_plan<C, persistent::TileScheduler>();
    scheduler.start = start, scheduler.round = round, scheduler.backwards = backwards;
    if (!scheduler.next(row, column)) break;
    start = scheduler.start, round = scheduler.round, backwards = scheduler.backwards;
    const int blocks = tiles.k_blocks(row, static_cast<int>(group));
    multiplier.multiply(blocks, tiles.longest(row) - blocks);
    const int head = column / tiles.head_units;
    const int panel = (column - head * tiles.head_units) * G::kPanels;
    const int first =
        row * C.config.tile_m + static_cast<int>(64 * group + 16 * multiplier.warp + multiplier.lane / 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = first + 8 * i;
      if (t >= tiles.tokens) continue;
      float bias = 0;
      if constexpr (C.shape.bias)
        bias = static_cast<const float*>(p.bias)[static_cast<long long>(head) * tiles.tokens + t];
#pragma unroll
      for (int j = 0; j < G::kPanels; ++j) {
        const int batch = (panel + j) / tiles.batch_panels;
        const int feature =
            (panel + j - batch * tiles.batch_panels) * kPanel + static_cast<int>(multiplier.lane % 4 * 2);
        if (batch >= p.B) continue;
        const RowEpilogue<C> epilogue(p, head, batch, t, feature, tiles.features);
#pragma unroll
        for (int n = 0; n < RowEpilogue<C>::kGroups; ++n)
          epilogue.store(n, bias, multiplier.sum[32 * j + 4 * n + 2 * i],
                         multiplier.sum[32 * j + 4 * n + 2 * i + 1]);
      }
    }
  }
}

template <Kernel C>
__device__ __forceinline__ void run_product(const Params& p) {
  using G = Geometry<C>;
  const ProductTiles<C> tiles(p);
  const SplitRing<G> ring = start<C>(tiles.scheduler());
  const Workspace ws(C.shape.op, C.shape.bias, p.B, tiles.heads, tiles.tokens, tiles.features, 0);
  ptx::wait_for_launches_before();
  persistent::split_roles<G>(
      [&](unsigned thread) {
        if (thread == 0)
          load_product<C>({ring, static_cast<const unsigned char*>(p.workspace), ws}, tiles, p.B);
      },
      [&](unsigned group) { multiply_product<C>(p, ring, tiles, group); });
}

}  // namespace trigen::wgmma_split_sm90
