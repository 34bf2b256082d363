// The pictures of a report as inline SVG. Colours are classes, which the page's style gives for light, dark and
// paper; every mark has a <title>, which browsers show where the pointer is.
#pragma once

#include <string>

#include "cli/report_data.h"

namespace trigen::cli {

// "measured", "near", "predicted", "hole": a word, which is also the class that colours it.
const char* word_of(cache::FleetAnswer answer, const cache::DeviceKind& kind);

// FLOP/s over FLOP/byte, logarithmic, under the roofs of the types that the rows have.
std::string roofline_chart(const ReportKind& kind);
// A bar for each problem: times as fast as a dense product, logarithmic around 1.
std::string dense_chart(const ReportKind& kind);
// One bar over the asked problems: how many of them are measured, near, predicted, holes.
std::string coverage_bar(const ReportKind& kind, size_t problems);
// A square for each asked problem.
std::string coverage_squares(const ReportKind& kind, const std::vector<std::string>& problems);
// The best time over the time of the search, as wide as a word; "" for fewer than two steps.
std::string search_line(const ReportRow& row);
// A bar for each problem that has energy: joules a run; "" for none.
std::string energy_chart(const ReportKind& kind);

}  // namespace trigen::cli
