// Stream-K schedule of grad_weight in the warpgroup families: the arguments of
// templates/persistent/stream_k.h for a problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/family.h"
#include "templates/persistent/stream_k.h"

namespace trigen {

// Clusters that run at the same time, one block on an SM. The blocks of a cluster are on one group of SMs,
// and the rest of a group stays empty: an H200 of 132 SMs takes 30 clusters of 4
// (cuOccupancyMaxActiveClusters), and of 3 and of 6 at least 36 and 18, but not 40 and 20, of 7 not 16 (timed).
// With `places` blocks on an SM.
int clusters_at_once(const Target& target, int cluster, int places = 1);

// `grid`: thread blocks of the launch. The depth is counted in blocks of 128 bytes of features.
persistent::StreamK weight_stream_k(const Problem& problem, const Config& config, int grid);

// Rows of tiles, of all heads and taps: the reduction counts up to 520 items for each, in 32 bits
// (templates/persistent/reduce.cuh, stacked.cuh).
inline constexpr double kMostWeightRows = 1 << 21;

// True if a second launch may have sums to add, whatever B is: a kernel's source names its launches. (Narrow tiles' k blocks are
// laid end to end, some run may be incomplete.)
bool leaves_parts(const Config& config, const persistent::StreamK& stream_k);

// Elements of k that are multiplied for a k block, on average: fewer for the last one of a batch.
double multiplied_depth(const Problem& problem, const Config& config);

// The reason why StreamK cannot count a problem's tiles, parts and k blocks of `features` elements in 32
// bits, worded as what a family does; nullopt where it can.
std::optional<std::string> too_many_work_tiles(const Problem& problem, int features);

// `config` with every split_k worth a try.
std::vector<Config> with_splits(Config config, const persistent::StreamK& stream_k);

}  // namespace trigen
