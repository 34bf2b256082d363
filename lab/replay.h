// A search on recorded times instead of a device.
#pragma once

#include "lab/recording.h"
#include "tuner/search.h"

namespace trigen {

struct ReplayResult {
  size_t chosen = 0, best = 0;  // rows of the recording: the search's choice, and the fastest of all rows
  double regret = 0;            // the choice's recorded time over the best one's, less 1
  size_t tried = 0;             // candidates that were built and run
  double share = 0;             // of the rows
  std::vector<size_t> order;    // rows, as they were tried
  std::string reason;
};

// Runs the search and its finals on the recording. A measurement is the recorded median with noise of the
// recorded spread (`seed` draws it; `noise` scales it: 0 gives the medians themselves). Time does not pass:
// no budget ends it. The recorded truth is the median of the finals where there is one, else of the quick
// samples, scaled to the finals. Errors: a candidate's text that is no family:config, or nothing timed.
llvm::Expected<ReplayResult> replay(const Recording& recording, SearchOptions options, uint64_t seed,
                                    double noise = 1);

}  // namespace trigen
