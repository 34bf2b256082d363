// The panels of X of a block of newton_schulz_sm90: from x as f16 into shared memory, where they stay, or pass through a ring of
// four from and to the workspace by bulk copies of one thread.
#pragma once

#include "newton_schulz.cuh"
#include "newton_schulz_sm90/tiles.cuh"
#include "operand.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"

namespace trigen::newton_schulz_sm90 {

using newton_schulz::thread_now;

template <Kernel C>
class Panels {
  static constexpr Config c = C.config;
  static constexpr bool kBTD = C.shape.layout == Layout::kBTD, kStays = c.stages == 1;
  static constexpr DType kD = C.shape.dtype;
  static constexpr int kVec = c.vec_b, kBlock = threads(c);
  using Vector = Raw<kD, kVec>;
  static constexpr int kOuter = kBTD ? c.tile_m : kSide, kInner = kBTD ? kSide : c.tile_m;
  static constexpr int kEach = kOuter * kInner / kVec / kBlock, kAtOnce = divisor(kEach, 16 / Vector::kWords),
                       kParts = kEach / kAtOnce;
  static_assert(kEach * kVec * kBlock == kOuter * kInner, "all threads have as many vectors");

 public:
  __device__ __forceinline__ Panels(const Params& p, const Sizes& z, unsigned control, unsigned shared,
                                    int matrix, int rank)
      : z_(z),
        row_(p.x.row),
        full_(control),
        shared_(shared),
        first_(first_panel(c, z.D, rank)),
        count_(first_panel(c, z.D, rank + 1) - first_),
        x_(newton_schulz::begin_of<kD>(p.x, matrix, z.H)),
        kept_(static_cast<unsigned char*>(p.workspace) + (kStays ? 0 : matrix * kept_bytes(c, z.D))) {}

  // By one thread, ahead of a barrier of all.
  __device__ __forceinline__ void begin() const {
    if (kStays || thread_now() != 0) return;
#pragma unroll
    for (int slot = 0; slot < kRing; ++slot) {
      ptx::mbarrier_init(full_ + 8 * slot, 1);
      ptx::mbarrier_init(full_ + 8 * (kRing + slot), kBlock / 32);
    }
    ptx::mbarrier_fence_init();
  }

  __device__ __forceinline__ int first() const { return first_; }
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ unsigned operator[](int i) const {
    return shared_ + panels_begin(c) + (kStays ? i : slot(i)) * panel_bytes(c);
  }
  __device__ __forceinline__ float sum_of_squares() const {
    const int column = first_ * kSide, columns = schedule::min(count_ * kSide, z_.D - column);
    return newton_schulz::sum_of_squares<kD, kVec, kBlock>(x_ + column * (kBTD ? 1 : row_), row_,
                                                           kBTD ? z_.T : columns, kBTD ? columns : z_.T);
  }

  // Panel i of x begins to come, as it is: each thread's vectors to a place of their own, zeros where x has ended.
  __device__ __forceinline__ void stage(int i) const {
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) stage_part(i, part);
  }
  // The thread's sum of squares of the panel that has been staged.
  __device__ __forceinline__ float sum_of_staged() const {
    ptx::cp_async_wait<0>();
    float sum = 0.0f;
#pragma unroll 4
    for (int e = 0; e < kEach; ++e) {
      Vector x;
      ptx::load_shared<Vector::kSize>(x.w, shared_ + (e * kBlock + thread_now()) * Vector::kSize);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float element = to_float<kD>(x.get(j));
        sum = fmaf(element, element, sum);
      }
    }
    return sum;
  }
  // What has come becomes f16 where panel i lies, and the next one begins to come.
  __device__ __forceinline__ void take(int i, float scale) const {
    const unsigned panel = (*this)[i];
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      ptx::cp_async_wait<kParts - 1>();
#pragma unroll
      for (int e = 0; e < kAtOnce; ++e) {
        const int vector = (part * kAtOnce + e) * kBlock + thread_now(), outer = vector / (kInner / kVec),
                  inner = vector % (kInner / kVec) * kVec;
        Vector x;
        ptx::load_shared<Vector::kSize>(x.w, shared_ + vector * Vector::kSize);
        float v[kVec];
#pragma unroll
        for (int j = 0; j < kVec; ++j) v[j] = to_float<kD>(x.get(j)) * scale;
        Raw<DType::kF16, kVec> out;
        out.from_floats(v);
        ptx::store_shared<2 * kVec>(at(panel + inner / kSide * kTileBytes, outer, inner % kSide), out.w);
      }
      stage_part(i + 1, part);
    }
  }

  // A pass over kept panels begins: all threads' stores to what their places were are fenced, and behind a barrier.
  __device__ __forceinline__ void begin_pass() const {
    if (kStays || thread_now() != 0) return;
    ptx::tma_store_wait();
#pragma unroll 1
    for (int i = 0; i < schedule::min(kRing, count_); ++i) load(i);
  }
  __device__ __forceinline__ void end_pass() { begun_ += count_; }
  __device__ __forceinline__ void wait(int i) const {
    if constexpr (!kStays) ptx::mbarrier_wait(full_ + 8 * slot(i), (begun_ + i) / kRing & 1);
  }
  // Nobody reads panel i - 2 any more: the one that has its place next comes.
  __device__ __forceinline__ void load_next(int i) const {
    if (kStays || i < 2 || i + 2 >= count_ || thread_now() != 0) return;
    ptx::tma_store_wait_read<1>();
    load(i + 2);
  }
  // Panel i as it lies is what the next pass reads. `kPending` ones may still be read by copies.
  __device__ __forceinline__ void keep(int i) const {
    if (kStays || thread_now() != 0) return;
    ptx::bulk_store(kept(i), (*this)[i], panel_bytes(c));
    ptx::tma_store_commit();
  }
  template <int kPending>
  __device__ __forceinline__ void wait_kept() const {
    if (!kStays && thread_now() == 0) ptx::tma_store_wait_read<kPending>();
  }
  // The same where no barrier says so: this warp has read panel i; all have read panel i - 2.
  __device__ __forceinline__ void release(int i) const {
    if (!kStays && thread_now() % 32 == 0) ptx::mbarrier_arrive(full_ + 8 * (kRing + slot(i)));
  }
  __device__ __forceinline__ void load_released(int i) const {
    if (kStays || i < 2 || i + 2 >= count_ || thread_now() != 0) return;
    ptx::mbarrier_wait(full_ + 8 * (kRing + slot(i - 2)), (i - 2) / kRing & 1);
    load(i + 2);
  }
  // All that was kept lies in memory, where it may be kept anew.
  __device__ __forceinline__ void wait_stored() const {
    if (!kStays && thread_now() == 0) ptx::tma_store_wait();
  }

 private:
  __device__ __forceinline__ int slot(int i) const { return (begun_ + i) % kRing; }
  __device__ __forceinline__ unsigned char* kept(int i) const {
    return kept_ + static_cast<long long>(first_ + i) * panel_bytes(c);
  }
  __device__ __forceinline__ void load(int i) const {
    ptx::mbarrier_arrive_expect(full_ + 8 * slot(i), panel_bytes(c));
    ptx::bulk_load((*this)[i], kept(i), panel_bytes(c), full_ + 8 * slot(i));
  }
  __device__ __forceinline__ void stage_part(int i, int part) const {
    const int column = (first_ + i) * kSide;
    if (i < count_) {
#pragma unroll
      for (int e = 0; e < kAtOnce; ++e) {
        const int vector = (part * kAtOnce + e) * kBlock + thread_now(),
                  outer = vector / (kInner / kVec) + (kBTD ? 0 : column),
                  inner = vector % (kInner / kVec) * kVec + (kBTD ? column : 0);
        const unsigned to = shared_ + vector * Vector::kSize;
        const bool is = outer < (kBTD ? z_.T : z_.D) && inner < (kBTD ? z_.D : z_.T);
        const Storage<kD>* const from = x_ + (is ? outer * row_ + inner : 0);
        if constexpr (Vector::kSize >= 4) {
          ptx::cp_async<Vector::kSize>(to, from, is ? Vector::kSize : 0);
        } else {
          Vector x;
          x.clear();
          if (is) ptx::load_global_nc<Vector::kSize>(x.w, from);
          ptx::store_shared<Vector::kSize>(to, x.w);
        }
      }
    }
    ptx::cp_async_commit();
  }

  const Sizes z_;
  const long long row_;
  const unsigned full_, shared_;  // barriers of what has come, behind them those of what was read
  const int first_, count_;
  int begun_ = 0;  // panels of passes before
  const Storage<kD>* const x_;
  unsigned char* const kept_;
};

}  // namespace trigen::newton_schulz_sm90
