#include "cli/table.h"

#include <algorithm>
#include <cstdio>

#include "cli/problem_options.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

constexpr size_t kGap = 2;            // between columns
constexpr size_t kLeastWrapped = 16;  // a column of text is not made narrower than that

// "mma_sm80:tile=64x64x32,warps=2x2" -> "mma_sm80", "tile=64x64x32", "warps=2x2"
std::vector<std::string> keys_of(const std::string& cell) {
  std::vector<std::string> keys;
  std::string text = cell;
  const size_t colon = text.find(':');
  if (colon != std::string::npos && colon < text.find_first_of(",=")) text[colon] = ',';
  llvm::SmallVector<llvm::StringRef, 24> parts;
  llvm::StringRef(text).split(parts, ',');
  for (llvm::StringRef part : parts) keys.push_back(part.str());
  return keys;
}

// A column as it is printed.
struct Shown {
  std::string heading;
  bool right = false, keys = false, optional = false;
  std::vector<std::string> cells;
  size_t width = 0;
  void measure() {
    width = width_of(heading);
    for (const std::string& cell : cells) width = std::max(width, width_of(cell));
  }
};

size_t total(const std::vector<Shown>& columns) {
  size_t sum = columns.empty() ? 0 : kGap * (columns.size() - 1);
  for (const Shown& column : columns) sum += column.width;
  return sum;
}

// Takes the keys that all cells have out of them; what they are. Empty cells go on with the row above.
std::string take_shared_keys(Shown& column) {
  std::vector<std::vector<std::string>> keys;
  std::vector<std::string> shared;
  for (const std::string& cell : column.cells) {
    keys.push_back(cell.empty() ? std::vector<std::string>() : keys_of(short_problem(cell)));
    if (shared.empty() && keys.size() == 1) shared = keys.front();
    if (cell.empty()) continue;
    llvm::erase_if(shared, [&](const std::string& key) { return !llvm::is_contained(keys.back(), key); });
  }
  for (size_t r = 0; r < keys.size(); ++r) {
    llvm::erase_if(keys[r], [&](const std::string& key) { return llvm::is_contained(shared, key); });
    column.cells[r] = llvm::join(keys[r], ",");
  }
  return llvm::join(shared, ",");
}

// The line above the table; what it says is no longer in the columns.
std::string take_shared(std::vector<Shown>& columns) {
  std::string line;
  for (Shown& column : columns) {
    std::string shared;
    if (column.keys) {
      shared = take_shared_keys(column);
    } else if (!column.right && llvm::is_splat(column.cells)) {
      shared = column.cells.front();
      column.cells.assign(column.cells.size(), "");
    }
    if (shared.empty() || shared == "-") continue;
    line += (line.empty() ? "all rows: " : "; ") + column.heading + " " + shared;
  }
  llvm::erase_if(columns, [](const Shown& column) {
    return llvm::all_of(column.cells, [](const std::string& cell) { return cell.empty(); });
  });
  for (Shown& column : columns) column.measure();
  return line;
}

// Columns in which no row has anything.
void drop_empty(std::vector<Shown>& columns) {
  llvm::erase_if(columns, [](const Shown& column) {
    return llvm::all_of(column.cells, [](const std::string& cell) { return cell.empty() || cell == "-"; });
  });
}

// The line below the table, "" when every column is there.
std::string leave_out(std::vector<Shown>& columns, size_t limit) {
  std::vector<std::string> names;
  for (size_t c = columns.size(); c-- > 0 && total(columns) > limit;) {
    if (!columns[c].optional) continue;
    names.insert(names.begin(), columns[c].heading);
    columns.erase(columns.begin() + static_cast<ptrdiff_t>(c));
  }
  return names.empty() ? "" : "left out: " + llvm::join(names, ", ") + "; --wide shows everything";
}

// A row as a card: "  key         value" below the first cell.
void print_card(const std::vector<Shown>& columns, size_t row, size_t limit, std::vector<std::string>& out) {
  size_t widest = 0;
  for (size_t c = 1; c < columns.size(); ++c) widest = std::max(widest, width_of(columns[c].heading));
  llvm::append_range(out, wrap(columns.front().cells[row], limit));
  for (size_t c = 1; c < columns.size(); ++c) {
    const std::string& heading = columns[c].heading;
    const std::string pad(widest - width_of(heading) + kGap, ' ');
    const std::string& cell = columns[c].cells[row];
    if (!cell.empty() && cell != "-") llvm::append_range(out, behind("  " + heading + pad, cell, limit));
  }
}

void narrow(std::vector<Shown>& columns, size_t limit) {
  while (total(columns) > limit) {
    Shown* widest = nullptr;
    for (Shown& column : columns)
      if (!column.right && column.width > kLeastWrapped &&
          (widest == nullptr || column.width > widest->width))
        widest = &column;
    if (widest == nullptr) return;
    --widest->width;
  }
}

std::string padded(const Shown& column, const std::string& cell) {
  const size_t taken = width_of(cell);
  const std::string pad(column.width > taken ? column.width - taken : 0, ' ');
  return column.right ? pad + cell : cell + pad;
}

void print_row(const std::vector<Shown>& columns, const std::vector<std::string>& cells,
               std::vector<std::string>& out) {
  std::vector<std::vector<std::string>> parts;
  size_t height = 1;
  for (size_t c = 0; c < columns.size(); ++c) {
    parts.push_back(width_of(cells[c]) > columns[c].width ? wrap(cells[c], columns[c].width)
                                                          : std::vector<std::string>{cells[c]});
    height = std::max(height, parts.back().size());
  }
  for (size_t line = 0; line < height; ++line) {
    std::string text;
    for (size_t c = 0; c < columns.size(); ++c)
      text += (c > 0 ? std::string(kGap, ' ') : "") +
              padded(columns[c], line < parts[c].size() ? parts[c][line] : "");
    text.erase(text.find_last_not_of(' ') + 1);
    out.push_back(text);
  }
}

}  // namespace

Table::Table(const std::vector<std::string>& headings) {
  for (llvm::StringRef heading : headings) {
    Column column;
    column.optional = heading.consume_front("?");
    column.right = heading.consume_front(">");
    column.keys = heading.consume_front("=");
    column.heading = heading.str();
    columns_.push_back(std::move(column));
  }
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  // Cells come from cache files and the environment: what a terminal would obey is shown instead.
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::vector<std::string> Table::lines(int columns, size_t& heading) const {
  std::vector<Shown> shown;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    shown.push_back({column.heading, column.right, column.keys, column.optional, {}, 0});
    for (const auto& row : rows_) shown.back().cells.push_back(row[c]);
    shown.back().measure();
  }
  std::vector<std::string> out;
  std::string below;
  const size_t limit = columns > 0 ? static_cast<size_t>(columns) : ~size_t{0};
  if (columns > 0 && !rows_.empty()) drop_empty(shown);
  if (total(shown) > limit) {
    if (rows_.size() > 1) {
      const std::string above = take_shared(shown);
      if (!above.empty()) out = wrap(above, limit);
    } else {
      for (Shown& column : shown) {
        if (column.keys) column.cells.front() = short_problem(column.cells.front());
        column.measure();
      }
    }
    const std::vector<Shown> whole = shown;
    below = leave_out(shown, limit);
    narrow(shown, limit);
    if (rows_.size() == 1 ? total(whole) > limit : total(shown) > limit) {
      heading = out.size();
      for (size_t r = 0; r < rows_.size(); ++r) print_card(whole, r, limit, out);
      return out;
    }
  }
  heading = out.size();
  std::vector<std::string> headings;
  headings.reserve(shown.size());
  for (const Shown& column : shown) headings.push_back(column.heading);
  print_row(shown, headings, out);
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::vector<std::string> cells;
    cells.reserve(shown.size());
    for (const Shown& column : shown) cells.push_back(column.cells[r]);
    print_row(shown, cells, out);
  }
  if (!below.empty()) llvm::append_range(out, wrap(below, limit));
  return out;
}

std::string Table::text(int columns) const {
  size_t heading = 0;
  return llvm::join(lines(columns, heading), "\n") + "\n";
}

void Table::print() const {
  size_t heading = 0;
  const auto all = lines(columns(stdout), heading);
  for (size_t i = 0; i < all.size(); ++i)
    std::printf("%s\n", (i == heading ? styled(stdout, Style::kHeading, all[i]) : all[i]).c_str());
}

}  // namespace trigen::cli
