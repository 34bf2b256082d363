#include "cli/table.h"

#include <algorithm>
#include <cstdio>

#include "generator/names.h"

namespace trigen::cli {

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    const bool right = !heading.empty() && heading[0] == '>';
    right_.push_back(right);
    headings_.push_back(right ? heading.substr(1) : heading);
  }
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  // Cells come from cache files and the environment: what a terminal would obey is shown instead.
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < headings_.size(); ++c) {
    size_t width = headings_[c].size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string out;
  auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(widths[c] - cells[c].size(), ' ');
      text += (c > 0 ? "  " : "") + (right_[c] ? pad + cells[c] : cells[c] + pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line(headings_);
  for (const auto& row : rows_) line(row);
  return out;
}

void Table::print() const { std::fputs(text().c_str(), stdout); }

}  // namespace trigen::cli
