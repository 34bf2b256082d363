// Panels of columns: 64 features of one (batch, head), or as many as a family's boxes have (wgmma_sm90.h). n runs
// over panels; a tile's may come from different batches.
#pragma once

#include "config.h"
#include "persistent/sizes.h"

namespace trigen::persistent {

// A tile's first panel in its head, and the panels of the whole tensor.
struct Panels {
  int batch_panels, head_units;
  // kPanels: of a block's tile.
  template <int kCluster, int kPanels>
  __device__ __forceinline__ int first(int column, int& head, unsigned rank) const {
    head = column / head_units;
    return ((column - head * head_units) * kCluster + static_cast<int>(rank)) * kPanels;
  }
  template <int kFeatures = kPanel>
  __device__ __forceinline__ void locate(int panel, int& batch, int& feature) const {
    batch = panel / batch_panels;
    feature = (panel - batch * batch_panels) * kFeatures;
  }
};

}  // namespace trigen::persistent
