// A report as one HTML file: style and pictures inside, no script, nothing that is fetched.
#pragma once

#include <string>

#include "cli/report_data.h"

namespace trigen::cli {

std::string report_page(const ReportData& data);

}  // namespace trigen::cli
