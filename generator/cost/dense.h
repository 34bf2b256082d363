// What the dense product on a masked weight takes: what people run without trigen, and the figure beside every
// time of a kernel.
#pragma once

#include <string>

#include "generator/cost/cost.h"

namespace trigen {

// An estimate of a library's product alone, over both triangles: masking, casts of the weight and epilogues come
// on top of it there. By the larger of arithmetic (the share of the unit's rate that [dense] of the device's rates
// says) and memory. bf16 and TF32 run on the FP32 units where the target has no tensor cores for them, as they do
// in PyTorch; f16x3 stands beside full f32. 0 for decode, which has no such peer.
double dense_seconds(const Problem& problem, const Target& target, const DeviceModel& device);

// Is a kernel of `seconds` no faster than dense's `dense` (0: unknown)? Within 2 % counts as no faster.
bool dense_is_as_fast(double seconds, double dense);
// "a dense product on the masked weight is as fast: 177 us (estimated) beside 184 us (predicted)", or "is faster" where
// it is so by more than 5 %; "" when it is neither.
std::string dense_remark(double seconds, bool measured, double dense, bool dense_measured);

}  // namespace trigen
