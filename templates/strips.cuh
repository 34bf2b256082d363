// The launch that writes strips (strips.h).
#pragma once

#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "strips.h"
#include "types.cuh"

namespace trigen::strips {

inline constexpr int kVec = 8;  // stores of 16 bytes

// So many columns of a strip's row.
template <Kernel C>
struct Vector {
  static constexpr bool kIsBand = C.shape.w == WeightForm::kBand;
  const Storage<C.shape.wdtype>* source;  // of the first column
  unsigned short* target;
  int distance, most;  // t - s of the first column; the largest that has a number

  __device__ __forceinline__ bool has(int column) const {
    return distance - column >= 0 && distance - column <= most;
  }
  __device__ __forceinline__ const Storage<C.shape.wdtype>* at(int column) const {
    return source + (kIsBand ? column : -column);
  }
  // W's lines, into the L2 while the launch ahead ends; no value is read. 8 numbers, which touch two lines at most.
  __device__ __forceinline__ void prefetch() const {
    const int first = schedule::max(distance - most, 0), last = schedule::min(distance, kVec - 1);
    if (first > last) return;
    ptx::prefetch_l2(at(first));
    if (last > first) ptx::prefetch_l2(at(last));
  }
  __device__ __forceinline__ void write() const {
    Raw<C.shape.dtype, kVec> out;
    out.clear();
#pragma unroll
    for (int e = 0; e < kVec; ++e)
      if (has(e)) {
        const Storage<C.shape.wdtype> v = *at(e);
        if constexpr (C.shape.wdtype == C.shape.dtype)
          out.set(e, v);
        else
          out.set(e, from_float<C.shape.dtype>(to_float<C.shape.wdtype>(v)));
      }
    ptx::store_global<16>(target, out.w);
  }
};

template <Kernel C>
__device__ __forceinline__ void write(const Params& p) {
  ptx::let_next_launch_start();  // it waits for what is written here where it reads that
  constexpr Shape s = C.shape;
  constexpr bool kIsBand = Vector<C>::kIsBand;
  constexpr int kVectors = kEdge * kEdge / kVec;
  const int tokens = s.T ? s.T : p.T;
  const int width = !kIsBand ? tokens : s.T ? s.width : p.width;
  const int across = pitch(s.w, tokens, width) / kEdge, down = rows(s.w, tokens) / kEdge;
  const int line = static_cast<int>(blockIdx.x) / across, left = static_cast<int>(blockIdx.x) - line * across;
  const long long head = line / down;
  const int top = (line - static_cast<int>(head) * down) * kEdge;
  const auto* const from = static_cast<const Storage<s.wdtype>*>(p.w) + head * p.w_head;
  auto* const to = static_cast<unsigned short*>(p.workspace) +
                   (head * down * kEdge + top) * (static_cast<long long>(across) * kEdge) + left * kEdge;
  Vector<C> vectors[kVectors / kThreads];
#pragma unroll
  for (int i = 0; i < kVectors / kThreads; ++i) {
    const int vector = static_cast<int>(threadIdx.x) + i * kThreads;
    const int r = vector / (kEdge / kVec), column = vector % (kEdge / kVec) * kVec, t = top + r;
    const int distance = r + reach(s.w, tokens, width) - left * kEdge - column;  // t - s of the first element
    // Those of tokens before the first one are not there; rows behind the last one have none.
    const int most = kIsBand ? (t < tokens ? (t < width ? t : width - 1) : -1) : tokens - 1;
    vectors[i] = {from + (kIsBand ? t * p.w_row + width - 1 - distance : distance),
                  to + r * (static_cast<long long>(across) * kEdge) + column, distance, most};
    vectors[i].prefetch();
  }
  ptx::wait_for_launches_before();
#pragma unroll
  for (int i = 0; i < kVectors / kThreads; ++i) vectors[i].write();
}

}  // namespace trigen::strips
