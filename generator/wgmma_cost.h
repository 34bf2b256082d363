// The cost model of families wgmma_sm90 and wgmma_tf32_sm90, whose persistent blocks and copy engine the
// general model does not know. Internal to generator/.
#pragma once

#include "generator/cost.h"

namespace trigen {

Prediction predict_wgmma_sm90(const Candidate& candidate, const DeviceModel& device,
                              const std::optional<Resources>& resources, const std::optional<Counts>& counts);

}  // namespace trigen
