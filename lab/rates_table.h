// A table of rates (generator/rates.h) as lines, of which a fit changes some.
#pragma once

#include <string>
#include <vector>

#include "generator/rates.h"

namespace trigen {

class RatesTable {
 public:
  explicit RatesTable(const std::string& text);
  // Writes the line of all[at]; `all` is in the order of Rates::all().
  void set(const std::vector<Rate>& all, size_t at);
  std::string text() const;

 private:
  std::vector<std::string> lines_;
  std::vector<size_t> rates_;  // the lines that hold a rate
};

}  // namespace trigen
