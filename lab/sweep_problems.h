// Problems as training brings them to tensor cores, drawn from a seed, to measure the speed of shapes that no author
// chose. Not drawn: f32 without tensor cores, decoding, fill=upper, diagonals, silu, pre, accumulate, odd
// strides.
//
//   T       70 %: 32 to 16384, powers of two, 256 to 1024 the most common; 20 %: multiples of 32 between; 10 %: the
//           lengths that patches of images, seconds of audio and round numbers give (49, 197, 1000 ...)
//   H*D     85 %: 64 to 4096, the widths of models, 512 to 1024 the most common; 12 %: other multiples of 8;
//           3 %: any number
//   B       such that a call has 2 k to 128 k tokens, uniform in the logarithm; 60 % of them a power of two
//   H       88 %: 1; else 2, 4, 8 or 16 of at least 16 features
//   K       92 %: 1; else 2 to 16 taps, where T is 2048 at most and H is 1
//   dtype   60 % bf16, 32 % f16, 6 % f32 as tf32, 2 % f32 as f16x3; half of the 16-bit ones with f32 weights
//   op      forward, grad_input and grad_weight in equal parts
//   epilogue  forward: 20 % none, 50 % bias, 10 % bias+gelu, 10 % bias+residual, 6 % bias+gate, 4 %
//           bias+gelu+residual; grad_input: 10 % residual; grad_weight: zeros outside, as PyTorch asks, 80 % with
//           grad_bias
//   layout  4 % bdt
//
// A tensor has 2^28 elements at most, a problem 2^41 dense multiply-adds; B shrinks to that.
#pragma once

#include <random>
#include <vector>

#include "generator/problem.h"

namespace trigen {

// A hash of the sizes, whatever the seed, the op and the types: what is tuned and fitted takes problems of the
// fitting half, and figures are reported of the other one. Kernels were made for reported rows that lost; such
// sizes are a development set from then on, and later draws leave them out (bench/sweep.sh).
enum class SweepHalf { kReported, kFitting };
SweepHalf half_of(const Problem& problem);

class SweepProblems {
 public:
  // Problems of the sizes of any of `seen` are left out, whatever their op.
  SweepProblems(uint64_t seed, SweepHalf half, std::vector<Problem> seen = {})
      : random_(seed), half_(half), seen_(std::move(seen)) {}
  Problem next();

 private:
  Problem draw();
  void draw_sizes(Problem& p);
  int64_t draw_tokens();
  int64_t draw_width();
  // The raw generator only: the library's distributions differ between compilers.
  double real() { return static_cast<double>(random_() >> 11) * 0x1p-53; }  // [0, 1)
  bool chance(int percent) { return real() * 100 < percent; }
  double logarithmic(double low, double high);
  template <size_t N>
  int64_t weighted(const std::pair<int64_t, int> (&choices)[N]);

  std::mt19937_64 random_;
  SweepHalf half_;
  std::vector<Problem> seen_;
};

}  // namespace trigen
