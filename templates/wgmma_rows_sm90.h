// Sizes of the wgmma_rows_sm90 kernels that host and kernel agree on. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "persistent/sizes.h"
#include "persistent/tile_scheduler.h"
#include "schedule.h"

namespace trigen::wgmma_rows_sm90 {

using persistent::kPanel;
using persistent::kPanelBytes;
using persistent::kSharedLimit;

inline constexpr int kBarrierBytes = 512;  // at the end of shared memory
inline constexpr int kMostStages = 12;
inline constexpr int kLoaders = 128;
// A row of 64 features that begins anywhere touches nine pieces of 16 bytes. 144 bytes also keep fragments' rows off each
// other's banks, but for the 3 words by which these begin apart.
inline constexpr int kPieceBytes = 16, kRowPieces = 9, kRowBytes = kRowPieces * kPieceBytes;
inline constexpr int kRowsBytes = kPanel * kRowBytes;  // 64 tokens of them

// Warpgroups that multiply, each with 64 features (the product's rows, as wgmma has them); columns are tokens.
TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) { return c.tile_n / kPanel; }
TRIGEN_HOST_DEVICE constexpr int token_panels(const Config& c) { return c.tile_m / kPanel; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * consumers(c) + kLoaders; }
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c) {
  return token_panels(c) * kPanelBytes + consumers(c) * kRowsBytes;
}
// Each multiplying warpgroup stages 64 tokens of its output.
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Config& c) {
  return c.stages * stage_bytes(c) + consumers(c) * kRowsBytes + kBarrierBytes;
}
// setmaxnreg, in units of 8.
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 72; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) { return consumers(c) == 1 ? 240 : 216; }
// Column tiles of one head.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  return persistent::panel_units(consumers(c), B, D);
}

}  // namespace trigen::wgmma_rows_sm90
