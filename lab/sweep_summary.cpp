#include "lab/sweep_summary.h"

#include <algorithm>
#include <cmath>

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

}  // namespace trigen
