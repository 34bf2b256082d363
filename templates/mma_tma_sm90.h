// Sizes of the mma_tma_sm90 kernels that host and kernel agree on. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "persistent/sizes.h"
#include "persistent/tile_scheduler.h"

namespace trigen::mma_tma_sm90 {

using persistent::kPanel;
using persistent::kPanelBytes;

inline constexpr int kBarrierBytes = 256;  // at the end of shared memory
inline constexpr int kMostStages = kBarrierBytes / 16;

TRIGEN_HOST_DEVICE constexpr int multiplying_warps(const Config& c) { return c.warps_m * c.warps_n; }
TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) {
  return multiplying_warps(c) / 4;
}  // warpgroups
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + 1); }
// setmaxnreg: as in wgmma_sm90.h.
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 40; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) { return consumers(c) == 1 ? 240 : 232; }
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) { return c.tile_n / kPanel; }
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c) {
  return (c.tile_m + c.tile_n) / kPanel * kPanelBytes;
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Config& c) {
  return c.stages * stage_bytes(c) + kBarrierBytes;
}
// Boxes of TMA in a stage: A's, where k is contiguous all rows at once (64 of strips), and B's panels.
TRIGEN_HOST_DEVICE constexpr int boxes_a(const Shape& s, const Config& c) {
  return s.op == Op::kForward && s.w == WeightForm::kDense ? 1 : c.tile_m / kPanel;
}
TRIGEN_HOST_DEVICE constexpr int boxes(const Shape& s, const Config& c) { return boxes_a(s, c) + panels(c); }
// Column tiles of one head.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  return persistent::panel_units(panels(c), B, D);
}

}  // namespace trigen::mma_tma_sm90
