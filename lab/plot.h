// A drawing of benchmark tables: one panel a table, one bar a row, and a mark at the figure that was asked.
#pragma once

#include <string>
#include <vector>

#include "lab/table_result.h"

namespace trigen {

// An SVG document. Bars are solid where the figure was reached, pale
// where it was missed; the thick mark is the figure asked for, the thin one the stretch; the dashed line
// is 1. Rows without a figure keep their place and say so.
std::string plot_svg(const std::vector<TableResult>& results);

}  // namespace trigen
