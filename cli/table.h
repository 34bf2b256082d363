// Aligned tables for people.
#pragma once

#include <string>
#include <vector>

namespace trigen::cli {

class Table {
 public:
  // A heading that starts with '>' is for a column that is aligned to the right.
  explicit Table(std::vector<std::string> headings);
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Two spaces between columns, no trailing spaces, a final newline.
  std::string text() const;
  void print() const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace trigen::cli
