#include "generator/cost/counts.h"

namespace trigen {

BlockCounts Counts::total(double steps, double tiles) const {
  BlockCounts out;
  for (const auto field : kBlockCounts) out.*field = step.*field * steps + tile.*field * tiles;
  return out;
}

Counts solve(const std::vector<Sample>& samples, const std::vector<BlockCounts>& counted) {
  Counts out;
  const Sample& a = samples.front();
  if (samples.size() == 1) {
    for (const auto field : kBlockCounts) out.step.*field = counted.front().*field / a.steps;
    return out;
  }
  // a.steps * step + a.tiles * tile = counted a, and the same for b
  const Sample& b = samples.back();
  const double determinant = a.steps * b.tiles - b.steps * a.tiles;
  for (const auto field : kBlockCounts) {
    const double of_a = counted.front().*field, of_b = counted.back().*field;
    out.step.*field = (of_a * b.tiles - of_b * a.tiles) / determinant + 0.0;  // no -0
    out.tile.*field = (a.steps * of_b - b.steps * of_a) / determinant + 0.0;
  }
  return out;
}

}  // namespace trigen
