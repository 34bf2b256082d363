#include "numerics/expected.h"

#include <algorithm>
#include <cmath>

#include "numerics/numbers.h"

namespace trigen {
namespace {

constexpr uint64_t kSeed = 0x63616e617279;

// By Role.
constexpr int64_t kPeriods[] = {4093, 4091, 4079, 4073, 4057, 4051, 4049};

// Elements of an input with a constant step between them, of which the first has index `start`.
class Walk {
 public:
  Walk(const PeriodicInputs& inputs, Role role, int64_t start, int64_t step)
      : values_(inputs.values(role).data()),
        period_(inputs.period(role)),
        at_(start % period_),
        step_(step % period_) {}
  double next() {
    const double value = values_[at_];
    at_ += step_;
    at_ -= at_ >= period_ ? period_ : 0;
    return value;
  }

 private:
  const double* values_;
  int64_t period_, at_, step_;
};

double multiply(Walk a, Walk b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a.next() * b.next();
  return sum;
}

// The other axis' tokens that are in the triangle with `row`: [first, last).
std::pair<int64_t, int64_t> tokens_in_triangle(const Problem& p, int64_t row) {
  const auto clamp = [&](int64_t token) { return std::clamp<int64_t>(token, 0, p.T); };
  const bool lower = p.fill == Fill::kLower;
  if (p.op == Op::kGradInput)
    return lower ? std::pair(clamp(row - p.diag), p.T) : std::pair(int64_t{0}, clamp(row - p.diag + 1));
  return lower ? std::pair(int64_t{0}, clamp(row + p.diag + 1)) : std::pair(clamp(row + p.diag), p.T);
}

// y, dx without an epilogue.
double token_sum(const Problem& p, const TensorList& list, const PeriodicInputs& inputs,
                 const OutputPlace& o) {
  const bool input = p.op == Op::kGradInput;
  const Tensor& w = *list.find(Role::kW);
  const Tensor& x = *list.find(input ? Role::kY : Role::kX);
  const auto [first, last] = tokens_in_triangle(p, o.row);
  double sum = 0;
  for (int64_t j = 0; j < p.K; ++j) {
    const int64_t d = o.column + (input ? p.pad - j : j - p.pad);
    if (d < 0 || d >= p.D || first >= last) continue;
    const Walk weights(
        inputs, Role::kW,
        input ? weight_index(p, w, o.h, first, o.row, j) : weight_index(p, w, o.h, o.row, first, j),
        input ? w.row : p.K);
    const Walk data(inputs, x.role, activation_index(p, x, o.b, o.h, first, d),
                    p.layout == Layout::kBTD ? x.row : 1);
    sum += multiply(weights, data, last - first);
  }
  return sum;
}

// dW, and for a bias the sum of dy alone.
double batch_sum(const Problem& p, const TensorList& list, const PeriodicInputs& inputs, const OutputPlace& o,
                 double& row_sum) {
  const Tensor& x = *list.find(Role::kX);
  const Tensor& dy = *list.find(Role::kY);
  const int64_t shift = o.column % p.K - p.pad, s = o.column / p.K;
  const int64_t first = std::max<int64_t>(0, -shift), last = std::min(p.D, p.D - shift);
  const bool btd = p.layout == Layout::kBTD;
  double sum = 0;
  row_sum = 0;
  for (int64_t b = 0; b < p.B; ++b) {
    const auto walk = [&](const Tensor& t, int64_t token, int64_t d) {
      return Walk(inputs, t.role, activation_index(p, t, b, o.h, token, d), btd ? 1 : t.row);
    };
    if (first < last) sum += multiply(walk(dy, o.row, first), walk(x, s, first + shift), last - first);
    if (!p.epilogue.bias) continue;
    Walk all = walk(dy, o.row, 0);
    for (int64_t d = 0; d < p.D; ++d) row_sum += all.next();
  }
  return sum;
}

}  // namespace

PeriodicInputs::PeriodicInputs(const Problem& p, const TensorList& list) {
  for (const Tensor& t : list.tensors) {
    if (!t.read) continue;
    const size_t i = at(t.role);
    const int64_t period = std::min(kPeriods[i], std::max<int64_t>(t.elements, 1));
    // As make_inputs (check/tensors.h): an activation sees its curved part.
    double scale = 1;
    if (t.role == Role::kW && p.epilogue.act != Activation::kNone)
      scale = std::min(1.0, std::exp2(std::round(std::log2(3 / std::sqrt(static_cast<double>(p.T * p.K))))));
    if (t.role == Role::kPre) scale = kPreScale;
    bytes_[i].resize(static_cast<size_t>(period * element_size(t.dtype)));
    for (int64_t k = 0; k < period; ++k) {
      const float value = random_value(kSeed, i, static_cast<uint64_t>(k), static_cast<float>(scale));
      store_element(t.dtype, bytes_[i].data(), k, value);
      float stored = load_element(t.dtype, bytes_[i].data(), k);
      // Weights that are wider than the data are rounded when they are loaded; a dW that is added to is not.
      if (t.role == Role::kW && !t.written) stored = round_to(p.dtype, stored);
      values_[i].push_back(stored);
    }
  }
}

ExpectedOutput expected_output(const Problem& p, const TensorList& list, const PeriodicInputs& inputs,
                               const OutputPlace& o) {
  const Epilogue& e = p.epilogue;
  ExpectedOutput out;
  const auto read = [&](Role role) {
    return inputs.value(role, activation_index(p, *list.find(role), o.b, o.h, o.row, o.column));
  };
  const int64_t row = o.h * p.T + o.row;
  if (p.op == Op::kGradEpilogue) {
    const double dy = read(Role::kY), pre = read(Role::kPre);
    out.value = dy * activation_slope(e.act, pre) * (e.gate ? read(Role::kGate) : 1);
    out.gate = dy * activate(e.act, pre);
    return out;
  }
  if (p.op == Op::kGradWeight) {
    out.value = batch_sum(p, list, inputs, o, out.bias);
    if (e.accumulate) {
      out.value += inputs.value(
          Role::kW, weight_index(p, *list.find(Role::kW), o.h, o.row, o.column / p.K, o.column % p.K));
      if (e.bias) out.bias += inputs.value(Role::kBias, row);
    }
    return out;
  }
  out.value = token_sum(p, list, inputs, o);
  if (p.op != Op::kGradInput) {
    if (e.bias) out.value += inputs.value(Role::kBias, row);
    out.pre = out.value;
    out.value = activate(e.act, out.value);
    if (e.gate) out.value *= read(Role::kGate);
  }
  if (e.residual) out.value += read(Role::kResidual);
  return out;
}

std::vector<OutputPlace> sample_places(const Problem& p, const TensorList& list, int count) {
  std::vector<int64_t> rows;
  const int64_t begin = list.rows.first, end = begin + list.rows.count;
  const auto add = [&](int64_t row) {
    if (row >= begin && row < end && std::find(rows.begin(), rows.end(), row) == rows.end())
      rows.push_back(row);
  };
  for (const int64_t row : {end - 1, begin, begin + 1, end - 2}) add(row);
  for (const int64_t border : {64, 128}) add(begin + border - 1), add(begin + border);
  uint64_t stream = 0;
  const auto random = [&](int64_t size) {
    return static_cast<int64_t>(random_bits(kSeed, 100, stream++) % static_cast<uint64_t>(size));
  };
  const int stretches = std::max(1, count - static_cast<int>(rows.size()));
  for (int i = 0; i < stretches; ++i)
    add(begin + (end - begin) * i / stretches + random(std::max<int64_t>(1, (end - begin) / stretches)));

  std::vector<OutputPlace> places;
  for (int i = 0; i < count; ++i) {
    OutputPlace o;
    o.row = rows[static_cast<size_t>(i) % rows.size()];
    o.h = i == 1 ? p.H - 1 : random(p.H);
    o.b = i == 2 ? p.B - 1 : random(p.B);
    if (p.op == Op::kGradWeight) {
      const auto [first, last] = tokens_in_triangle(p, o.row);
      if (first >= last) continue;  // diag leaves this row empty
      const int64_t s = i % 3 == 0 ? last - 1 : i % 3 == 1 ? first : first + random(last - first);
      o.column = s * p.K + random(p.K);
      o.b = 0;
    } else {
      o.column = i == 0 ? p.D - 1 : i == 1 ? 0 : random(p.D);
    }
    places.push_back(o);
  }
  return places;
}

std::string to_string(const Problem& p, const OutputPlace& o) {
  const auto text = [](const char* name, int64_t value) { return std::string(name) + std::to_string(value); };
  if (p.op == Op::kGradWeight)
    return text("dW[h=", o.h) + text(",t=", o.row) + text(",s=", o.column / p.K) +
           text(",j=", o.column % p.K) + "]";
  const bool input = p.op == Op::kGradInput;
  return text(input                       ? "dx[b="
              : p.op == Op::kGradEpilogue ? "dz[b="
                                          : "y[b=",
              o.b) +
         text(",h=", o.h) + text(input ? ",s=" : ",t=", o.row) + text(",d=", o.column) + "]";
}

}  // namespace trigen
