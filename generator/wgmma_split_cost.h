// The cost model of family wgmma_split_sm90. Internal to generator/.
#pragma once

#include "generator/cost.h"

namespace trigen {

Prediction predict_wgmma_split_sm90(const Candidate& candidate, const DeviceModel& device,
                                    const std::optional<Resources>& resources);

}  // namespace trigen
