// Sizes of the wgmma_split_sm90 kernels that host and kernel agree on: the workspace and shared memory. Plain
// C++, like config.h. Tile scheduler and stream-K schedule are those of persistent/.
#pragma once

#include "config.h"
#include "persistent/sizes.h"
#include "persistent/stream_k.h"
#include "persistent/tile_scheduler.h"
#include "schedule.h"

namespace trigen::wgmma_split_sm90 {

using persistent::kPanel;
using persistent::kPanelBytes;
using persistent::kSharedLimit;

// A box is 64 x 64 elements of an operand, whose planes lie one after the other in the workspace, each as
// shared memory wants it (rows of 128 bytes, swizzled). 64 vectors of 64 elements along k, the product's
// depth, have a scale each: a power of two, as the exponent byte of its f32.
inline constexpr int kPlanes = 2;
inline constexpr int kBoxBytes = kPlanes * kPanelBytes;
inline constexpr int kScaleBytes = 64;
inline constexpr int kSplitThreads = 256;
inline constexpr int kSplitSharedBytes = kSplitThreads / 32 * 64 * 4;  // the largest of 64 columns by warp
inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceBlocks = 8;  // of the reduction for each block of the product
// Of so many parts (inside.cuh): threads that add consecutive runs of a quadruple's.
TRIGEN_HOST_DEVICE constexpr int reduce_runs(int parts) {
  return parts >= 16 ? 8 : parts >= 8 ? 4 : parts >= 4 ? 2 : 1;
}
inline constexpr int kBarrierBytes = 256;

// grad_weight may split its operands inside the product's launch (inside.cuh): TMA brings boxes of kBox features, and none of
// them is written back. The key says how many features, 0 stands for the launch that splits.
inline constexpr int kBox = 32;
TRIGEN_HOST_DEVICE constexpr bool splits_inside(const Config& c) { return c.box > 0; }
// grad_bias from the row sums of the first launch: threads of each block that add them, and lanes that share a row's, as
// many as leave no thread without a row.
inline constexpr int kBiasThreads = 96;
TRIGEN_HOST_DEVICE constexpr int bias_lanes(long long rows, int blocks) {
  int lanes = 1;
  while (lanes < 32 && 2 * lanes * rows <= static_cast<long long>(blocks) * kBiasThreads) lanes *= 2;
  return lanes;
}
// Contexts of one panel: the two halves of a tile are the same rows and columns of two k blocks, one for each warpgroup that
// multiplies. The launch behind it adds both, so every tile leaves parts. T = 0: any.
TRIGEN_HOST_DEVICE constexpr bool stacks(const Config& c, int T) {
  return splits_inside(c) && T > 0 && T <= kPanel;
}
// The last panel of a head's features is one box alone.
TRIGEN_HOST_DEVICE constexpr bool ends_in_half(int D) { return D % kPanel > 0 && D % kPanel <= kBox; }
// Two warpgroups split. A warp has 16 rows of each operand, and three slots of its own for them: two boxes each.
inline constexpr int kSplitGroups = 2, kSplitWarps = 4 * kSplitGroups, kSplitRows = 16;
inline constexpr int kRawSlots = 3, kRawBoxBytes = kSplitRows * kBox * 4;
inline constexpr int kRawBytes = kSplitWarps * kRawSlots * 2 * kRawBoxBytes;
inline constexpr int kRawBarrierBytes = 8 * kSplitWarps * kRawSlots;

TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) { return c.tile_m / 64; }
TRIGEN_HOST_DEVICE constexpr int boxes(const Config& c) { return (c.tile_m + c.tile_n) / 64; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) {
  return 128 * (consumers(c) + (splits_inside(c) ? kSplitGroups : 1));
}
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c) { return boxes(c) * kBoxBytes; }
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Config& c) {
  return c.stages * (stage_bytes(c) + boxes(c) * kScaleBytes) + kBarrierBytes +
         (splits_inside(c) ? kRawBytes + kRawBarrierBytes : 0);
}
inline constexpr int kLoadRegisters = 56;
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) { return consumers(c) == 1 ? 240 : 224; }
// Splitting inside: of a thread that splits; one that multiplies has the rest of 256, with one set of block sums.
TRIGEN_HOST_DEVICE constexpr int split_registers(bool stacks) { return stacks ? 128 : 96; }
// Column tiles of one head.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  return persistent::panel_units(c.tile_n / kPanel, B, D);
}

// Layout of the workspace, in bytes from its start. A and B are the product's operands: W and x (or dy), or
// dy and x for grad_weight.
struct Workspace {
  int blocks = 0, panels = 0;  // of 64 tokens; of 64 features
  long long a_boxes = 0, b_boxes = 0;
  long long a = 0, b = 0, a_scales = 0, b_scales = 0;
  long long row_sums = 0;  // grad_weight with grad_bias: [h][b, panel][token] f32, sums of 64 features of dy
  long long parts = 0;     // grad_weight: incomplete sums, f32
  long long end = 0;

  TRIGEN_HOST_DEVICE constexpr Workspace(Op op, bool bias, int B, int H, int T, int D, long long part_floats)
      : blocks(schedule::ceil_div(T, kPanel)), panels(schedule::ceil_div(D, kPanel)) {
    const long long activations = static_cast<long long>(B) * H * blocks * panels;
    // makes_weights(op), which as a call makes NVRTC 12.9 order trigen_split's instructions otherwise.
    const bool weight = op == Op::kGradWeight || op == Op::kGram;
    a_boxes = weight ? activations : static_cast<long long>(H) * blocks * blocks;
    b_boxes = activations;
    b = a + a_boxes * kBoxBytes;
    a_scales = b + b_boxes * kBoxBytes;
    b_scales = a_scales + a_boxes * kScaleBytes;
    row_sums = b_scales + b_boxes * kScaleBytes;
    const bool sums = weight && bias;
    parts = row_sums + (sums ? activations * kPanel * 4 : 0);
    end = parts + part_floats * 4;
  }
  TRIGEN_HOST_DEVICE constexpr long long boxes() const { return a_boxes + b_boxes; }
  // Boxes of [b, h, t, d] and of W; the family sees to it that they can be counted in 32 bits.
  TRIGEN_HOST_DEVICE constexpr int activation(int H, int batch, int head, int block, int panel) const {
    return ((batch * H + head) * blocks + block) * panels + panel;
  }
  TRIGEN_HOST_DEVICE constexpr int weight(int head, int row, int column) const {
    return (head * blocks + row) * blocks + column;
  }
};

}  // namespace trigen::wgmma_split_sm90
