// One problem of a sweep: untuned, tuned and every peer, timed in turn in one run.
#pragma once

#include "lab/table_run.h"
#include "tuner/tune.h"

namespace trigen {

struct SweepOptions {
  TableOptions table;
  bool tune = true;
  TuneOptions tuning;  // its budget is the tune's of each problem
};

// The names of a sweep's tables.
inline constexpr const char* kUntuned = "untuned";
inline constexpr const char* kTuned = "tuned";

// One result of the table `untuned` (the model's choice, for a store that has no record of the problem) and one of
// `tuned`. `got` is the fastest peer's time over trigen's, `floor_seconds` the time of a device copy of the bytes
// that must move, or of the products at the device's full rate, whichever is longer. Never fails: what is missing
// is the results' note.
std::vector<TableResult> run_sweep_problem(const Problem& problem, const Device& device, Store& store,
                                           const SweepOptions& options);

}  // namespace trigen
