// trigen bench --sweep: unseen problems, untuned and tuned, beside every peer.
#pragma once

#include <string>
#include <vector>

#include "llvm/Support/Error.h"
#include "peers/sweep_problems.h"
#include "peers/sweep_run.h"
#include "runtime/device.h"

namespace trigen::cli {

struct BenchSweep {
  int count = 0;  // problems
  uint64_t seed = 1;
  std::string half = "reported";    // or "fitting"
  std::vector<std::string> unseen;  // lists of problems whose sizes are left out
  std::string out = "build/bench";  // folder of sweep.jsonl, sweep.svg and the sweep's own cache
  double limit_s = 0;               // stop starting problems after so long; 0 = never
  SweepOptions options;

  llvm::Expected<std::vector<Problem>> problems() const;
  // The exit code: a problem that cannot run does not fail the command; a wrong result does.
  llvm::Expected<int> run(const Device& device) const;
};

// The tables of a sweep's results for people, as wide as `columns`.
std::string sweep_text(const std::vector<TableResult>& results, int columns);

}  // namespace trigen::cli
