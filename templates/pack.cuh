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
  constexpr Shape s = C.shape;
  constexpr int kTaps = s.K > 1 ? s.K : 1;
  // With one tap the product waits for this launch before it reads anything, and may start at once. With several it reads x without
  // that wait: it may start when the launches ahead of this one have ended.
  constexpr bool kReadsAtOnce = kTaps > 1;
  if constexpr (!kReadsAtOnce) ptx::let_next_launch_start();
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
  constexpr int kRunPitch = run_pitch(kTaps), kRowPitch = kRuns * kRunPitch;
  const unsigned own = ptx::shared_address(packed_shared) + warp * kRows * kRowPitch * 2;
  const auto* const from = static_cast<const Storage<s.wdtype>*>(p.w) +
                           (head * p.w_head + row * p.w_row + static_cast<long long>(column) * kTaps);
  const int available = touches(kEdge) ? (tokens - column) * kTaps : 0;  // weights of a row from here on
  // W's lines, into the L2 while the launch ahead ends; no value is read.
  constexpr int kLine = 128 / kBytes<s.wdtype>, kLines = kWeights / kLine + 1;
  for (int i = lane; i < kRows * kLines && available > 0; i += 32)
    if (row + i / kLines < tokens)
      ptx::prefetch_l2(from + i / kLines * p.w_row + schedule::min(i % kLines * kLine, available - 1));
  ptx::wait_for_launches_before();
  if constexpr (kReadsAtOnce) ptx::let_next_launch_start();
  constexpr bool kEndsInVector = s.T == 0 || s.T * kTaps % kVec != 0;
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
      if (!kEndsInVector || at + kVec <= available) {
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
      Raw<s.dtype, kVec> rounded;
      if constexpr (s.wdtype == s.dtype) {
        rounded = read[i];
      } else {
        float v[kVec];
#pragma unroll
        for (int e = 0; e < kVec; ++e) v[e] = to_float<s.wdtype>(read[i].get(e));
        rounded.from_floats(v);
      }
      const int place = r * kRowPitch + at + at / (kRun * kTaps) * (kRunPitch - kRun * kTaps);
      ptx::store_shared<kVec * 2>(own + place * 2, rounded.w);
    }
  }
  __syncwarp();
  // Of a row and a tap eight lanes write 64 tokens, a run each.
  constexpr bool kBackwards = flips(s) && s.op == Op::kGradInput;
  const int piece = lane % kRuns, run = kBackwards ? kRuns - 1 - piece : piece;
  const bool inside = s.fill == Fill::kLower ? column + kEdge - 1 <= row + diag
                                             : column >= row + kRows - 1 + diag;  // all of them have weights
  auto* const to = static_cast<unsigned short*>(p.workspace) + (column + piece * kRun);
#pragma unroll 4
  for (int line = lane / kRuns; line < kRows * kTaps; line += 32 / kRuns) {
    const int r = line / kTaps, tap = line - r * kTaps;
    const unsigned source = own + (r * kRowPitch + run * kRunPitch + tap) * 2;
    unsigned v[4];
    if constexpr (kTaps == 1) {
      ptx::load_shared<16>(v, source);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        unsigned half[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int token = kBackwards ? kRun - 1 - 2 * i - j : 2 * i + j;
          ptx::load_shared<2>(&half[j], source + token * kTaps * 2);
        }
        v[i] = half[0] | half[1] << 16;
      }
    }
    if (!inside) {
      const int last = row + r + diag - column - run * kRun;  // the token on the diagonal, counted in the run
#pragma unroll
      for (int e = 0; e < kRun; ++e) {
        const int token = kBackwards ? kRun - 1 - e : e;
        if (s.fill == Fill::kLower ? token > last : token < last)
          v[e / 2] &= e % 2 == 0 ? 0xFFFF0000u : 0xFFFFu;
      }
    }
    const int to_row = flips(s) && s.op == Op::kForward ? (row + r) ^ (kEdge - 1) : row + r;
    ptx::store_global<16>(to + ((head * kTaps + tap) * width + to_row) * width, v);
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
