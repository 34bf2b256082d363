// Reference::check: the comparison of one run's buffers with the expected values.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <mutex>

#include "check/parallel.h"
#include "check/reference.h"
#include "check/text.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

std::string place(const Problem& p, const Tensor& t, int64_t row, int64_t column) {
  const int64_t h = row / p.T;
  if (t.role == Role::kW) {
    return format("dW[h=%" PRId64 ",t=%" PRId64 ",s=%" PRId64 ",j=%" PRId64 "]", h, row % p.T, column / p.K,
                  column % p.K);
  }
  const char* name = t.role == Role::kPre ? "pre" : p.op == Op::kGradInput ? "dx" : "y";
  return format("%s[b=%" PRId64 ",h=%" PRId64 ",%s=%" PRId64 ",d=%" PRId64 "]", name, column / p.D, h,
                p.op == Op::kGradInput ? "s" : "t", row % p.T, column % p.D);
}

// Elements of the triangle, all heads and taps.
double count_outputs(const Problem& p) {
  double count = 0;
  for (int64_t t = 0; t < p.T; ++t) {
    count += static_cast<double>(p.fill == Fill::kLower ? std::clamp<int64_t>(t + p.diag + 1, 0, p.T)
                                                        : p.T - std::clamp<int64_t>(t + p.diag, 0, p.T));
  }
  return count * static_cast<double>(p.K) * static_cast<double>(p.H);
}

bool all_poison(const std::byte* data, int64_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{kPoison}; });
}

// The first place outside the tensor's own elements that was written; empty when there is none. For dW it
// also looks at the weights outside the triangle, and at everything inside for NaN (never written).
std::string find_stray(const Problem& p, const Tensor& t, const std::byte* buffer) {
  const int64_t size = element_size(t.dtype);
  if (!all_poison(buffer, t.offset_bytes)) {
    return format("%s: bytes before its start were written", to_string(t.role));
  }
  if (!all_poison(buffer + t.offset_bytes + t.bytes(), Tensor::kGuardBytes)) {
    return format("%s: bytes behind its end were written", to_string(t.role));
  }
  const std::byte* data = buffer + t.offset_bytes;
  std::mutex mutex;
  std::string found;
  auto report = [&](std::string text) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (found.empty()) found = std::move(text);
  };
  if (t.role == Role::kBias) {
    for (int64_t i = 0; i < t.elements; ++i) {
      if (std::isnan(load_element(t.dtype, data, i))) {
        return format("grad_bias[h=%" PRId64 ",t=%" PRId64 "] is nan or was never written", i / p.T, i % p.T);
      }
    }
    return "";
  }
  if (t.role == Role::kW) {
    parallel_for(p.H * p.T, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t h = row / p.T;
        const int64_t time = row % p.T;
        const int64_t start = weight_index(p, t, h, time, 0, 0);
        if (!all_poison(data + (start + p.T * p.K) * size, (t.row - p.T * p.K) * size)) {
          report(format("dW: the gap after row h=%" PRId64 " t=%" PRId64 " was written", h, time));
        }
        for (int64_t s = 0; s < p.T; ++s) {
          const bool inside = in_triangle(p, time, s);
          for (int64_t j = 0; j < p.K; ++j) {
            const int64_t at = start + s * p.K + j;
            const float value = load_element(t.dtype, data, at);
            if (inside ? !std::isnan(value)
                       : (p.epilogue.zero_outside ? value == 0 : all_poison(data + at * size, size))) {
              continue;
            }
            report(place(p, t, row, s * p.K + j) + (inside ? " is nan or was never written"
                                                    : p.epilogue.zero_outside
                                                        ? " is outside the triangle and not zero"
                                                        : " is outside the triangle and was written"));
          }
        }
      }
    });
    return found;
  }
  const int64_t outer = p.layout == Layout::kBTD ? t.tokens : p.D;
  const int64_t inner = p.layout == Layout::kBTD ? p.D : t.tokens;
  const bool heads_in_row = p.layout == Layout::kBTD && p.H > 1;
  parallel_for(p.B * p.H * outer, std::max<int64_t>(1, 65536 / inner), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / (p.H * outer);
      const int64_t h = i / outer % p.H;
      const int64_t row = i % outer;
      const int64_t start = b * t.batch + h * t.head + row * t.row;
      for (int64_t e = 0; e < inner; ++e) {
        if (!std::isnan(load_element(t.dtype, data, start + e))) continue;
        const int64_t time = t.first_token + (p.layout == Layout::kBTD ? row : e);
        const int64_t d = p.layout == Layout::kBTD ? e : row;
        report(place(p, t, h * p.T + time, b * p.D + d) + " is nan or was never written");
        break;
      }
      // up to the next head's slice, or the next row
      const int64_t next = heads_in_row ? (h + 1 < p.H ? t.head : t.row - h * t.head) : t.row;
      if (!all_poison(data + (start + inner) * size, (next - inner) * size)) {
        report(format("%s: the gap after row b=%" PRId64 " h=%" PRId64 " %s=%" PRId64 " was written",
                      to_string(t.role), b, h, p.layout == Layout::kBTD ? "t" : "d", row));
      }
    }
  });
  return found;
}

}  // namespace

CheckResult Reference::check(const HostBuffers& after) const {
  const Problem& p = problem_;
  CheckResult result;
  result.ok = true;
  auto fail = [&](std::string text) {
    if (result.failure.empty()) result.failure = std::move(text);
    result.ok = false;
  };
  // `index(i)` is where expected[i] stands in the tensor, -1 when it is not part of the output; `name(i)` its
  // place in words
  auto compare = [&](const Tensor& t, const void* data, const std::vector<double>& expected, int64_t terms,
                     auto index, auto name) {
    double norm = 0;
    int64_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (index(i) < 0) continue;
      norm += expected[i] * expected[i];
      ++count;
    }
    if (count == 0) return;
    const Tolerance tolerance = tolerance_of(p, t.dtype, terms, count);
    const double rms = std::sqrt(norm / static_cast<double>(count));
    double squares = 0;
    double worst = 0;
    size_t worst_at = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const int64_t at = index(i);
      if (at < 0) continue;
      const double difference = std::fabs(load_element(t.dtype, data, at) - expected[i]);
      squares += difference * difference;
      const double limit = 1.01 * tolerance.output_roundoff * std::fabs(expected[i]) + tolerance.floor +
                           8 * tolerance.sum_error * rms;
      const double ratio = difference == 0 ? 0 : std::isnan(difference) ? HUGE_VAL : difference / limit;
      if (ratio > worst) {
        worst = ratio;
        worst_at = i;
      }
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
      fail(format("relative error of %s is %.2e, allowed is %.2e; worst: %s is %.7g, expected %.7g",
                  to_string(t.role), error, tolerance.relative, name(worst_at).c_str(),
                  load_element(t.dtype, data, index(worst_at)), expected[worst_at]));
    }
  };
  const int64_t terms = p.op == Op::kGradWeight ? p.B * p.D : p.T * p.K;
  for (size_t i = 0; i < list_.tensors.size(); ++i) {
    const Tensor& t = list_.tensors[i];
    if (!t.written) continue;
    const std::byte* data = after[i].data() + t.offset_bytes;
    if (std::string stray = find_stray(p, t, after[i].data()); !stray.empty()) fail(std::move(stray));
    if (t.role == Role::kBias) {
      result.outputs += p.H * p.T;
      compare(
          t, data, bias_, p.B * p.D, [](size_t k) { return static_cast<int64_t>(k); },
          [&](size_t k) {
            const auto row = static_cast<int64_t>(k);
            return format("grad_bias[h=%" PRId64 ",t=%" PRId64 "]", row / p.T, row % p.T);
          });
      continue;
    }
    result.outputs +=
        t.role == Role::kW ? static_cast<int64_t>(count_outputs(p)) : p.B * p.H * t.tokens * p.D;
    const size_t columns = columns_.size();
    compare(
        t, data, expected(t.role), terms,
        [&](size_t k) {
          const int64_t row = rows_[k / columns];
          const int64_t column = columns_[k % columns];
          return inside(row, column) ? this->index(t, row, column) : int64_t{-1};
        },
        [&](size_t k) { return place(p, t, rows_[k / columns], columns_[k % columns]); });
  }
  if (!projection_.empty()) {
    const Projection::Result sums = projection_.check(after);
    result.projected = true;
    result.max_error = std::max(result.max_error, sums.max_error);
    const Role role = p.op == Op::kGradInput ? Role::kX : p.op == Op::kGradWeight ? Role::kW : Role::kY;
    // the estimate itself is uncertain by sqrt(2 / segments)
    const double limit = tolerance_of(p, list_.find(role)->dtype, terms, 1 << 20).relative *
                         (1 + 3 * std::sqrt(2 / static_cast<double>(projection_.count())));
    if (sums.error / limit > result.error / std::max(result.tolerance, 1e-300)) {
      result.error = sums.error;
      result.tolerance = limit;
    }
    if (sums.max_error > 1) fail(sums.where);
    if (sums.error > limit) {
      fail(
          format("signed sums over all outputs estimate a relative error of %.2e, allowed is %.2e; worst: %s",
                 sums.error, limit, sums.where.c_str()));
    }
  }
  return result;
}

}  // namespace trigen
