#include "check/integers.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "check/out_of_bounds.h"
#include "check/parallel.h"
#include "check/reference.h"
#include "check/text.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

constexpr uint64_t kIntegerSeed = 0x696e7473;
// Elements between turns of a sum, which changes by a quarter of so many, and what it turns around: the sums
// of whole segments are 32 and 64, never 0.
constexpr int64_t kSegment = 128, kMiddle = 40;
constexpr double kExact = 1 << 24;  // f32 holds all integers up to here
// Of f32 data: a tf32 operand keeps ten bits behind the first.
constexpr double kLonger = 1 + 3 * 0x1p-12, kRounded = 1 + 0x1p-10;
constexpr double kMostAdded = 8;  // of bias, residual and what is accumulated to
// ex2.approx, rcp.approx and erff are off by a few units in the last place of f32.
constexpr double kApproximation = 0x1p-18;

enum Stream : uint64_t { kRows, kOthers, kSteps, kFeatures, kAdded };

int8_t sign_at(Stream stream, int64_t index) {
  return (random_bits(kIntegerSeed, stream, static_cast<uint64_t>(index)) & 1) != 0 ? 1 : -1;
}
// 1, 1, 1 and -2 in an order of its own for every four: 1 in sum, and in no half 0.
int step_at(int64_t index) {
  const auto place = random_bits(kIntegerSeed, kSteps, static_cast<uint64_t>(index / 4)) % 4;
  return place == static_cast<uint64_t>(index % 4) ? -2 : 1;
}
int against(int64_t sum) { return sum > 0 ? -1 : 1; }

bool is_dw(const Problem& p) { return makes_weights(p.op); }
bool activates(const Problem& p) { return makes_rows(p.op) && p.epilogue.act != Activation::kNone; }
// Taps' signs: any prefix has a sum of 0 to 2, all of them 1 or 2.
int8_t tap_sign(int64_t taps, int64_t j) {
  if (taps % 2 == 0 && j == 0) return 1;
  return (j - (taps % 2 == 0 ? 1 : 0)) % 2 == 0 ? 1 : -1;
}

}  // namespace

Integers::Integers(const Problem& problem, const TensorList& list)
    : problem_(problem), list_(list), rounds_(problem.math == Math::kTF32) {
  const Problem& p = problem_;
  const auto terms = static_cast<double>(sum_terms(p));
  // Without a product every output is compared with the reference as it is.
  runs_ = !is_product(p.op) ? 0 : activates(p) || rounds_ ? 2 : 1;
  if (2 * terms * (rounds_ ? 1025 : 1) > kExact) rounds_ = false;
  if (2 * terms > kExact) runs_ = 0;
  if (runs_ == 0) return;
  make_tokens();
  make_features();
  if (is_dw(p)) make_correlations();
}

void Integers::make_tokens() {
  const Problem& p = problem_;
  row_.resize(static_cast<size_t>(p.H * p.T));
  other_.resize(row_.size());
  step_.resize(row_.size());
  prefix_.assign(static_cast<size_t>(p.H * (p.T + 1)), 0);
  parallel_for(p.H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      int64_t sum = 0;
      int direction = 1;
      for (int64_t t = 0; t < p.T; ++t) {
        const int64_t at = h * p.T + t;
        if (t % kSegment == 0) direction = against(sum - kMiddle);
        row_[static_cast<size_t>(at)] = sign_at(kRows, at);
        other_[static_cast<size_t>(at)] = sign_at(kOthers, at);
        if (p.w == WeightForm::kToeplitz &&
            !is_dw(p))  // of the signs alone whose products go by the distance
          row_[static_cast<size_t>(at)] = other_[static_cast<size_t>(at)] = t % 2 == 0 ? 1 : -1;
        step_[static_cast<size_t>(at)] = static_cast<int8_t>(direction * step_at(at));
        sum += step_[static_cast<size_t>(at)];
        prefix_[static_cast<size_t>(h * (p.T + 1) + t + 1)] = static_cast<int32_t>(sum);
      }
    }
  });
  for (int64_t j = 0; j < p.K; ++j) tap_.push_back(tap_sign(p.K, j));
}

void Integers::make_features() {
  const Problem& p = problem_;
  feature_.resize(static_cast<size_t>(p.H * p.B * p.D));
  if (is_dw(p)) {
    other_feature_.resize(feature_.size());
    bias_.resize(static_cast<size_t>(p.H));
  } else {
    wide_.resize(feature_.size());
  }
  const int64_t batches = std::max<int64_t>(1, kSegment / p.D);  // of one segment, where they are short
  parallel_for(p.H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      int8_t* own = &feature_[static_cast<size_t>(h * p.B * p.D)];
      if (!is_dw(p)) {
        // The same sign for as many features as there are taps, so that sums over taps stay small.
        for (int64_t i = 0; i < p.B * p.D; ++i)
          own[i] = sign_at(kFeatures, h * p.B * p.D + i / p.D * p.D + i % p.D / p.K);
        int32_t* wide = &wide_[static_cast<size_t>(h * p.B * p.D)];
        for (int64_t i = 0; i < p.B * p.D; ++i)
          for (int64_t j = 0; j < p.K; ++j) {
            const int64_t d = i % p.D + (transposes(p.op) ? p.pad - j : j - p.pad);
            if (d >= 0 && d < p.D) wide[i] += tap_[static_cast<size_t>(j)] * own[i / p.D * p.D + d];
          }
        continue;
      }
      // dy's and x's features: their products' sum turns with every segment, and that of dy as it can.
      int8_t* other = &other_feature_[static_cast<size_t>(h * p.B * p.D)];
      int64_t products = 0, sum = 0;
      int direction = 1, sign = 1;
      for (int64_t i = 0; i < p.B * p.D; ++i) {
        const int64_t b = i / p.D, d = i % p.D;
        if (d % kSegment == 0 && (d > 0 || b % batches == 0)) {
          direction = against(products - kMiddle);
          // Taps read across a turn of x's sign, so that they turn with the batch alone.
          if (p.K == 1 || d == 0) sign = direction * (sum == 0 ? sign_at(kFeatures, h + b) : against(sum));
        }
        const int product = direction * step_at(i);
        own[i] = static_cast<int8_t>(product * sign);
        other[i] = static_cast<int8_t>(sign);
        products += product;
        sum += own[i];
      }
      bias_[static_cast<size_t>(h)] = sum;
    }
  });
}

void Integers::make_correlations() {
  const Problem& p = problem_;
  correlation_.resize(static_cast<size_t>(p.H * p.K));
  parallel_for(p.H * p.K, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t h = at / p.K, shift = at % p.K - p.pad;
      const int8_t* dy = &feature_[static_cast<size_t>(h * p.B * p.D)];
      const int8_t* x = &other_feature_[static_cast<size_t>(h * p.B * p.D)];
      int64_t sum = 0;
      for (int64_t b = 0; b < p.B; ++b)
        for (int64_t d = std::max<int64_t>(0, -shift); d < std::min(p.D, p.D - shift); ++d)
          sum += dy[b * p.D + d] * x[b * p.D + d + shift];
      correlation_[static_cast<size_t>(at)] = sum;
    }
  });
}

double Integers::flip(int run) const { return run == 1 && makes_rows(problem_.op) ? -1 : 1; }
double Integers::longer(int run, bool first_operand) const {
  return rounds_ && (run == 1) == first_operand ? kLonger : 1;
}

double Integers::added(Role role, int64_t index) const {
  const uint64_t bits =
      random_bits(kIntegerSeed, kAdded + static_cast<uint64_t>(role), static_cast<uint64_t>(index));
  if (role == Role::kGate) return (bits & 1) != 0 ? 1 : -1;
  if (role == Role::kBias && activates(problem_)) return static_cast<double>(bits % 9);
  return static_cast<double>(bits % 17) - kMostAdded;
}

double Integers::weight(int run, int64_t h, int64_t t, int64_t s, int64_t j) const {
  const Problem& p = problem_;
  return row_[static_cast<size_t>(h * p.T + t)] * other_[static_cast<size_t>(h * p.T + s)] *
         tap_[static_cast<size_t>(j)] * longer(run, true);
}

double Integers::activation(int run, Role role, int64_t b, int64_t h, int64_t token, int64_t feature) const {
  const Problem& p = problem_;
  const auto at = static_cast<size_t>(h * p.T + token),
             wide = static_cast<size_t>((h * p.B + b) * p.D + feature);
  if (is_dw(p))
    return role == Role::kY ? row_[at] * feature_[wide] * longer(run, true)
                            : other_[at] * other_feature_[wide] * longer(run, false);
  const auto sign = makes_rows(p.op) ? other_[at] : row_[at];
  return step_[at] * sign * feature_[wide] * flip(run) * longer(run, false);
}

HostBuffers Integers::inputs(int run) const {
  const Problem& p = problem_;
  HostBuffers buffers;
  for (const Tensor& t : list_.tensors) {
    auto& buffer = buffers.emplace_back(static_cast<size_t>(t.buffer_bytes()), std::byte{kPoison});
    if (!t.read) continue;
    std::byte* data = buffer.data() + t.offset_bytes;
    const auto put = [&](int64_t at, double value) {
      store_element(t.dtype, data, at, static_cast<float>(value));
    };
    if (t.axes == Axes::kRows) {
      for (int64_t i = 0; i < t.elements; ++i) put(i, added(t.role, i));
    } else if (t.axes == Axes::kWeights) {
      parallel_for(p.H * list_.rows.count, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t h = i / list_.rows.count, row = list_.rows.first + i % list_.rows.count;
          const int64_t end = p.w == WeightForm::kToeplitz ? 1 : p.T;  // one of each distance
          for (int64_t s = 0; s < end; ++s) {
            if (!in_triangle(p, row, s)) continue;
            for (int64_t j = 0; j < p.K; ++j) {
              const int64_t at = weight_index(p, t, h, row, s, j);
              put(at, is_dw(p) ? added(t.role, at) : weight(run, h, row, s, j));
            }
          }
        }
      });
    } else {
      const bool adds = t.role == Role::kGate || t.role == Role::kResidual;
      const Tokens tokens = used_tokens(p, t, list_.rows);
      parallel_for(p.B * p.H, 1, [&](int64_t begin, int64_t end) {
        for (int64_t bh = begin; bh < end; ++bh)
          for (int64_t token = tokens.first; token < tokens.last; ++token)
            for (int64_t d = 0; d < p.D; ++d) {
              const int64_t at = activation_index(p, t, bh / p.H, bh % p.H, token, d);
              put(at, adds ? added(t.role, at) : activation(run, t.role, bh / p.H, bh % p.H, token, d));
            }
      });
    }
  }
  return buffers;
}

double Integers::sum(int run, int64_t h, int64_t row, int64_t column) const {
  const Problem& p = problem_;
  const double scale = rounds_ ? kRounded : 1;
  if (is_dw(p) && p.w == WeightForm::kToeplitz) {
    int64_t signs = 0;
    for (int64_t s = h * p.T; s < (h + 1) * p.T - row; ++s)
      signs += row_[static_cast<size_t>(s + row)] * other_[static_cast<size_t>(s)];
    return static_cast<double>(signs * correlation_[static_cast<size_t>(h)]) * scale;
  }
  const auto at = static_cast<size_t>(h * p.T + row);
  if (is_dw(p))
    return row_[at] * other_[static_cast<size_t>(h * p.T + column / p.K)] *
           static_cast<double>(correlation_[static_cast<size_t>(h * p.K + column % p.K)]) * scale;
  const auto [first, last] = tokens_of_row(p, row);
  const int32_t* prefix = &prefix_[static_cast<size_t>(h * (p.T + 1))];
  const auto sign = makes_rows(p.op) ? row_[at] : other_[at];
  return sign * (last > first ? prefix[last] - prefix[first] : 0) * flip(run) *
         wide_[static_cast<size_t>(h * p.B * p.D + column)] * scale;
}

double Integers::product(int run, int64_t h, int64_t row, int64_t column, int64_t k) const {
  const Problem& p = problem_;
  const auto rounded = [&](double value) { return rounds_ ? value / kLonger * kRounded : value; };
  const auto feature = [&](Role role, int64_t b, int64_t token, int64_t d) {
    return d < 0 || d >= p.D ? 0 : activation(run, role, b, h, token, d);
  };
  if (is_dw(p))
    return rounded(feature(Role::kY, k / p.D, row, k % p.D) *
                   feature(Role::kX, k / p.D, column / p.K, k % p.D + column % p.K - p.pad));
  const int64_t token = k / p.K, j = k % p.K, b = column / p.D, d = column % p.D;
  if (makes_rows(p.op))
    return rounded(weight(run, h, row, token, j) * feature(Role::kX, b, token, d + j - p.pad));
  return rounded(weight(run, h, token, row, j) * feature(Role::kY, b, token, d - j + p.pad));
}

namespace {

// The first place in order where something is wrong, and how many there are.
struct Wrong {
  int64_t count = 0, row = 0, column = 0;
  double found = 0, expected = 0;
  bool is_before(const Wrong& other) const {
    return other.count == 0 || std::pair(row, column) < std::pair(other.row, other.column);
  }
  void merge(const Wrong& next) {
    if (next.count == 0) return;
    const int64_t all = count + next.count;
    if (next.is_before(*this)) *this = next;
    count = all;
  }
};

void report(const Problem& p, const Tensor& t, const Wrong& wrong, CheckResult& result) {
  if (wrong.count == 0) return;
  result.ok = false;
  if (!result.failure.empty()) return;
  const std::string where = place(p, t, wrong.row, wrong.column);
  result.failure =
      format("on inputs of small integers %lld outputs are wrong; first: %s is %.9g, expected %.9g",
             static_cast<long long>(wrong.count), where.c_str(), wrong.found, wrong.expected);
}

}  // namespace

void Integers::check_bias(const Tensor& bias, const std::byte* data, CheckResult& result) const {
  const Problem& p = problem_;
  Wrong wrong;
  for (int64_t i = 0; i < p.H * p.T; ++i) {
    double expected = row_[static_cast<size_t>(i)] * static_cast<double>(bias_[static_cast<size_t>(i / p.T)]);
    if (p.epilogue.accumulate) expected += added(Role::kBias, i);
    const double found = load_element(bias.dtype, data, i);
    if (found == round_to(bias.dtype, static_cast<float>(expected))) continue;
    // Whether what is summed was rounded to tf32 is the kernel's own matter, and not always exact.
    if (rounds_ && std::fabs(found - expected) <= 0x1p-9 * (std::fabs(expected) + kSegment)) continue;
    wrong.merge({1, i, 0, found, expected});
  }
  report(p, bias, wrong, result);
}

void Integers::check(int run, const HostBuffers& after, CheckResult& result) const {
  const Problem& p = problem_;
  const Epilogue& e = p.epilogue;
  const bool rows = makes_rows(p.op), approximate = activates(p);
  for (size_t i = 0; i < list_.tensors.size(); ++i) {
    const Tensor& t = list_.tensors[i];
    if (!t.written) continue;
    const std::byte* data = after[i].data() + t.offset_bytes;
    if (t.role == Role::kBias) {
      check_bias(t, data, result);
      continue;
    }
    const Tensor* gate = rows && e.gate && t.role == Role::kY ? list_.find(Role::kGate) : nullptr;
    const Tensor* residual = e.residual && t.role != Role::kPre ? list_.find(Role::kResidual) : nullptr;
    const bool scales = op_row(p.op).takes(kFactorsField);
    const double roundoff = 1.01 * unit_roundoff(t.dtype), floor = t.dtype == DType::kF16 ? 0x1p-25 : 0;
    const int64_t columns = output_columns(p);
    Wrong wrong;
    std::mutex mutex;
    parallel_for(p.H * list_.rows.count, 1, [&](int64_t begin, int64_t end) {
      Wrong own;
      for (int64_t r = begin; r < end; ++r) {
        const int64_t h = r / list_.rows.count, row = list_.rows.first + r % list_.rows.count;
        for (int64_t c = 0; c < columns; ++c) {
          if (is_dw(p) && !in_triangle(p, row, c / p.K)) continue;
          const int64_t at = output_index(p, t, h * p.T + row, c);
          double value = sum(run, h, row, c) * (scales ? kCheckedAlpha : 1), allowed = 0;
          if (scales && row == c) value += kCheckedGamma;
          if (rows && e.bias) value += added(Role::kBias, h * p.T + row);
          if (approximate && t.role == Role::kY) {
            allowed = kApproximation * (1 + std::fabs(value));
            value = activate(e.act, value);
          }
          if (gate != nullptr) value *= added(Role::kGate, output_index(p, *gate, h * p.T + row, c));
          if (residual != nullptr)
            value += (scales ? kCheckedBeta : 1) *
                     added(Role::kResidual, output_index(p, *residual, h * p.T + row, c));
          if (is_dw(p) && e.accumulate) value += added(Role::kW, at);
          const double found = load_element(t.dtype, data, at);
          const bool right = allowed == 0
                                 ? found == round_to(t.dtype, static_cast<float>(value))
                                 : std::fabs(found - value) <= allowed + floor + roundoff * std::fabs(value);
          if (!right) own.merge({1, h * p.T + row, c, found, value});
        }
      }
      const std::lock_guard lock(mutex);
      wrong.merge(own);
    });
    report(p, t, wrong, result);
  }
  result.exact = result.outputs;
}

}  // namespace trigen
