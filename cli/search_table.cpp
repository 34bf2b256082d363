#include "cli/search_table.h"

#include "check/text.h"
#include "cli/table.h"
#include "tuner/search_report.h"

namespace trigen::cli {
namespace {

std::string steps_of(const SearchReport& search) {
  std::string text;
  const size_t first = search.best.size() > 4 ? search.best.size() - 4 : 0;
  for (size_t i = first; i < search.best.size(); ++i)
    text += (text.empty() ? "" : ", ") + format_seconds(search.best[i].best_s) +
            format(" at %.1f s", search.best[i].at_s);
  return text.empty() ? "-" : text;
}

}  // namespace

std::string search_table(const std::vector<TuneReport>& reports, int columns) {
  Table table({"=problem", ">space", ">tried", "passed over", "?best over time", ">expected loss"});
  for (const TuneReport& report : reports) {
    if (report.kept) continue;
    const SearchReport search = search_report_of(report);
    std::string over;
    for (const auto& [why, count] : search.passed_over)
      over += (over.empty() ? "" : ", ") + format("%zu ", count) + why;
    table.add({report.problem, std::to_string(search.space), std::to_string(search.tried),
               over.empty() ? "-" : over, steps_of(search),
               search.expected_loss >= 0 ? format("%.1f %%", 100 * search.expected_loss) : "-"});
  }
  return table.empty() ? "" : table.text(columns);
}

}  // namespace trigen::cli
