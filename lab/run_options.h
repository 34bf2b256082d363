// Options that a run of tables and a sweep share.
#pragma once

#include "cli/target_options.h"
#include "lab/table_run.h"

namespace trigen::cli {

struct RunOptions {
  TargetOptions where;
  std::string out = "build/bench";  // folder of what is written
  std::string limit, row_time;
  int rounds = 31;
  bool no_check = false, print_problems = false;

  void add_to(CLI::App& app);
  llvm::Expected<TableOptions> table_options() const;
  // Stop starting rows after so many seconds; 0: never.
  llvm::Expected<double> limit_s() const;
};

}  // namespace trigen::cli
