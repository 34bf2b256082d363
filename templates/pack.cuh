// The launch that packs W (pack.h).
#pragma once

#include "pack.h"
#include "params.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "strips.cuh"
#include "types.cuh"

namespace trigen::packing {

// A generic kernel (K = 0) has one tap.
template <Kernel C>
__device__ __forceinline__ void pack_matrix(const Params& p) {
  ptx::let_next_launch_start();  // it waits for what is written here where it reads that
  constexpr Shape s = C.shape;
  constexpr int kTaps = s.K > 1 ? s.K : 1;
  constexpr int kRows = warp_rows(s.T, kTaps, s.H), kVec = C.config.vec_a;
  constexpr int kWeights = kEdge * kTaps;  // of one row in a block
  using Read = Raw<s.wdtype, kVec>;
  const int tokens = s.T ? s.T : p.T;
  const int diag = s.T ? s.diag : p.diag;
  const int across = column_blocks(tokens), down = pitch(tokens) / (kWarps * kRows);
  const int line = static_cast<int>(blockIdx.x) / across;
  const int column = (static_cast<int>(blockIdx.x) - line * across) * kEdge;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const long long head = line / down;
  const int row = (line - static_cast<int>(head) * down) * (kWarps * kRows) + warp * kRows;
  const auto touches = [&](int edge) {  // the square of `edge` rows and columns around
    const int low = row / edge * edge, left = column / edge * edge;
    return s.fill == Fill::kLower ? left <= low + edge - 1 + diag : left + edge - 1 >= low + diag;
  };
  const long long width = pitch(tokens);
  if (row >= width || !touches(written_edge(kTaps))) return;

  extern __shared__ __align__(16) unsigned char packed_shared[];
  auto* const own = reinterpret_cast<unsigned short*>(packed_shared) + warp * kRows * kTaps * kTapPitch;
  const auto* const from = static_cast<const Storage<s.wdtype>*>(p.w) +
                           (head * p.w_head + row * p.w_row + static_cast<long long>(column) * kTaps);
  const int available = touches(kEdge) ? (tokens - column) * kTaps : 0;  // weights of a row from here on
  // Every vector of the warp's rows, one after the other.
  constexpr int kVectors = kRows * kWeights / kVec, kTurns = (kVectors + 31) / 32;
  constexpr int kAtOnce = kTurns < 8 ? kTurns : 8;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    Read read[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int vector = (turn + i) * 32 + lane, r = vector / (kWeights / kVec),
                at = (vector - r * (kWeights / kVec)) * kVec;
      read[i].clear();
      if (r >= kRows || row + r >= tokens || at >= available) continue;
      const auto* const source = from + r * p.w_row + at;
      if (at + kVec <= available) {
        ptx::load_global_nc<kVec * kBytes<s.wdtype>>(read[i].w, source);
      } else {
#pragma unroll
        for (int e = 0; e < kVec; ++e)
          if (at + e < available) read[i].set(e, source[e]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int vector = (turn + i) * 32 + lane, r = vector / (kWeights / kVec),
                at = (vector - r * (kWeights / kVec)) * kVec;
      if (r >= kRows) continue;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const int token = (at + e) / kTaps, tap = at + e - token * kTaps;
        const int over = row + r + diag - column - token;
        const bool keeps = s.fill == Fill::kLower ? over >= 0 : over <= 0;
        unsigned short v;
        if constexpr (s.wdtype == s.dtype)
          v = read[i].get(e);
        else
          v = from_float<s.dtype>(to_float<s.wdtype>(read[i].get(e)));
        constexpr bool kBackwards = flips(s) && s.op == Op::kGradInput;
        own[(r * kTaps + tap) * kTapPitch + (kBackwards ? kEdge - 1 - token : token)] =
            keeps ? v : static_cast<unsigned short>(0);
      }
    }
  }
  __syncwarp();
  auto* const to = static_cast<unsigned short*>(p.workspace);
#pragma unroll 4
  for (int piece = lane; piece < kRows * kTaps * 8; piece += 32) {
    const int line = piece / 8, tap = line % kTaps, r = row + line / kTaps;
    const int to_row = flips(s) && s.op == Op::kForward ? r ^ (kEdge - 1) : r;
    unsigned v[4];
    ptx::load_shared<16>(v, ptx::shared_address(own + line * kTapPitch) + piece % 8 * 16);
    ptx::store_global<16>(to + (((head * kTaps + tap) * width + to_row) * width + column + piece % 8 * 8), v);
  }
}

template <Kernel C>
__device__ __forceinline__ void pack_weights(const Params& p) {
  if constexpr (C.shape.w == WeightForm::kDense)
    pack_matrix<C>(p);
  else
    strips::write<C>(p);
}

}  // namespace trigen::packing
