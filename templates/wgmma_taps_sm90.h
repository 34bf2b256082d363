// Sizes of the wgmma_taps_sm90 kernels that host and kernel agree on. Plain C++, like config.h. An output
// tile is tile_m tokens by tile_n features; the product is transposed (wgmma_taps_sm90.cuh).
#pragma once

#include "config.h"
#include "wgmma_sm90.h"

namespace trigen::wgmma_taps_sm90 {

using wgmma_sm90::kBarrierBytes;
using wgmma_sm90::kPanel;
using wgmma_sm90::kPanelBytes;
using wgmma_sm90::kSharedLimit;

// Warpgroups that multiply: 64 features each.
TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) { return c.tile_n / 64; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + 1); }
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) { return c.tile_m / kPanel; }
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c) { return panels(c) * kPanelBytes; }

// The tap that reads the features furthest to the left reads `reach_left` to the left of its output.
TRIGEN_HOST_DEVICE constexpr int reach_left(const Shape& s) {
  return s.op == Op::kGradInput ? s.K - 1 - s.pad : s.pad;
}
// Loads start at a multiple of 8 features: those to the left of the first tap's.
TRIGEN_HOST_DEVICE constexpr int extra_left(const Shape& s) { return (8 - reach_left(s) % 8) % 8; }
// Features of the input that a tile needs, in vectors of 8.
TRIGEN_HOST_DEVICE constexpr int features(const Shape& s, const Config& c) {
  return schedule::ceil_div(c.tile_n + extra_left(s) + s.K - 1, 8) * 8;
}
// A 64-token block of the input as it was loaded, and twice transposed: [8 tokens][feature][token].
TRIGEN_HOST_DEVICE constexpr int input_panels(const Shape& s, const Config& c) {
  return schedule::ceil_div(features(s, c), kPanel);
}
TRIGEN_HOST_DEVICE constexpr int transposed_bytes(const Shape& s, const Config& c) {
  return 128 * features(s, c);
}
TRIGEN_HOST_DEVICE constexpr int input_bytes(const Shape& s, const Config& c) {
  return input_panels(s, c) * kPanelBytes + 2 * transposed_bytes(s, c);
}

// Output panels that each multiplying warpgroup can stage. 0: too many stages.
TRIGEN_HOST_DEVICE constexpr int store_panels(const Shape& s, const Config& c) {
  const int room = kSharedLimit - kBarrierBytes - c.stages * stage_bytes(c) - input_bytes(s, c);
  return room < 0 ? 0 : schedule::min(panels(c), room / (consumers(c) * kPanelBytes));
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Shape& s, const Config& c) {
  return c.stages * stage_bytes(c) + input_bytes(s, c) + consumers(c) * store_panels(s, c) * kPanelBytes +
         kBarrierBytes;
}
// setmaxnreg, as in wgmma_sm90; the warps that transpose need more than those that only load.
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 56; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) { return consumers(c) == 1 ? 240 : 224; }

// Column tiles of one head, in units of a cluster.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  return schedule::ceil_div(B * schedule::ceil_div(D, c.tile_n), c.cluster);
}

}  // namespace trigen::wgmma_taps_sm90
