// Where the 64 x 64 panels of an output tile lie. n runs over panels of 64 features of one (batch, head); a
// tile's panels may come from different batches.
#pragma once

#include "config.h"
#include "wgmma_sm90.h"

namespace trigen::wgmma_sm90 {

// A tile's first panel in its head, and the panels of the whole tensor.
struct Panels {
  int batch_panels, head_units;
  template <class G>
  __device__ __forceinline__ int first(int column, int& head, unsigned rank) const {
    head = column / head_units;
    return ((column - head * head_units) * G::kCluster + static_cast<int>(rank)) * G::kPanels;
  }
  __device__ __forceinline__ void locate(int panel, int& batch, int& feature) const {
    batch = panel / batch_panels;
    feature = (panel - batch * batch_panels) * kPanel;
  }
};

struct PanelPlace {
  int feature, row, head, batch;
};

}  // namespace trigen::wgmma_sm90
