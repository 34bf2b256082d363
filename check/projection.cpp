#include "check/projection.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "check/contraction.h"
#include "check/operands.h"
#include "check/parallel.h"
#include "check/text.h"
#include "numerics/numbers.h"
#include "numerics/tolerance.h"

namespace trigen {
namespace {

constexpr double kWork = 5.0e8;  // multiply-adds that the expected sums may take
constexpr uint64_t kSignSeed = 0x7369676e;

}  // namespace

bool Projection::applies(const Problem& p) {
  // Without a product there are no sums; of few rows all outputs are compared. Of a dW it takes a whole triangle.
  if (makes_weights(p.op) && p.w != WeightForm::kDense) return false;
  return is_whole_product(p.op) && p.epilogue.act == Activation::kNone && !p.epilogue.gate;
}

double Projection::sign(int64_t column) const {
  return (random_bits(kSignSeed, 0, static_cast<uint64_t>(column)) & 1) != 0 ? 1 : -1;
}

Projection::Projection(const Problem& problem, const TensorList& list, const HostBuffers& inputs)
    : problem_(problem), list_(list) {
  const Problem& p = problem_;
  const bool weight = makes_weights(p.op);
  const int64_t columns = weight ? p.T : p.B * p.D;
  segment_ = 16;
  while (segment_ < columns && count_work(p).dense_flop / 2 / static_cast<double>(segment_) > kWork)
    segment_ *= 2;
  segment_ = std::min(segment_, columns);
  segments_ = (columns + segment_ - 1) / segment_;
  expected_.assign(static_cast<size_t>(p.H * p.T * segments_), 0);
  if (weight) {
    compute_by_tokens(inputs);
  } else {
    compute_by_columns(inputs);
  }
}

Projection::Sums Projection::sum_row(const Tensor& tensor, const void* data, int64_t row,
                                     int64_t segment) const {
  const Problem& p = problem_;
  const int64_t h = row / p.T;
  const int64_t t = row % p.T;
  Sums out;
  auto add = [&](int64_t column, int64_t index) {
    const double value = load_element(tensor.dtype, data, index);
    out.sum += sign(column) * value;
    out.squares += value * value;
    ++out.count;
  };
  const int64_t first = segment * segment_;
  if (makes_weights(p.op)) {
    for (int64_t s = first; s < std::min(first + segment_, p.T); ++s) {
      if (!in_triangle(p, t, s)) continue;
      for (int64_t j = 0; j < p.K; ++j) add(s * p.K + j, weight_index(p, tensor, h, t, s, j));
    }
    return out;
  }
  for (int64_t c = first; c < std::min(first + segment_, p.B * p.D); ++c) {
    add(c, activation_index(p, tensor, c / p.D, h, t, c % p.D));
  }
  return out;
}

std::vector<double> Projection::contract_segments(const Operands& operands, int64_t h, int64_t columns,
                                                  const AddColumns& add) const {
  Contraction c;
  c.rows = problem_.T;
  c.columns = segments_;
  c.depth = operands.depth();
  c.range = [&](int64_t row) { return operands.range(row); };
  c.coefficients = [&](int64_t row, int64_t k0, int64_t k1, double* out) {
    operands.coefficients(h, row, k0, k1, out);
  };
  c.panel = [&](int64_t g0, int64_t k0, int64_t k1, double* out) {
    std::fill(out, out + (k1 - k0) * kPanelWidth, 0.0);
    for (int64_t i = 0; i < kPanelWidth && g0 + i < segments_; ++i) {
      const int64_t first = (g0 + i) * segment_;
      add(first, std::min(first + segment_, columns), k0, k1, out + i, kPanelWidth);
    }
  };
  return contract(c);
}

void Projection::each_segment(const std::function<void(int64_t row, int64_t segment, double& out)>& body) {
  parallel_for(problem_.H * problem_.T, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t g = 0; g < segments_; ++g)
        body(row, g, expected_[static_cast<size_t>(row * segments_ + g)]);
  });
}

void Projection::compute_by_columns(const HostBuffers& inputs) {
  const Problem& p = problem_;
  const Operands operands(p, list_, inputs);
  const Tensor* bias = p.epilogue.bias ? list_.find(Role::kBias) : nullptr;
  const Tensor* residual = p.epilogue.residual ? list_.find(Role::kResidual) : nullptr;
  const int64_t columns = p.B * p.D;
  for (int64_t h = 0; h < p.H; ++h) {
    const auto add = [&](int64_t first, int64_t last, int64_t k0, int64_t k1, double* q, int64_t stride) {
      std::vector<double> one(static_cast<size_t>(k1 - k0));
      for (int64_t column = first; column < last; ++column) {
        operands.column(h, column, k0, k1, one.data(), 1);
        const double v = sign(column);
        for (int64_t k = 0; k < k1 - k0; ++k) q[k * stride] += v * one[static_cast<size_t>(k)];
      }
    };
    const auto sums = contract_segments(operands, h, columns, add);
    std::copy(sums.begin(), sums.end(), expected_.begin() + h * p.T * segments_);
  }
  each_segment([&](int64_t row, int64_t g, double& out) {
    if (bias != nullptr) {
      double signs = 0;
      for (int64_t c = g * segment_; c < std::min((g + 1) * segment_, columns); ++c) signs += sign(c);
      out += signs * load_element(bias->dtype, data_of(list_, *bias, inputs), row);
    }
    if (residual != nullptr) out += sum_row(*residual, data_of(list_, *residual, inputs), row, g).sum;
  });
}

void Projection::compute_by_tokens(const HostBuffers& inputs) {
  const Problem& p = problem_;
  const Operands operands(p, list_, inputs);
  const bool lower = p.fill == Fill::kLower;
  for (int64_t h = 0; h < p.H; ++h) {
    const auto add = [&](int64_t first, int64_t last, int64_t k0, int64_t k1, double* q, int64_t stride) {
      for (int64_t column = first * p.K; column < last * p.K; ++column) {
        const int64_t s = column / p.K, j = column % p.K;
        const double v = sign(column);
        for (int64_t k = k0; k < k1; ++k)
          q[(k - k0) * stride] += v * operands.activation(k / p.D, h, s, k % p.D + j - p.pad);
      }
    };
    // segments that lie wholly inside a row's part of the triangle
    const auto whole = contract_segments(operands, h, p.T, add);
    for (int64_t t = 0; t < p.T; ++t) {
      for (int64_t g = 0; g < segments_; ++g) {
        const int64_t last = std::min((g + 1) * segment_, p.T) - 1;
        if (in_triangle(p, t, lower ? last : g * segment_)) {
          expected_[static_cast<size_t>((h * p.T + t) * segments_ + g)] =
              whole[static_cast<size_t>(t * segments_ + g)];
        }
      }
    }
    add_border_segments(operands, h, add);
  }
  if (op_row(p.op).takes(kFactorsField)) {
    const Tensor* c = list_.find(Role::kResidual);
    each_segment([&](int64_t row, int64_t g, double& out) {
      out *= kCheckedAlpha;
      if (const int64_t t = row % p.T; t / segment_ == g) out += sign(t) * kCheckedGamma;
      if (c != nullptr) out += kCheckedBeta * sum_row(*c, data_of(list_, *c, inputs), row, g).sum;
    });
  }
  if (!p.epilogue.accumulate) return;
  const Tensor& dw = list_.output();
  each_segment([&](int64_t row, int64_t g, double& out) {
    out += sum_row(dw, data_of(list_, dw, inputs), row, g).sum;
  });
}

void Projection::add_border_segments(const Operands& operands, int64_t h, const AddColumns& add) {
  const Problem& p = problem_;
  const bool lower = p.fill == Fill::kLower;
  // token by token, each row taken when its last token is in
  parallel_for(segments_, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> q(static_cast<size_t>(operands.depth()));
    std::vector<double> dy(q.size());
    for (int64_t g = begin; g < end; ++g) {
      std::fill(q.begin(), q.end(), 0.0);
      const int64_t first = g * segment_;
      const int64_t last = std::min(first + segment_, p.T) - 1;
      for (int64_t i = 0; i <= last - first; ++i) {
        const int64_t s = lower ? first + i : last - i;
        add(s, s + 1, 0, operands.depth(), q.data(), 1);
        const int64_t t = s - p.diag;
        if (t < 0 || t >= p.T) continue;
        operands.coefficients(h, t, 0, operands.depth(), dy.data());
        double sum = 0;
        for (size_t k = 0; k < q.size(); ++k) sum += q[k] * dy[k];
        expected_[static_cast<size_t>((h * p.T + t) * segments_ + g)] = sum;
      }
    }
  });
}

Projection::Result Projection::check(const HostBuffers& after) const {
  Result result;
  if (empty()) return result;
  const Problem& p = problem_;
  const Tensor& out = list_.output();
  const void* data = data_of(list_, out, after);
  const bool weight = makes_weights(p.op);
  const Tolerance tolerance = tolerance_of(p, out.dtype, sum_terms(p), 1 << 20);
  std::vector<Sums> sums(expected_.size());
  parallel_for(p.H * p.T, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * segments_; i < end * segments_; ++i) {
      sums[static_cast<size_t>(i)] = sum_row(out, data, i / segments_, i % segments_);
    }
  });
  double total = 0;
  double elements = 0;
  for (const Sums& s : sums) {
    total += s.squares;
    elements += static_cast<double>(s.count);
  }
  const double mean_square = elements > 0 ? total / elements : 0;
  double differences = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double difference = std::fabs(sums[i].sum - expected_[i]);
    differences += difference * difference;
    // One standard deviation of a segment's difference: an output's rounding goes with its own size, the
    // error of a long sum with the size that such sums have. A right kernel stays under 8 of them.
    const auto count = static_cast<double>(sums[i].count);
    const double deviation = 0.5 * tolerance.output_roundoff * std::sqrt(sums[i].squares) +
                             tolerance.sum_error * std::sqrt(std::max(sums[i].squares, count * mean_square));
    const double limit = 8 * (deviation + tolerance.floor * std::sqrt(count));
    double ratio = limit > 0 ? difference / limit : (difference == 0 ? 0 : HUGE_VAL);
    if (std::isnan(ratio)) ratio = HUGE_VAL;
    if (ratio > result.max_error) {
      result.max_error = ratio;
      const auto row = static_cast<int64_t>(i) / segments_;
      const int64_t first = static_cast<int64_t>(i) % segments_ * segment_;
      result.where = format("signed sum of %s %" PRId64 " to %" PRId64 " in row h=%" PRId64 " %s=%" PRId64
                            " is %.7g, expected %.7g",
                            weight ? "tokens" : "columns", first,
                            std::min(first + segment_, weight ? p.T : p.B * p.D) - 1, row / p.T,
                            transposes(p.op) ? "s" : "t", row % p.T, sums[i].sum, expected_[i]);
    }
  }
  result.error = total > 0 ? std::sqrt(differences / total) : (differences > 0 ? HUGE_VAL : 0);
  if (std::isnan(result.error)) result.error = HUGE_VAL;
  return result;
}

}  // namespace trigen
