// Panels of columns: 64 features of one (batch, head), or as many as a family's boxes have (wgmma_sm90.h). n runs
// over panels; a tile's may come from different batches.
#pragma once

#include "config.h"
#include "persistent/sizes.h"

namespace trigen::persistent {

// Tiles of several heads: one of each head in turn, so that lines of memory that heads share are wanted at the same time (heads
// of 32 features take 28 % less, of 128 3 %), or, of many tokens, all of a head, whose blocks of W are then the same (2 to 5 %;
// docs/experiments/wgmma_sm90-operands.md).
TRIGEN_HOST_DEVICE constexpr int heads_in_turn(int heads, int tokens) { return tokens <= 512 ? heads : 1; }

// A tile's first panel in its head, and the panels of the whole tensor.
struct Panels {
  int batch_panels, head_units, in_turn = 1;  // heads
  // kPanels: of a block's tile.
  template <int kCluster, int kPanels>
  __device__ __forceinline__ int first(int column, int& head, unsigned rank) const {
    int unit = column / in_turn;
    if (in_turn > 1) {
      head = column - unit * in_turn;
    } else {
      head = column / head_units;
      unit -= head * head_units;
    }
    return (unit * kCluster + static_cast<int>(rank)) * kPanels;
  }
  template <int kFeatures = kPanel>
  __device__ __forceinline__ void locate(int panel, int& batch, int& feature) const {
    batch = panel / batch_panels;
    feature = (panel - batch * batch_panels) * kFeatures;
  }
};

}  // namespace trigen::persistent
