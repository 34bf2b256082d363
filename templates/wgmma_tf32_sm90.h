// Sizes of the wgmma_tf32_sm90 kernels that host and kernel agree on. Plain C++, like config.h. grad_weight
// has those of persistent/grad_weight.h.
#pragma once

#include "config.h"
#include "persistent/sizes.h"
#include "persistent/tile_scheduler.h"
#include "schedule.h"

namespace trigen::wgmma_tf32_sm90 {

using persistent::kPanelBytes;
using persistent::kSharedLimit;

inline constexpr int kBarrierBytes = 512;  // at the end of shared memory

// forward and grad_input are multiplied transposed, features by tokens: tile_m tokens in panels of 64,
// tile_n features, 64 for each multiplying warpgroup. A step along k is 32 elements, one 128-byte swizzled
// row.
inline constexpr int kStep = 32;
inline constexpr int kGroupFeatures = 64;
inline constexpr int kPanelTokens = 64;
inline constexpr int kMaskingWarps = 2;  // zero the other triangle's elements of W in shared memory

TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) { return c.tile_n / kGroupFeatures; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + 1); }
TRIGEN_HOST_DEVICE constexpr int token_panels(const Config& c) { return c.tile_m / kPanelTokens; }
// Taps shift the features of x against those of y. Such an x does not come with every stage of W but once
// for all taps, to slots of its own, with 32 features more on the way: a box begins at a multiple of 4 features, and up
// to kMostTaps taps reach up to 29 further.
inline constexpr int kMostTaps = 30, kSlots = 2;
TRIGEN_HOST_DEVICE constexpr bool shifts(int taps) { return taps > 1; }
// Boxes of 32 features by a step of k: half a panel each.
TRIGEN_HOST_DEVICE constexpr int feature_boxes(const Config& c, bool shifted) {
  return consumers(c) * (shifted ? 3 : 2);
}
TRIGEN_HOST_DEVICE constexpr int feature_bytes(const Config& c, bool shifted) {
  return feature_boxes(c, shifted) * kPanelBytes / 2;
}
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c, bool shifted) {
  return token_panels(c) * kPanelBytes + (shifted ? 0 : feature_bytes(c, shifted));
}
// The ring and, behind it, the slots.
TRIGEN_HOST_DEVICE constexpr int input_bytes(const Config& c, bool shifted) {
  return c.stages * stage_bytes(c, shifted) + (shifted ? kSlots * feature_bytes(c, shifted) : 0);
}
// Output panels of 64 tokens by 32 features that each pair of warps can stage: what the ring leaves, at most
// all that it makes of a tile. 0: too many stages.
TRIGEN_HOST_DEVICE constexpr int store_panels(const Config& c, bool shifted) {
  const int room = kSharedLimit - kBarrierBytes - input_bytes(c, shifted);
  return room < 0 ? 0 : schedule::min(token_panels(c), room / (2 * consumers(c) * kPanelBytes));
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Config& c, bool shifted) {
  return input_bytes(c, shifted) + 2 * consumers(c) * store_panels(c, shifted) * kPanelBytes + kBarrierBytes;
}
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 40; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) { return consumers(c) == 1 ? 240 : 232; }

// Feature tiles of one head.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  static_assert(kGroupFeatures == persistent::kPanel);
  return persistent::panel_units(consumers(c) * c.cluster, B, D);
}

// The k range of tokens [first, first + 64) of a panel, in steps of 32 k: `steps` of them, the first
// `unmasked_steps` without any element of the other triangle. Lower counts steps from k = 0 up, upper from
// the last one down.
struct KStepRange {
  int unmasked_steps = 0, steps = 0;
  TRIGEN_HOST_DEVICE constexpr KStepRange(Fill fill, int first, int diag, int all_steps) {
    if (fill == Fill::kLower) {  // kept: k <= token + diag
      steps = schedule::min(schedule::max(((first + 63 + diag) >> 5) + 1, 0), all_steps);
      unmasked_steps = schedule::min(schedule::max(((first + diag - 31) >> 5) + 1, 0), steps);
    } else {  // kept: k >= token + diag
      steps = schedule::min(schedule::max(all_steps - ((first + diag) >> 5), 0), all_steps);
      unmasked_steps = schedule::min(schedule::max(all_steps - ((first + 63 + diag + 31) >> 5), 0), steps);
    }
  }
};

// True if a launch before the product packs W into the workspace: its transpose for grad_input, W itself
// where its rows are not aligned or hold taps. f32, rounded to tf32, zeros where the triangle ends; [head][tap][t][s]
// ([head][tap][s][t]) with rows of packed_pitch elements. Blocks of 64 x 64 outside the triangle are not written.
TRIGEN_HOST_DEVICE constexpr bool packs(Op op, const Config& c) {
  return op == Op::kGradInput || (op == Op::kForward && c.weights == Access::kPacked);
}
TRIGEN_HOST_DEVICE constexpr int packed_pitch(int T) { return schedule::ceil_div(T, 4) * 4; }
inline constexpr int kPackEdge = 64;
inline constexpr int kPackThreads = 256;
// Tokens s, with all of their taps, of a block: up to 64 numbers of a row.
TRIGEN_HOST_DEVICE constexpr int pack_tokens(int taps) { return kPackEdge / taps; }
static_assert(pack_tokens(kMostTaps) > 0, "a token's taps are numbers of one block");
// Shared memory of the packing launch: a block with a column to spare, so that columns do not meet in a bank.
TRIGEN_HOST_DEVICE constexpr int pack_shared_bytes(Op op) {
  return op == Op::kGradInput ? 4 * kPackEdge * (kPackEdge + 1) : 0;
}

}  // namespace trigen::wgmma_tf32_sm90
