// The clock (lab/clock/) held against times that a device measured: every recorded candidate of the tile families
// is compiled, its main loop clocked, and the steps of the cost model take its cycles.
#pragma once

#include "cache/store.h"
#include "lab/model_check.h"

namespace trigen {

struct ClockedSpaces {
  std::vector<RecordedSpace> spaces;  // the rows that the clock reads, of the spaces that have some
  std::vector<std::vector<double>> estimated_us, clocked_us;  // of each row
  std::vector<std::string> refused;                           // candidates that it cannot follow, and why
};
// `progress`: after each candidate; false stops with what is there. Errors: those of compiling and of the
// disassembler.
llvm::Expected<ClockedSpaces> clock_spaces(const std::vector<RecordedSpace>& spaces, Store& store,
                                           const std::function<void(size_t done, size_t all)>& progress);

}  // namespace trigen
