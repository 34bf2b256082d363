// The cost model of the family wgmma_taps_sm90.
#pragma once

#include "generator/cost.h"

namespace trigen {

Prediction predict_wgmma_taps_sm90(const Candidate& candidate, const DeviceModel& device,
                                   const std::optional<Resources>& resources);

}  // namespace trigen
