// Random valid problems for property tests and `trigen-lab verify --random`: the same seed gives the same
// problems.
#pragma once

#include <random>

#include "generator/problem.h"

namespace trigen {

class RandomProblem {
 public:
  explicit RandomProblem(uint64_t seed) : random_(seed) {}

  // Any op, dtypes, layout, fill, diagonal, alignment and epilogue, with sizes up to those of real models.
  Problem next();
  // The same with sizes that the emulated device runs in well under a second: T and D to 144, B and H to 3,
  // K to 4, 2e7 multiply-adds; multiples of 8 in half of the cases. One in four is plain: one tap, btd,
  // aligned rows, which the families with bulk copies need. `tf32` false: without math=tf32 and newton_schulz, for
  // targets before Ampere, which lack both.
  Problem next_small(bool tf32 = true);

  // 0 to count - 1.
  int64_t pick(int64_t count) { return std::uniform_int_distribution<int64_t>(0, count - 1)(random_); }
  bool coin() { return pick(2) == 1; }

 private:
  int64_t size(int64_t most);
  Problem kind();         // op, dtypes, math
  void rest(Problem& p);  // all that comes after the sizes
  std::mt19937_64 random_;
};

}  // namespace trigen
