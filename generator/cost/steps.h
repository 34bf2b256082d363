// The time of a step and of a tile's end, from what they do and a device's rates. Internal to
// generator/cost/.
#pragma once

#include "generator/cost/cost.h"

namespace trigen {

// Inputs of every formula.
struct CostInput {
  const Work& work;
  const Target& target;
  const DeviceModel& device;
  const LoopRates& loop;
  const DeviceRates& rates;
  const Resources* resources = nullptr;  // null: not compiled
  const double* step_cycles = nullptr;   // null: estimates
};

struct Occupancy {
  int blocks = 1;          // on one SM
  double spill_bytes = 0;  // of a thread
};
Occupancy occupancy(const CostInput& in);

// Seconds of one step of a kind, where `blocks` blocks share an SM.
double step_seconds(const CostInput& in, const Step& step, int blocks, double spill_bytes);
// The same of a streamed loop, where most other SMs are idle.
double step_seconds_alone(const CostInput& in, const Step& step);
// Bytes of a step's f32 weights, which are twice as many as of 16 bits, that come with other blocks' reads of the row tile.
double read_together(const CostInput& in, const Step& step);
// Seconds of a block for each whole output tile, outside its steps.
double tile_seconds(const CostInput& in);
// Times as long as without spills (streamed loops).
double spill_factor(const CostInput& in);

}  // namespace trigen
