// Summary of a sweep's rows.
#pragma once

#include <string>
#include <vector>

#include "lab/table_result.h"

namespace trigen {

// The most that a triangle can gain on a dense product: half of the multiply-adds. A ratio above is of a peer that
// is not at its best, so means cut it.
inline constexpr double kMostGain = 2;

struct SweepSummary {
  std::string table, op;  // op "": all of them
  size_t rows = 0;        // with a figure
  size_t failed = 0;
  size_t not_slower = 0;  // the peer's time over trigen's is 1 or more
  double mean = 0;        // geometric, of ratios cut at kMostGain
  double uncut = 0;       // geometric, of all as they are
  double tenth = 0;       // percentile, by linear interpolation
  double worst = 0;
};
// Summaries of each table, in the order of its first row: all rows, then those of each op.
std::vector<SweepSummary> summarize_sweep(const std::vector<TableResult>& results);
// The rows of a table by their figure, the least first; those without one are not among them.
std::vector<TableResult> worst_of(const std::vector<TableResult>& results, const std::string& table,
                                  size_t count);
// The rows of a table whose figure is above kMostGain, in their order.
std::vector<TableResult> above_most(const std::vector<TableResult>& results, const std::string& table);

}  // namespace trigen
