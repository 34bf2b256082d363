// The time of decode candidates: reading x, and what keeps that from running at full speed.
// docs/cost-model.md.
#pragma once

#include "generator/cost.h"

namespace trigen {

Prediction predict_decode(const Candidate& candidate, const DeviceModel& device,
                          const std::optional<Resources>& resources);

}  // namespace trigen
