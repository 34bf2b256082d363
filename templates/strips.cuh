// The launch that writes strips (strips.h).
#pragma once

#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "strips.h"
#include "types.cuh"

namespace trigen::strips {

template <Kernel C>
__device__ __forceinline__ void write(const Params& p) {
  ptx::let_next_launch_start();  // it waits for what is written here where it reads that
  ptx::wait_for_launches_before();
  constexpr Shape s = C.shape;
  constexpr bool kIsBand = s.w == WeightForm::kBand;
  constexpr int kVec = 8, kVectors = kEdge * kEdge / kVec;  // stores of 16 bytes
  const int tokens = s.T ? s.T : p.T;
  const int width = !kIsBand ? tokens : s.T ? s.width : p.width;
  const int across = pitch(s.w, tokens, width) / kEdge, down = rows(s.w, tokens) / kEdge;
  const int line = static_cast<int>(blockIdx.x) / across, left = static_cast<int>(blockIdx.x) - line * across;
  const long long head = line / down;
  const int top = (line - static_cast<int>(head) * down) * kEdge;
  const auto* const from = static_cast<const Storage<s.wdtype>*>(p.w) + head * p.w_head;
  auto* const to = static_cast<unsigned short*>(p.workspace) +
                   (head * down * kEdge + top) * (static_cast<long long>(across) * kEdge) + left * kEdge;
#pragma unroll
  for (int i = 0; i < kVectors / kThreads; ++i) {
    const int vector = static_cast<int>(threadIdx.x) + i * kThreads;
    const int r = vector / (kEdge / kVec), column = vector % (kEdge / kVec) * kVec, t = top + r;
    const int distance = r + reach(s.w, tokens, width) - left * kEdge - column;  // t - s of the first element
    // Those of tokens before the first one are not there; rows behind the last one have none.
    const int most = kIsBand ? (t < tokens ? (t < width ? t : width - 1) : -1) : tokens - 1;
    const auto* const source = from + (kIsBand ? t * p.w_row + width - 1 - distance : distance);
    Raw<s.dtype, kVec> out;
    out.clear();
#pragma unroll
    for (int e = 0; e < kVec; ++e)
      if (distance - e >= 0 && distance - e <= most) {
        const Storage<s.wdtype> v = source[kIsBand ? e : -e];
        if constexpr (s.wdtype == s.dtype)
          out.set(e, v);
        else
          out.set(e, from_float<s.dtype>(to_float<s.wdtype>(v)));
      }
    ptx::store_global<16>(to + r * (static_cast<long long>(across) * kEdge) + column, out.w);
  }
}

}  // namespace trigen::strips
