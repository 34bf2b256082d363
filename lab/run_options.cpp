#include "lab/run_options.h"

#include "cli/command.h"

namespace trigen::cli {

void RunOptions::add_to(CLI::App& app) {
  where.add_arch(app);
  where.add_device(app);
  app.add_option("--out", out, "folder for the results (build/bench)");
  app.add_option("--limit", limit, "start nothing after so long: 150s, 5m");
  app.add_option("--row-time", row_time, "time for one row's rounds, at least 7 of them (1s)");
  app.add_option("--rounds", rounds, "rounds of the interleaved timing (31)")->check(CLI::Range(5, 1000));
  app.add_flag("--no-check", no_check, "time without checking results first");
  app.add_flag("--print-problems", print_problems, "print the problems, run nothing");
}

llvm::Expected<TableOptions> RunOptions::table_options() const {
  TableOptions options;
  if (!row_time.empty()) {
    auto seconds = parse_duration("row time", row_time);
    if (!seconds) return seconds.takeError();
    options.seconds = *seconds;
  }
  options.plan = plan_options_from_environment();
  if (!where.arch.empty()) options.plan.target = where.arch;
  options.rounds = rounds;
  options.check = !no_check;
  options.cancel = &catch_interrupts();
  return options;
}

llvm::Expected<double> RunOptions::limit_s() const {
  if (limit.empty()) return 0.0;
  return parse_duration("limit", limit);
}

}  // namespace trigen::cli
