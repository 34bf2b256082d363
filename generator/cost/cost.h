// The cost model: predicts the time of a candidate without running it. It ranks; it does not promise. One
// engine reads what a family counts of its kernels (generator/work.h) and a device's rates
// (generator/rates.h); docs/cost-model.md has the formulas.
#pragma once

#include <optional>
#include <string>

#include "generator/candidate.h"
#include "generator/rates.h"
#include "generator/work.h"

namespace trigen {

// The version of the model that predicted records name in their evidence ("model"): one more whenever a choice
// may change (formulas, rates, what families count). Plans choose anew where an older one predicted
// (runtime/resolve.cpp). unit.ModelVersion pins what the model of this version chooses.
inline constexpr int kModelVersion = 29;

// The compiler's report of a binary (ptxas). Filled by runtime/compile.h.
struct Resources {
  int registers = 0;    // per thread
  int spill_bytes = 0;  // spill stores + loads
  int stack_bytes = 0;
  int static_shared = 0;  // bytes
  // True if the kernel spills more than kFewSpills bytes; such a kernel is not chosen unmeasured.
  bool spills() const { return spill_bytes > kFewSpills; }
  static constexpr int kFewSpills = 32;
};

// The device to predict for: the target's model device, or one that was queried.
struct DeviceModel {
  int sms = 0;
  double clock_hz = 0;
  int64_t l2_bytes = 0;
  double dram_bytes_per_s = 0;
  const Rates* rates = nullptr;  // what a table says beside these
  const Target* gpu = nullptr;   // its row of gpus.def, or a target: its units' rates
};
DeviceModel model_of(const Target& target);

struct Prediction {
  double seconds = 0;
  double compute_s = 0, dram_s = 0, l2_s = 0, tail_s = 0, fixed_s = 0;
  int blocks_per_sm = 0;
  std::string limiter;  // "tensor", "fma", "dram", "l2", "tail", "launch"
};
// `step_cycles` take the place of a step's whole time in a loop of Loop::kInterleaved, for as many blocks as
// share an SM (lab/clock/).
Prediction predict(const Work& work, const Target& target, const DeviceModel& device,
                   const std::optional<Resources>& resources = std::nullopt,
                   const std::optional<double>& step_cycles = std::nullopt);
Prediction predict(const Candidate& candidate, const DeviceModel& device,
                   const std::optional<Resources>& resources = std::nullopt);

}  // namespace trigen
