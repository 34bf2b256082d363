// trigen bench --tables: whole tables of figures, row by row, flushed as they come.
#pragma once

#include <string>

#include "llvm/Support/Error.h"
#include "peers/table_run.h"
#include "runtime/device.h"

namespace trigen::cli {

struct BenchTables {
  std::string list;                 // file of peers/table_list.h's format
  std::string only;                 // names of tables, by commas, in this order; "" = all
  std::string out = "build/bench";  // folder of <list's stem>.jsonl and .svg
  double limit_s = 0;               // stop starting rows after so long; 0 = never
  bool append = false;              // keep earlier lines of the .jsonl
  TableOptions options;

  // The exit code. A row that lacks something does not fail the command; a wrong result does.
  llvm::Expected<int> run(const Device& device, Store& store) const;
};

// Prints the tables of .jsonl files, and writes the drawing into the folder `out`, named as the first one. `asked`: with
// the figures that the list set as its goals, and whether they were met.
llvm::Expected<int> render_tables(const std::vector<std::string>& files, const std::string& out, bool asked);

}  // namespace trigen::cli
