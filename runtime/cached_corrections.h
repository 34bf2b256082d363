// Corrections of the cost model's predictions for a problem without a record of its own, from measured records of the
// same problem at other batch sizes and on other devices of its target.
#pragma once

#include <string>

#include "cache/store.h"
#include "generator/prediction_corrections.h"
#include "runtime/device.h"

namespace trigen {

struct CachedCorrections {
  PredictionCorrections corrections;
  std::string from;  // "ranked by times of B=32, B=128 on NVIDIA H200", "" when there is nothing
};
CachedCorrections find_corrections(const Problem& problem, const Target& target, const Device& device,
                                   Store& store);

}  // namespace trigen
