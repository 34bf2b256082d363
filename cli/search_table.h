// What a tune's searches did, as a table for people.
#pragma once

#include <string>
#include <vector>

#include "tuner/tune.h"

namespace trigen::cli {

// "" where nothing was searched: measurements that were kept.
std::string search_table(const std::vector<TuneReport>& reports, int columns);

}  // namespace trigen::cli
