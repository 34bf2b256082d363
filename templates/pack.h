// Weights packed for TMA by a launch of their own, ahead of the product: sizes that host and
// kernel agree on. Plain C++, like config.h.
//
// W[h, t, s, j] becomes P[h][j][pitch][pitch] of x's 16-bit type in the workspace: tap-major, tokens padded
// to whole blocks with zeros. Outside the triangle P is zero in the squares of written_edge that touch it,
// and not written in the others.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::packing {

inline constexpr int kEdge = 64;      // rows and columns of a block
inline constexpr int kThreads = 256;  // 8 warps, each with its own rows
inline constexpr int kWarps = kThreads / 32;

// wgmma_sm90's tiles of 128 rows read the squares of 128 that touch the triangle, wgmma_taps_sm90 those
// of 64.
TRIGEN_HOST_DEVICE constexpr int written_edge(int taps) { return taps == 1 ? 2 * kEdge : kEdge; }
// wgmma_taps_sm90 multiplies a diagonal block's columns from its first one up to the last one that 16 tokens
// of k have weights for: with a lower triangle of the product, the tokens of the output run backwards in
// every 64. These are P's rows in forward, its columns in grad_input.
TRIGEN_HOST_DEVICE constexpr bool flips(const Shape& s) {
  return s.K > 1 && (s.op == Op::kGradInput) == (s.fill == Fill::kUpper);
}
TRIGEN_HOST_DEVICE constexpr int pitch(int T) { return schedule::ceil_div(T, kEdge) * kEdge; }
// Blocks of kEdge columns and of block_rows rows of one head. The launch counts them along x, the one axis of
// a grid that takes more than 65535: columns innermost, heads outermost.
TRIGEN_HOST_DEVICE constexpr int column_blocks(int T) { return schedule::ceil_div(T, kEdge); }
// Rows that a warp reads at once: of all taps about 2048 weights. Of several taps, whose sizes are always compiled in, fewer
// where the blocks with weights, about half of all, would be less than four for each SM.
TRIGEN_HOST_DEVICE constexpr int warp_rows(int T, int taps, int heads) {
  constexpr int kFewBlocks = 1024;
  int rows = taps <= 4 ? 8 : taps <= 8 ? 4 : taps <= 16 ? 2 : 1;
  while (taps > 1 && rows > 1 &&
         static_cast<long long>(heads) * column_blocks(T) * (pitch(T) / (kWarps * rows)) < kFewBlocks)
    rows /= 2;
  return rows;
}
TRIGEN_HOST_DEVICE constexpr int block_rows(int T, int taps, int heads) {
  return kWarps * warp_rows(T, taps, heads);
}
TRIGEN_HOST_DEVICE constexpr int row_blocks(int T, int taps, int heads) {
  return pitch(T) / block_rows(T, taps, heads);
}
// A warp's rows in shared memory, 16-bit elements as they come: eight tokens with all their taps are a run, and runs lie an odd number
// of 16 bytes apart, so that eight lanes that read an element of a run each are on banks of their own.
inline constexpr int kRun = 8, kRuns = kEdge / kRun;
TRIGEN_HOST_DEVICE constexpr int run_pitch(int taps) { return kRun * (taps | 1); }
TRIGEN_HOST_DEVICE constexpr int shared_bytes(int T, int taps, int heads) {
  return block_rows(T, taps, heads) * kRuns * run_pitch(taps) * 2;
}
TRIGEN_HOST_DEVICE constexpr long long workspace_bytes(int T, int taps, int heads) {
  return 2ll * heads * taps * pitch(T) * pitch(T);
}

}  // namespace trigen::packing
