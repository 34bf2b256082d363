// Reference::check: the comparison of one run's buffers with the expected values.
#include <algorithm>
#include <cmath>

#include "check/out_of_bounds.h"
#include "check/parallel.h"
#include "check/reference.h"
#include "check/text.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

// Elements of the triangle, all heads and taps.
double count_outputs(const Problem& p) {
  double count = 0;
  for (int64_t t = 0; t < p.T; ++t) {
    const auto [first, last] = columns_of_row(p, t);
    count += static_cast<double>(last - first);
  }
  return count * static_cast<double>(p.H);
}

void fail(CheckResult& result, std::string text) {
  if (result.failure.empty()) result.failure = std::move(text);
  result.ok = false;
}

// `index(i)` is where expected[i] stands in the tensor, -1 when it is not part of the output; `name(i)` its
// place in words.
template <class Index, class Name>
void compare(const Problem& p, const Tensor& t, const void* data, const std::vector<double>& expected,
             int64_t terms, const Index& index, const Name& name, CheckResult& result) {
  struct Part {
    double norm = 0, squares = 0, worst = 0;
    int64_t count = 0;
    size_t worst_at = 0;
  };
  constexpr int64_t kGrain = 1 << 14;
  const auto size = static_cast<int64_t>(expected.size());
  std::vector<Part> parts(static_cast<size_t>((size + kGrain - 1) / kGrain));
  // Of every element of the output; parts are added up in their order, whichever thread has made them.
  const auto each = [&](const auto& body) {
    parallel_for(size, kGrain, [&](int64_t begin, int64_t end) {
      Part& part = parts[static_cast<size_t>(begin / kGrain)];
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        if (const int64_t at = index(i); at >= 0) body(part, i, at);
    });
  };
  each([&](Part& part, size_t i, int64_t) {
    part.norm += expected[i] * expected[i];
    ++part.count;
  });
  double norm = 0;
  int64_t count = 0;
  for (const Part& part : parts) norm += part.norm, count += part.count;
  if (count == 0) return;
  const Tolerance tolerance = tolerance_of(p, t.dtype, terms, count);
  const double rms = std::sqrt(norm / static_cast<double>(count));
  each([&](Part& part, size_t i, int64_t at) {
    const double difference = std::fabs(load_element(t.dtype, data, at) - expected[i]);
    part.squares += difference * difference;
    const double limit = 1.01 * tolerance.output_roundoff * std::fabs(expected[i]) + tolerance.floor +
                         8 * tolerance.sum_error * rms;
    const double ratio = difference == 0 ? 0 : std::isnan(difference) ? HUGE_VAL : difference / limit;
    if (ratio > part.worst) part.worst = ratio, part.worst_at = i;
  });
  double squares = 0, worst = 0;
  size_t worst_at = 0;
  for (const Part& part : parts) {
    squares += part.squares;
    if (part.worst > worst) worst = part.worst, worst_at = part.worst_at;
  }
  double error = norm > 0 ? std::sqrt(squares / norm) : (squares > 0 ? HUGE_VAL : 0);
  if (std::isnan(error)) error = HUGE_VAL;
  result.checked += count;
  result.max_error = std::max(result.max_error, worst);
  if (result.tolerance == 0 || error / tolerance.relative > result.error / result.tolerance) {
    result.error = error;
    result.tolerance = tolerance.relative;
  }
  if (worst > 1 || error > tolerance.relative) {
    fail(result, format("relative error of %s is %.2e, allowed is %.2e; worst: %s is %.7g, expected %.7g",
                        to_string(t.role), error, tolerance.relative, name(worst_at).c_str(),
                        load_element(t.dtype, data, index(worst_at)), expected[worst_at]));
  }
}

// The signed sums over all outputs.
void compare_sums(const Problem& p, const Tensor& t, const Projection& projection, const HostBuffers& after,
                  int64_t terms, CheckResult& result) {
  const Projection::Result sums = projection.check(after);
  result.projected = true;
  result.max_error = std::max(result.max_error, sums.max_error);
  // the estimate itself is uncertain by sqrt(2 / segments)
  const double limit = tolerance_of(p, t.dtype, terms, 1 << 20).relative *
                       (1 + 3 * std::sqrt(2 / static_cast<double>(projection.count())));
  if (sums.error / limit > result.error / std::max(result.tolerance, 1e-300)) {
    result.error = sums.error;
    result.tolerance = limit;
  }
  if (sums.max_error > 1) fail(result, sums.where);
  if (sums.error > limit) {
    fail(result,
         format("signed sums over all outputs estimate a relative error of %.2e, allowed is %.2e; worst: %s",
                sums.error, limit, sums.where.c_str()));
  }
}

}  // namespace

CheckResult Reference::check(const HostBuffers& after) const {
  const Problem& p = problem_;
  CheckResult result;
  result.ok = true;
  for (size_t i = 0; i < list_.tensors.size(); ++i) {
    const Tensor& t = list_.tensors[i];
    if (!t.written) continue;
    const std::byte* data = after[i].data() + t.offset_bytes;
    if (std::string fault = find_out_of_bounds_write(p, t, after[i].data()); !fault.empty())
      fail(result, std::move(fault));
    result.outputs += t.axes == Axes::kRows      ? p.H * p.T
                      : t.axes == Axes::kWeights ? static_cast<int64_t>(count_outputs(p))
                      : t.axes == Axes::kVectors ? p.H * scan::kVectors * p.T
                                                 : p.B * p.H * t.tokens * p.D;
    // One of every row, or the sampled rows and columns.
    const std::vector<int64_t>& list = columns(t);
    const auto row_of = [&](size_t k) {
      return t.axes == Axes::kRows ? static_cast<int64_t>(k) : rows_[k / list.size()];
    };
    const auto column_of = [&](size_t k) { return list[k % list.size()]; };
    // Vectors' gradients are of sizes of their own, so each is measured by itself: a decay's is a product of two states.
    const bool vectors = t.axes == Axes::kVectors;
    for (int64_t vector = 0; vector < (vectors ? int64_t{scan::kVectors} : 1); ++vector)
      compare(
          p, t, data, expected(t.role), sum_terms(p, t.axes),
          [&](size_t k) {
            const int64_t row = row_of(k), column = column_of(k);
            const bool here = !vectors || column == vector;
            return here && is_output(t, row, column) ? output_index(p, t, row, column) : int64_t{-1};
          },
          [&](size_t k) { return place(p, t, row_of(k), column_of(k)); }, result);
  }
  if (!projection_.empty()) compare_sums(p, list_.output(), projection_, after, sum_terms(p), result);
  return result;
}

}  // namespace trigen
