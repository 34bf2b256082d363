// The result of one row of a benchmark table, as one line of JSON, and tables of such rows for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/table_list.h"

namespace trigen {

struct TableArm {
  std::string name;
  double median_s = 0, lower_s = 0, upper_s = 0;  // quartiles
};

enum class Verdict { kMet, kStretch, kMissed, kMeasured, kRuns, kMissing, kFails };
// "met", "met (stretch)", "missed", "measured" (nothing was asked), "runs" (checked where no time can be
// measured), "missing" (note says what), "fails" (it was tried and did not run or was wrong; note says how, and
// a figure beside it is an earlier run's)
const char* to_string(Verdict verdict);

struct TableResult {
  std::string table, title;
  std::string problem;  // TableRow::text()
  std::string over;     // the peer's kind
  double asked = 0, stretch = 0;
  bool at_most = false;
  bool ran = false;                      // trigen's kernels ran and were right
  bool failed = false;                   // they were tried, and were not
  double got = 0;                        // the figure asked for, median of the rounds' ratios; 0: none
  double seconds = 0, peer_seconds = 0;  // medians
  std::string peer;                      // the fastest peer arm
  // The same behind a kernel that lets nothing start early (lab/foreign.h); 0: not timed so.
  double behind_got = 0, behind_seconds = 0, behind_peer_seconds = 0;
  // Floor of a sweep's rows: the time of a device copy of as many bytes ("bytes") or of the products ("products").
  double floor_seconds = 0;
  std::string bound;
  std::string kernel, provenance;  // of trigen, joined by " + "
  std::string device, driver, library;
  std::vector<TableArm> arms;
  int rounds = 0;
  std::string note;
  Verdict verdict() const;
};

TableResult result_of(const TableGroup& group, const TableRow& row);  // what the list says, nothing measured

std::string to_json_line(const TableResult& result);  // without a newline
// Null for a line that is not one (a broken last line after a time-out).
std::optional<TableResult> read_json_line(const std::string& line);
// The last result of each row counts, in the order of first appearance: results of several runs and programs
// may be appended to one file. A row that fails after it gave a figure keeps the figure and says that it fails;
// one that was not started says nothing new.
std::vector<TableResult> latest(const std::vector<TableResult>& results);

// "16,1024,1024 K=8 bias+gelu": the sizes, and what is not the default.
std::string short_label(const std::string& problem);
// "forward"; "step" for several problems in sequence.
std::string op_of(const TableResult& result);

}  // namespace trigen
