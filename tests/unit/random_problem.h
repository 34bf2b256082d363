// Random valid problems for property tests: seeded, so that a failure repeats.
#pragma once

#include <algorithm>
#include <random>

#include "generator/problem.h"

namespace trigen {

class RandomProblem {
 public:
  explicit RandomProblem(uint64_t seed) : random_(seed) {}

  Problem next() {
    Problem p;
    p.op = static_cast<Op>(pick(3));
    p.dtype = static_cast<DType>(pick(3));
    p.wdtype = p.dtype != DType::kF32 && coin() ? DType::kF32 : p.dtype;
    if (p.dtype == DType::kF32) p.math = coin() ? Math::kSimt : Math::kTF32;
    p.B = size(300), p.H = size(16), p.T = size(5000), p.D = size(5000), p.K = coin() ? 1 : size(16);
    p.pad = pick(p.K);
    p.layout = coin() ? Layout::kBTD : Layout::kBDT;
    p.fill = coin() ? Fill::kLower : Fill::kUpper;
    if (coin()) p.diag = pick(2 * p.T - 1) - (p.T - 1);
    set_contiguous_alignment(p);
    while (coin() && p.align > element_size(p.dtype)) p.align /= 2;
    while (coin() && p.walign > element_size(p.wdtype)) p.walign /= 2;
    Epilogue& e = p.epilogue;
    switch (p.op) {
      case Op::kForward:
        e.bias = coin();
        e.act = static_cast<Activation>(pick(3));
        e.gate = coin();
        e.pre = (e.gate || e.act != Activation::kNone) && coin();
        e.residual = coin();
        break;
      case Op::kGradInput:
        e.residual = coin();
        break;
      case Op::kGradWeight:
        e.bias = coin();
        e.accumulate = coin();
        e.zero_outside = coin();
        break;
    }
    return p;
  }

  int64_t pick(int64_t count) { return std::uniform_int_distribution<int64_t>(0, count - 1)(random_); }
  bool coin() { return pick(2) == 1; }

 private:
  // Powers of two, neighbours of powers of two and anything else.
  int64_t size(int64_t most) {
    int64_t value = int64_t{1} << pick(13);
    if (coin()) value += pick(3) - 1;
    if (coin()) value = 1 + pick(most);
    return std::clamp<int64_t>(value, 1, most);
  }
  std::mt19937_64 random_;
};

}  // namespace trigen
