// Tables of benchmark results for people.
#pragma once

#include <string>
#include <vector>

#include "lab/table_result.h"

namespace trigen::cli {

// One table after the other, as wide as `columns` (0: no limit): problem, op, time, peer, its time, what was asked (where
// something was), got, verdict, kernel; notes below.
std::string tables_text(const std::vector<TableResult>& results, int columns);

}  // namespace trigen::cli
