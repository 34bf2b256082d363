// Rows of x (of dy) that begin at any element: the loading warpgroup brings the aligned pieces of 16 bytes that have
// them into the ring as they lie, and the multiplying warps cut fragments out of them. 64 tokens of k further on a row
// begins as far inside a piece as here, so that all of that is settled once a tile.
#pragma once

#include "params.h"
#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"
#include "types.cuh"
#include "wgmma_rows_sm90/pipeline.cuh"

namespace trigen::wgmma_rows_sm90 {

// 64 features of one (batch, head) from `feature` on; `count` of them are there, none of a batch behind the last one.
struct RowPanel {
  unsigned short* start;  // of token 0
  long long stride;       // elements from token to token
  int count;
  __device__ __forceinline__ RowPanel(const Activations& t, const Panels& panels, int panel, int head, int B,
                                      int features)
      : stride(t.row) {
    int batch, feature;
    panels.locate(panel, batch, feature);
    count = batch < B ? schedule::min(features - feature, kPanel) : 0;
    start = static_cast<unsigned short*>(t.data) + (batch * t.batch + head * t.head + feature);
  }
  // Bytes by which the row of token `token` begins inside a piece.
  __device__ __forceinline__ int skew(int token) const {
    return static_cast<int>(reinterpret_cast<unsigned long long>(start + token * stride) % kPieceBytes);
  }
};

// One thread's pieces of the rows of tokens `row`, row + 16 ... of a block of k, which begin alike.
struct Piece {
  const char* from;  // of token `row`
  int valid = 0;     // bytes of the row in it
  __device__ __forceinline__ Piece(const RowPanel& panel, int row, int piece) {
    const int skew = panel.skew(row), first = piece * kPieceBytes;
    from = reinterpret_cast<const char*>(panel.start + row * panel.stride) + (first - skew);
    valid = schedule::max(schedule::min(skew + 2 * panel.count - first, kPieceBytes), 0);
    if (panel.count == 0) valid = 0;
  }
};

// A thread of a multiplying warpgroup: features 16 * warp + 2 * (lane / 4) and + 1, which A's fragments have as rows
// lane / 4 and + 8, and of k 2 * (lane % 4), + 1 and these + 8.
template <Kernel C>
struct RowFragments {
  unsigned offset[2];  // bytes of k and k + 1
  __device__ __forceinline__ RowFragments(const RowPanel& panel, unsigned warp, unsigned lane) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned row = lane % 4 * 2 + i;
      offset[i] = row * kRowBytes + static_cast<unsigned>(panel.skew(static_cast<int>(row))) +
                  2 * (16 * warp + lane / 4 * 2);
    }
  }
  __device__ __forceinline__ static unsigned load_pair(unsigned at) {
    unsigned low, high = 0;
    if constexpr (Geometry<C>::kPairs) {
      ptx::load_shared<4>(&low, at);
    } else {
      ptx::load_shared<2>(&low, at);
      ptx::load_shared<2>(&high, at + 2);
    }
    return low | high << 16;
  }
  // Steps 2 half and 2 half + 1 of the 64 rows at `source`.
  __device__ __forceinline__ void load(unsigned (&a)[2][4], unsigned source, int half) const {
    unsigned pair[2][2][2];  // [step][k + 8][k, k + 1]
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          pair[step][upper][i] =
              load_pair(source + offset[i] + (32 * half + 16 * step + 8 * upper) * kRowBytes);
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const unsigned first = pair[step][upper][0], second = pair[step][upper][1];
        a[step][2 * upper] = __byte_perm(first, second, 0x5410);
        a[step][2 * upper + 1] = __byte_perm(first, second, 0x7632);
      }
  }
};

}  // namespace trigen::wgmma_rows_sm90
