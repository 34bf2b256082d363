// trigen profile --timeline: a candidate's main loop on the clock (clock/).
#pragma once

#include <string>

#include "cache/store.h"
#include "generator/candidate.h"

namespace trigen::cli {

struct TimelineOptions {
  bool wanted = false;
  std::string svg;  // file for the picture
};

// Prints what bounds the loop and its timeline; writes the picture where one is asked for.
llvm::Error print_timeline(const Candidate& candidate, const Binary& binary, const TimelineOptions& options,
                           bool as_json);

}  // namespace trigen::cli
