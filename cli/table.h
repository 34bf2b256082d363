// Aligned tables for people, made to fit the width they have.
//
// On a terminal, columns in which no row has anything ("-") are not printed. A table that is too wide becomes narrower
// without losing what tells its rows apart:
//   1. problems leave their defaults out, and what all rows share (keys of problems and of candidates, whole
//      columns of text) goes into a line above the table;
//   2. columns that may be left out are, the last one first, and the line below the table names them;
//   3. the widest column of text is broken at commas and spaces.
// A single row that is too wide, and rows that are too wide even so, become cards: a line of heading and cell for each
// column that has something, below the first cell.
// Output to a file or a pipe, and --wide, has everything in one line a row.
#pragma once

#include <string>
#include <vector>

namespace trigen::cli {

class Table {
 public:
  // Marks before a heading: '>' aligned to the right (numbers); '=' key=value lists, problems and candidates;
  // '?' may be left out where the terminal is narrow. '?' comes first of two: "?>error".
  explicit Table(const std::vector<std::string>& headings);
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // At most `columns` wide (0: no limit). Two spaces between columns, no trailing spaces, a final newline.
  std::string text(int columns = 0) const;
  // The same in lines; `heading` is the index of the line with the headings, of a card that with its first cell.
  std::vector<std::string> lines(int columns, size_t& heading) const;
  // On standard output, as wide as that is.
  void print() const;

 private:
  struct Column {
    std::string heading;
    bool right = false, keys = false, optional = false;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace trigen::cli
