#include "cli/tune_tables.h"

#include <cstdio>

#include "check/text.h"
#include "cli/table.h"
#include "tuner/search_report.h"
#include "tuner/statistics.h"

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

std::string percent_or_dash(double share) { return share > 0 ? format("%.0f %%", 100 * share) : "-"; }

std::string provenance_text(const TuneReport& r) {
  const bool measured = r.provenance == Provenance::kMeasured;
  std::string provenance = measured ? "measured" : "predicted";
  if (r.kept) provenance += measured ? " before" : ", by another process";
  if (!r.complete) provenance += ", interrupted";
  return provenance;
}

std::string emulated_checks(const std::vector<TuneReport>& reports) {
  size_t checked = 0;
  const TuneReport* worst = nullptr;
  for (const TuneReport& r : reports) {
    if (r.provenance != Provenance::kPredicted || r.tolerance <= 0) continue;
    ++checked;
    if (worst == nullptr || r.error / r.tolerance > worst->error / worst->tolerance) worst = &r;
  }
  if (worst == nullptr) return "";
  const std::string count = reports.size() > 1 ? format("%zu of %zu, worst ", checked, reports.size()) : "";
  return "checked on the emulated device: " + count +
         format("error %.1e, allowed %.1e", worst->error, worst->tolerance);
}

void print_choices(const std::vector<TuneReport>& reports) {
  Table table({"=problem", "target", "=choice", ">time", "?>quartiles", "provenance", ">dense",
               "?>of ceiling", "?>error"});
  for (const TuneReport& r : reports) {
    const bool measured = r.provenance == Provenance::kMeasured;
    table.add({r.problem, r.target, r.chosen, format_seconds(r.seconds),
               measured && !r.kept ? format_seconds(r.lower_s) + " - " + format_seconds(r.upper_s) : "-",
               provenance_text(r),
               r.dense_s > 0 ? format_seconds(r.dense_s) + (r.dense_measured ? "" : " est.") : "-",
               percent_or_dash(r.share_of_ceiling()),
               r.tolerance > 0 || r.error > 0 ? format("%.1e", r.error) : "-"});
  }
  table.print();
}

void print_candidates(const TuneReport& report) {
  std::printf("%s\n", report.problem.c_str());
  Table table({">rank", "=candidate", "outcome", ">predicted", ">quick", ">finals", "?>registers", "?>error",
               "?note"});
  for (size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateReport& row = report.candidates[i];
    if (row.outcome == Outcome::kNotTried) continue;
    table.add({std::to_string(i + 1), row.candidate, to_string(row.outcome), format_seconds(row.predicted_s),
               row.quick.empty() ? "" : format_seconds(summarize(row.quick).median),
               row.finals.empty() ? "" : format_seconds(summarize(row.finals).median),
               row.resources.registers > 0 ? std::to_string(row.resources.registers) : "",
               row.tolerance > 0 ? format("%.1e", row.error) : "", row.note.substr(0, row.note.find('\n'))});
  }
  table.print();
  std::printf("%s; %.1f s\n\n", report.stop_reason.c_str(), report.elapsed_s);
}

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
