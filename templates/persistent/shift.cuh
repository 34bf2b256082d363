// Taps of grad_weight: dW[t, s, j] = sum over d of dy[t, d - q] x[s, d] with q = j - pad. TMA
// moves dy by whole vectors of 8 elements; the 0 to 7 elements that are left are shifted on the way from
// shared memory to the registers that wgmma reads A from.
#pragma once

#include "persistent/weight_geometry.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"

namespace trigen::persistent::weight {

// q = vectors + rest: `vectors` a multiple of 8, 0 <= rest < 8.
struct Shift {
  int vectors, rest;
  __device__ __forceinline__ explicit Shift(int q) : vectors(q & ~7), rest(q & 7) {}
  // The first `rest` features of a block come from the panel before it, whose last words a thread keeps. At
  // the start of a work tile or of a batch row (`feature` 0) that panel is loaded on its own, unless all of
  // it lies before the row, where dy is zero.
  __device__ __forceinline__ bool needs_before(bool starts, int feature) const {
    return rest != 0 && (starts || feature == 0);
  }
  __device__ __forceinline__ bool loads_before(bool starts, int feature) const {
    return needs_before(starts, feature) && (feature > 0 || vectors < 0);
  }
};

// A thread's words of a 64 x 64 panel of dy, as A's fragments. In a row every group of 8 features is 4 words,
// lane % 4 takes one. Shifted by rest = 2 m or 2 m + 1 features, it is word lane % 4 - m, or the upper half
// of the word before that and its lower half; words below 0 are those of the group before. All banks are used
// once.
struct ShiftedRows {
  unsigned line;           // byte offset of row lane / 4 of the warp; row + 8 is 1024 bytes further
  unsigned flip;           // row % 8: 128-byte swizzle
  unsigned word, before;   // byte offset of both words in their groups
  bool back, before_back;  // they lie in the group before
  bool odd;
  unsigned carry[2][2];  // the last words of the panel before, [row][word, before]

  __device__ __forceinline__ ShiftedRows(int rest, unsigned warp, unsigned lane) {
    const int own = static_cast<int>(lane % 4) - rest / 2;
    line = (16 * warp + lane / 4) * 128;
    flip = lane / 4;
    word = (own & 3) * 4;
    before = ((own - 1) & 3) * 4;
    back = own < 0;
    before_back = own < 1;
    odd = rest & 1;
    clear();
  }
  __device__ __forceinline__ void clear() { carry[0][0] = carry[0][1] = carry[1][0] = carry[1][1] = 0; }
  __device__ __forceinline__ unsigned address(unsigned panel, int group, bool of_before) const {
    const unsigned chunk = (group - static_cast<int>(of_before ? before_back : back)) & 7;
    return panel + line + ((chunk ^ flip) << 4) + (of_before ? before : word);
  }
  // The last words of `panel` alone.
  __device__ __forceinline__ void keep(unsigned panel) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ptx::load_shared<4>(&carry[i][0], address(panel, 0, false) + 1024 * i);
      ptx::load_shared<4>(&carry[i][1], address(panel, 0, true) + 1024 * i);
    }
  }
  // Fragments of the four m64k16 steps.
  __device__ __forceinline__ void load(unsigned (&a)[4][4], unsigned panel) {
#pragma unroll
    for (int group = 0; group < 8; ++group) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        unsigned own, previous = 0;
        ptx::load_shared<4>(&own, address(panel, group, false) + 1024 * i);
        if (odd) ptx::load_shared<4>(&previous, address(panel, group, true) + 1024 * i);
        if (group ==
            0) {  // a word of the group before group 0 is in the panel before; this one's is for the next
          const unsigned last = own, last_previous = previous;
          if (back) own = carry[i][0];
          if (before_back) previous = carry[i][1];
          carry[i][0] = last;
          carry[i][1] = last_previous;
        }
        a[group / 2][group % 2 * 2 + i] = __byte_perm(previous, own, odd ? 0x5432 : 0x7654);
      }
    }
  }
};

// The k blocks of one work tile: 64 rows by kN columns. A's registers are free again once their products are
// complete (ptxas runs all products one after the other where a second set of them is written meanwhile,
// C7513); the other warpgroup multiplies while this one reads.
template <Kernel C, int kN>
__device__ __forceinline__ void multiply_shifted(float (&sum)[kN / 2], const Ring<Geometry<C>>& ring,
                                                 RingPosition<C.config.stages>& at, const WorkTile& work,
                                                 int features, const Shift& shift, unsigned group,
                                                 unsigned lane) {
  const int batch_blocks = (features + kPanel - 1) / kPanel;
  int feature = work.begin % batch_blocks * kPanel;
  ShiftedRows rows(shift.rest, threadIdx.x / 32 % 4, lane);
  for (int block = work.begin; block < work.end; ++block) {
    if (shift.needs_before(block == work.begin, feature)) {
      if (shift.loads_before(block == work.begin, feature)) {
        ptx::mbarrier_wait(ring.full(at.stage), at.parity);
        rows.keep(ring.a(at.stage) + group * kPanelBytes);
        __syncwarp();  // some lanes release what all have read
        ring.release(at.stage, lane);
        at.advance();
      } else {
        rows.clear();
      }
    }
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    unsigned a[4][4];
    rows.load(a, ring.a(at.stage) + group * kPanelBytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::pin(a[i]);
    const unsigned long long b = ptx::descriptor(ring.b(at.stage), kPanelBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ptx::wgmma_rs<C.shape.dtype, kN, 0>(sum, a[i], b + 2 * i, (block - work.begin) | i);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ring.release(at.stage, lane);
    at.advance();
    feature += kPanel;
    if (feature >= features) feature = 0;
  }
  ptx::pin(sum);
}

}  // namespace trigen::persistent::weight
