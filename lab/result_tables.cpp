#include "lab/result_tables.h"

#include <map>

#include "check/text.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

std::string asked_figure(const TableResult& r) {
  if (r.asked <= 0) return "-";
  std::string text = format("%s%.2f", r.at_most ? "<= " : "", r.asked);
  if (r.stretch > 0) text += format(" (%.2f)", r.stretch);
  return text;
}

std::string kernel_of(const TableResult& r) {
  if (r.kernel.empty()) return "";
  return r.kernel + (r.provenance.find("predicted") != std::string::npos ? ", predicted" : "");
}

std::string time_or_dash(double seconds) { return seconds > 0 ? format_seconds(seconds) : "-"; }

std::string table_text(const std::vector<const TableResult*>& rows, int columns) {
  const bool goals = llvm::any_of(rows, [](const TableResult* r) { return r->asked > 0; });
  std::vector<std::string> headings = {"problem",    "op",   ">time",   "?peer",
                                       "?>its time", ">got", "verdict", "?kernel"};
  constexpr int kAsked = 5;
  if (goals) headings.insert(headings.begin() + kAsked, ">asked");
  Table table(headings);
  std::map<std::string, std::vector<std::string>> notes;  // and the rows that have them
  for (const TableResult* r : rows) {
    const std::string label = short_label(r->problem);
    std::vector<std::string> cells = {label,
                                      op_of(*r),
                                      time_or_dash(r->seconds),
                                      r->peer,
                                      time_or_dash(r->peer_seconds),
                                      r->got > 0 ? format("%.3f", r->got) : "-",
                                      to_string(r->verdict()),
                                      kernel_of(*r)};
    if (goals) cells.insert(cells.begin() + kAsked, asked_figure(*r));
    table.add(std::move(cells));
    const std::string note = r->note.substr(0, r->note.find('\n'));
    if (!note.empty()) notes[note].push_back(label + " " + op_of(*r));
  }
  std::string out = table.text(columns);
  for (const auto& [note, of] : notes) {
    std::string text = printable(note);
    if (of.size() > 3)
      text = format("%zu of %zu rows: ", of.size(), rows.size()) + text;
    else if (note.find("cublas is not") != 0)
      text = printable(llvm::join(of, ", ")) + ": " + text;
    for (const std::string& line : wrap(text, columns > 4 ? static_cast<size_t>(columns) - 2 : 0))
      out += "  " + line + "\n";
  }
  return out;
}

}  // namespace

std::string tables_text(const std::vector<TableResult>& results, int columns) {
  std::vector<std::vector<const TableResult*>> tables;
  for (const TableResult& result : results) {
    auto table = std::find_if(tables.begin(), tables.end(),
                              [&](const auto& rows) { return rows.front()->table == result.table; });
    if (table == tables.end()) table = tables.insert(table, std::vector<const TableResult*>());
    table->push_back(&result);
  }
  std::string out;
  for (const auto& rows : tables)
    out += (out.empty() ? "" : "\n") + printable(rows.front()->table + ": " + rows.front()->title) + "\n" +
           table_text(rows, columns);
  return out;
}

}  // namespace trigen::cli
