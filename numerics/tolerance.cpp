#include "numerics/tolerance.h"

#include <algorithm>
#include <cmath>

#include "generator/ops.h"
#include "numerics/numbers.h"

namespace trigen {

Tolerance tolerance_of(const Problem& problem, DType dtype, int64_t terms, int64_t outputs) {
  Tolerance t;
  t.output_roundoff = unit_roundoff(dtype);
  t.floor = dtype == DType::kF16 ? 0x1p-25 : 0;
  const auto n = static_cast<double>(std::max<int64_t>(1, terms));
  // 16-bit products may run on tensor cores or on simt: the looser of the two rules holds for all of them.
  const bool simt = problem.dtype == DType::kF32 && problem.math != Math::kTF32;
  if (op_row(problem.op).takes(kStepsField))
    t.sum_error = 5 * 0x1p-11;
  else if (is_scan(problem.op))
    t.sum_error = (makes_vectors(problem.op) ? 4 : 2) * std::sqrt(n) * 0x1p-24;
  else
    t.sum_error = simt ? std::sqrt(n) * 0x1p-24 : n * 0x1p-26 + std::sqrt(n) * 0x1p-23;
  if (problem.math == Math::kTF32) t.sum_error += 0x1p-10;
  if (problem.epilogue.act != Activation::kNone)
    t.sum_error += problem.dtype == DType::kBF16 ? 0x1p-17 : 0x1p-21;
  // With few outputs the root mean square has not settled at 0.4 u: allow the whole interval.
  const double share = outputs < 256 ? 1.0 : 0.6;
  t.relative = share * t.output_roundoff + t.sum_error;
  return t;
}

}  // namespace trigen
