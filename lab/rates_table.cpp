#include "lab/rates_table.h"

#include "check/text.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen {

RatesTable::RatesTable(const std::string& text) {
  llvm::SmallVector<llvm::StringRef, 128> lines;
  llvm::StringRef(text).split(lines, '\n');
  for (const llvm::StringRef line : lines) {
    const llvm::StringRef said = line.split('#').first.trim();
    if (!said.empty() && said.front() != '[') rates_.push_back(lines_.size());
    lines_.push_back(line.str());
  }
}

void RatesTable::set(const std::vector<Rate>& all, size_t at) {
  const Rate& r = all[at];
  const char* kinds[] = {"datasheet", "fitted", "assumed"};
  const std::string first = r.first != r.value ? format("%.4g>", r.first) : "";
  lines_[rates_[at]] =
      format("%-15s %-12s %-8s %-10s %s", r.name.c_str(), (first + format("%.4g", r.value)).c_str(),
             r.unit.c_str(), kinds[static_cast<int>(r.kind)], r.source.c_str());
}

std::string RatesTable::text() const { return llvm::join(lines_, "\n"); }

}  // namespace trigen
