// The time that no kernel can beat: the larger of arithmetic and memory traffic at the device's full rates.
#pragma once

#include "generator/cost/cost.h"

namespace trigen {

struct Ceiling {
  double compute_s =
      0;  // the triangle's products at the rate of the unit that the problem's type allows on this target
  double memory_s = 0;  // every input read once (the triangle of W only), every output written once
  double seconds() const { return compute_s > memory_s ? compute_s : memory_s; }
};
// Rates: the target table's, scaled by multiprocessors and clock of `device`.
Ceiling ceiling_of(const Problem& problem, const Target& target, const DeviceModel& device);
// The ceiling of a run of decode that makes these rows.
Ceiling ceiling_of(const Problem& problem, const Target& target, const DeviceModel& device, Rows rows);

}  // namespace trigen
