#include "lab/sweep_summary.h"

#include <algorithm>
#include <cmath>

#include "check/text.h"
#include "cli/drawing.h"
#include "generator/problem.h"
#include "tuner/statistics.h"

namespace trigen {
namespace {

std::vector<std::string> tables_of(const std::vector<TableResult>& results) {
  std::vector<std::string> out;
  for (const TableResult& result : results)
    if (std::find(out.begin(), out.end(), result.table) == out.end()) out.push_back(result.table);
  return out;
}

SweepSummary summary_of(const std::vector<TableResult>& results, const std::string& table,
                        const std::string& op) {
  SweepSummary out;
  out.table = table;
  out.op = op;
  std::vector<double> figures;
  double logarithms = 0, cut = 0;
  for (const TableResult& result : results) {
    if (result.table != table || (!op.empty() && op_of(result) != op)) continue;
    out.failed += result.failed ? 1 : 0;
    if (result.failed || result.got <= 0) continue;
    figures.push_back(result.got);
    logarithms += std::log(result.got);
    cut += std::log(std::min(result.got, kMostGain));
    out.not_slower += result.got >= 1 ? 1 : 0;
  }
  out.rows = figures.size();
  if (figures.empty()) return out;
  std::sort(figures.begin(), figures.end());
  out.mean = std::exp(cut / static_cast<double>(figures.size()));
  out.uncut = std::exp(logarithms / static_cast<double>(figures.size()));
  out.tenth = quantile(figures, 0.1);
  out.worst = figures.front();
  return out;
}

constexpr double kPanelWidth = 620, kPanelHeight = 250, kPlotLeft = 60, kPlotTop = 56, kPlotBottom = 44;

// 32 to 16384 tokens, and 0.25 to 4 times, both logarithmic.
double x_of(double tokens) {
  return kPlotLeft + (std::log2(tokens) - 5) / 9 * (kPanelWidth - kPlotLeft - 30);
}
double y_of(double ratio) { return (2 - std::clamp(std::log2(ratio), -2.0, 2.0)) / 4 * kPanelHeight; }

std::string panel(const std::vector<TableResult>& results, const std::string& table, double top) {
  const SweepSummary all = summary_of(results, table, "");
  std::string out = svg::text(
      kPlotLeft, top - 10,
      table +
          format(": %zu of %zu not slower, geometric mean of ratios cut at 2 %.2f, tenth percentile %.2f, "
                 "worst %.2f",
                 all.not_slower, all.rows, all.mean, all.tenth, all.worst),
      "font-size=\"12\" font-weight=\"bold\"");
  for (const double tick : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    out += svg::line(kPlotLeft, top + y_of(tick), kPanelWidth - 20, top + y_of(tick),
                     tick == 1 ? "stroke=\"#4a5568\" stroke-dasharray=\"4 3\"" : "stroke=\"#e2e8f0\"");
    out += svg::text(kPlotLeft - 6, top + y_of(tick) + 4, format("%g", tick), "text-anchor=\"end\"");
  }
  for (int tokens = 32; tokens <= 16384; tokens *= 2)
    out += svg::text(x_of(tokens), top + kPanelHeight + 16, std::to_string(tokens), "text-anchor=\"middle\"");
  for (const TableResult& result : results) {
    if (result.table != table || result.got <= 0) continue;
    auto problem = parse_problem(result.problem);
    if (!problem) {
      llvm::consumeError(problem.takeError());
      continue;
    }
    out += svg::circle(x_of(static_cast<double>(problem->T)), top + y_of(result.got), 3.4,
                       "fill=\"" + svg::color_of_op(op_of(result)) + "\" fill-opacity=\"0.75\"",
                       result.problem + format(": %.2f", result.got));
  }
  return out;
}

}  // namespace

std::vector<SweepSummary> summarize_sweep(const std::vector<TableResult>& results) {
  std::vector<SweepSummary> out;
  for (const std::string& table : tables_of(results)) {
    for (const char* op : {"", "forward", "grad_input", "grad_weight"}) {
      const SweepSummary summary = summary_of(results, table, op);
      if (*op == '\0' || summary.rows + summary.failed > 0) out.push_back(summary);
    }
  }
  return out;
}

std::vector<TableResult> worst_of(const std::vector<TableResult>& results, const std::string& table,
                                  size_t count) {
  std::vector<TableResult> out;
  for (const TableResult& result : results)
    if (result.table == table && result.got > 0 && !result.failed) out.push_back(result);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.got < b.got; });
  if (out.size() > count) out.resize(count);
  return out;
}

std::vector<TableResult> above_most(const std::vector<TableResult>& results, const std::string& table) {
  std::vector<TableResult> out;
  for (const TableResult& result : results)
    if (result.table == table && result.got > kMostGain && !result.failed) out.push_back(result);
  return out;
}

std::string sweep_svg(const std::vector<TableResult>& results) {
  const std::vector<std::string> tables = tables_of(results);
  const double step = kPlotTop + kPanelHeight + kPlotBottom;
  const double height = 40 + step * static_cast<double>(tables.size());
  std::string out;
  if (!results.empty())
    out += svg::text(kPlotLeft, 18,
                     "the fastest peer's time over trigen's, against T; " + results[0].device + ", driver " +
                         results[0].driver + ", " + results[0].library,
                     "fill=\"#4a5568\"");
  double legend = kPlotLeft;
  for (const char* op : {"forward", "grad_input", "grad_weight"}) {
    out +=
        svg::circle(legend, 30, 4, "fill=\"" + svg::color_of_op(op) + "\"") + svg::text(legend + 9, 34, op);
    legend += 100;
  }
  double top = 20 + kPlotTop;
  for (const std::string& table : tables) {
    out += panel(results, table, top);
    top += step;
  }
  return svg::document(kPanelWidth, height, 10, out);
}

}  // namespace trigen
