// Rows of dW of few taps: the sums of all taps of neighbouring columns lie together, so that a warp stages 16 rows in
// shared memory and stores whole vectors. Taken apart, elements of one tap are K elements apart, each a sector's write.
#pragma once

#include "params.h"
#include "ptx/memory.cuh"
#include "types.cuh"
#include "wgmma_taps_sm90.h"

namespace trigen::wgmma_taps_sm90::weight {

// dW[row], elements [first, first + vec_c), counted from column 0 and tap 0 on.
template <Kernel C>
__device__ __forceinline__ void write_vector(const Params& p, int head, int row, int first,
                                             float (&v)[C.config.vec_c]) {
  constexpr Shape s = C.shape;
  constexpr DType kW = s.wdtype;
  constexpr int kVec = C.config.vec_c, kRow = s.T * s.K;
  if (row >= s.T || first >= kRow) return;
  const schedule::Range kept = schedule::weight_row(s.fill, s.diag, row, s.T);
  const int begin = kept.begin * s.K, end = kept.end * s.K;
  const bool whole = first >= begin && first + kVec <= end;
  auto* const to = static_cast<Storage<kW>*>(p.w) + (head * p.w_head + row * p.w_row + first);
  Raw<kW, kVec> out;
  if constexpr (s.accumulate) {
    if (whole) {
      ptx::load_global<Raw<kW, kVec>::kSize>(out.w, to);
#pragma unroll
      for (int i = 0; i < kVec; ++i) v[i] += to_float<kW>(out.get(i));
    }
  }
  if (!whole) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const bool inside = first + i >= begin && first + i < end;
      if (s.accumulate && inside) v[i] += to_float<kW>(to[i]);
      if (!inside) v[i] = 0.0f;
      if (!s.zero_outside && inside) to[i] = from_float<kW>(v[i]);
    }
    if (!s.zero_outside) return;
  }
  out.from_floats(v);
  ptx::store_global<Raw<kW, kVec>::kSize>(to, out.w);
}

// Rows [row, row + 16) and kColumns columns of a warp's sums: sum(slice, tap, e) in the order of wgmma.cuh, a slice of
// 8 columns. `staged`: shared memory of this warp.
template <Kernel C, int kColumns, class Sum>
__device__ __forceinline__ void store_rows(const Params& p, unsigned staged, int head, int row, int column,
                                           int lane, const Sum& sum) {
  constexpr int kTaps = C.shape.K, kPitch = store_pitch(kTaps, kColumns), kVec = C.config.vec_c;
  constexpr int kSize = kTaps == 3 ? 8 : 16;  // bytes of a store: what divides two columns
  __syncwarp();                               // the rows before have left
#pragma unroll
  for (int slice = 0; slice < kColumns / 8; ++slice)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned v[2 * kTaps];
#pragma unroll
      for (int i = 0; i < 2 * kTaps; ++i) v[i] = __float_as_uint(sum(slice, i % kTaps, 2 * half + i / kTaps));
      const unsigned to = staged + (lane / 4 + 8 * half) * kPitch + (8 * slice + lane % 4 * 2) * kTaps * 4;
#pragma unroll
      for (int i = 0; i < 8 * kTaps / kSize; ++i) ptx::store_shared<kSize>(to + i * kSize, v + i * kSize / 4);
    }
  __syncwarp();
  constexpr int kVectors = kColumns * kTaps / kVec;  // of a row
#pragma unroll 2
  for (int i = lane; i < 16 * kVectors; i += 32) {
    const int line = i / kVectors, first = (i - line * kVectors) * kVec;
    unsigned word[kVec];
    ptx::load_shared<4 * kVec>(word, staged + line * kPitch + 4 * first);
    float v[kVec];
#pragma unroll
    for (int j = 0; j < kVec; ++j) v[j] = __uint_as_float(word[j]);
    write_vector<C>(p, head, row + line, column * kTaps + first, v);
  }
}

}  // namespace trigen::wgmma_taps_sm90::weight
