// The candidates of a problem that a recording for the cost model times: the model's first ones, where its order
// decides, and a draw over families and tiles from the rest, where wrong constants show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/candidate.h"

namespace trigen {

struct SampleOptions {
  size_t first = 12, drawn = 20;
  uint64_t seed = 1;
  // Candidates that the model puts at so many times its best are left out, but for each family's own first choice.
  double reach = 4;
};

// Positions in the model's order (rank_candidates), growing. The draw takes the families in turn, and of a
// family its tiles and clusters in a random order, of each a random candidate. The same for the same problem
// and seed.
std::vector<size_t> draw_sample(const std::vector<Candidate>& ranked, const SampleOptions& options);
// "the first 12 and 20 drawn, seed 1"
std::string to_string(const SampleOptions& options);

}  // namespace trigen
