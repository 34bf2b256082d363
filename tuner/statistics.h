// Statistics of timings, and the rule that picks a winner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "llvm/ADT/ArrayRef.h"

namespace trigen {

// The share `part` (0 to 1) of values sorted upwards, by linear interpolation; at least one value.
double quantile(llvm::ArrayRef<double> sorted, double part);

struct Summary {
  size_t count = 0;
  double median = 0, lower = 0, upper = 0;  // quartiles, by linear interpolation
  double minimum = 0, maximum = 0;
  // Half width of the median's notch, 1.57 (upper - lower) / sqrt(count): two medians whose notches do not
  // overlap differ at about the 95 % level (McGill, Tukey, Larsen 1978, The American Statistician 32(1)).
  double notch = 0;
  double spread() const { return median > 0 ? (upper - lower) / median : 0; }
};
Summary summarize(llvm::ArrayRef<double> samples);

// A machine that slows down while it is measured: the last third's median is above the first third's by more
// than 3 %. Fewer than six samples say nothing.
bool drifts(llvm::ArrayRef<double> samples);
// Positions of samples outside the quartiles by more than three interquartile ranges and by more than 5 % of
// the median.
std::vector<size_t> outliers(llvm::ArrayRef<double> samples);

// Differences below 1 % are not told apart, however many samples there are: two runs of one binary differ by
// as much.
inline constexpr double kNoiseFloor = 0.01;

// The winner among finalists that were timed in turn: samples[i][r] is finalist i's time in round r, all with
// the same rounds. Finalists are given in the fixed order (the model's). The one with the least median is the
// fastest; each other one is in the noise band when the median of its per-round ratios to the fastest is
// below 1 + max(floor, the notch of those ratios). The winner is the first in the fixed order inside
// the band, so that two tunes choose alike.
struct Choice {
  size_t fastest = 0;
  size_t winner = 0;
  std::vector<double> ratio;  // to the fastest, median over rounds
  std::vector<bool> in_band;
};
Choice choose(llvm::ArrayRef<std::vector<double>> samples, double floor = kNoiseFloor);

}  // namespace trigen
