// A drawing of benchmark tables: one panel a table, one bar a row, and a mark at the figure that was asked.
#pragma once

#include <string>
#include <vector>

#include "peers/table_result.h"

namespace trigen {

// An SVG document (1.1, no scripts, no fonts of its own). Bars are solid where the figure was reached, pale
// where it was missed; the thick mark is the figure asked for, the thin one the stretch; the dashed line
// is 1. Rows without a figure keep their place and say so.
std::string plot_svg(const std::vector<TableResult>& results);

// What drawings share: an op's colour, and text made safe for XML.
std::string color_of_op(const std::string& op);
std::string escape_xml(const std::string& text);

}  // namespace trigen
