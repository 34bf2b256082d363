// `trigen tune --replay`: the search on recordings.
#pragma once

#include <string>
#include <vector>

#include "tuner/search.h"

namespace trigen::cli {

// What the search would have chosen, and at what cost, over sixteen draws of the noise.
llvm::Error print_replays(const std::vector<std::string>& paths, const SearchOptions& search, uint64_t seed);

}  // namespace trigen::cli
