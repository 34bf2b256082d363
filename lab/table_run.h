// Runs one row of a benchmark table: trigen's kernels, checked, and the row's peers, timed in turn.
#pragma once

#include "lab/table_result.h"
#include "runtime/plan.h"

namespace trigen {

struct TableOptions {
  PlanOptions plan;
  bool check = true;     // trigen's output against the reference before it is timed
  int rounds = 31;       // at most
  double seconds = 1.0;  // of timing for one row, after at least kLeastRounds rounds
  uint64_t seed = 20240912;
  const std::atomic<bool>* cancel = nullptr;
};
inline constexpr int kLeastRounds = 7;

// Never fails: what is missing (an op, a kernel, a library, memory) is the result's note. On the emulated
// device everything runs once, and no time is measured.
TableResult run_table_row(const TableGroup& group, const TableRow& row, const Device& device, Store& store,
                          const TableOptions& options);

}  // namespace trigen
