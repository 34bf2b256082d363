#include "numerics/expected.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "numerics/newton_schulz.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

constexpr uint64_t kSeed = 0x63616e617279;

// By Role.
constexpr int64_t kPeriods[] = {4093, 4091, 4079, 4073, 4057, 4051, 4049};

// Of integers: of a product's first operand; of the rest at most, which every format holds.
constexpr double kFewest = 3, kMost = 255;

constexpr int64_t kMostOutputs = 1 << 16, kMostProducts = 1 << 27;  // of ExpectedOutputs
constexpr float kLasting = 0.125F;  // half of it is the most that a decay takes
constexpr int64_t kShortSum = 128;  // tokens whose decays' products still count

// Elements of an input with a constant step between them, of which the first has index `start`.
class Walk {
 public:
  Walk(const PeriodicInputs& inputs, Role role, int64_t start, int64_t step)
      : values_(inputs.values(role).data()),
        period_(inputs.period(role)),
        at_(start % period_),
        step_((step % period_ + period_) % period_) {}
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

// y, dx without an epilogue.
double token_sum(const Problem& p, const TensorList& list, const PeriodicInputs& inputs,
                 const OutputPlace& o) {
  const ProductForm& product = *op_row(p.op).product;
  const bool input = product.transposed;
  const Tensor& w = *list.find(product.a);
  const Tensor& x = *list.find(product.b);
  const auto [first, last] = tokens_of_row(p, o.row);
  double sum = 0;
  for (int64_t j = 0; j < p.K; ++j) {
    const int64_t d = o.column + (input ? p.pad - j : j - p.pad);
    if (d < 0 || d >= p.D || first >= last) continue;
    const auto weight = [&](int64_t k) {
      return input ? weight_index(p, w, o.h, k, o.row, j) : weight_index(p, w, o.h, o.row, k, j);
    };
    const Walk weights(inputs, w.role, weight(first), weight(first + 1) - weight(first));
    const Walk data(inputs, x.role, activation_index(p, x, o.b, o.h, first, d),
                    p.layout == Layout::kBTD ? x.row : 1);
    sum += multiply(weights, data, last - first);
  }
  return sum;
}

// An element of dW, and for a bias the sum of dy alone.
double batch_sum(const Problem& p, const TensorList& list, const PeriodicInputs& inputs, const OutputPlace& o,
                 double& row_sum) {
  const ProductForm& product = *op_row(p.op).product;
  const Tensor& x = *list.find(product.b);
  const Tensor& dy = *list.find(product.a);
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

PeriodicInputs::PeriodicInputs(const Problem& p, const TensorList& list)
    : exact_(is_product(p.op) && (p.dtype != DType::kF32 || p.math == Math::kTF32)) {
  const bool weight = makes_weights(p.op), activates = p.epilogue.act != Activation::kNone;
  const double terms = static_cast<double>(sum_terms(p));
  // Integers up to n have a root mean square of n / sqrt(3); half of the terms are in the triangle.
  const double spread = std::sqrt(weight ? terms : terms / 2) * kFewest / 3;
  const double sum = p.dtype == DType::kBF16 ? 1 << 8 : 1 << 11;  // from there on a format needs to round
  const double most = std::clamp(std::floor(sum / spread), 1.0, kMost);
  for (const Tensor& t : list.tensors) {
    if (!t.read) continue;
    const size_t i = at(t.role);
    const int64_t period = std::min(kPeriods[i], std::max<int64_t>(t.elements, 1));
    // As make_inputs (check/tensors.h): an activation sees its curved part.
    double scale = 1, largest = most;
    if (exact_) {
      if (t.role == op_row(p.op).product->a || t.role == Role::kGate) largest = kFewest;
      if (activates && t.role == Role::kResidual) largest = kFewest;
      if (activates && (t.role == Role::kW || t.role == Role::kBias))
        scale = std::exp2(-std::round(std::log2(spread * most)));
    } else if (t.role == Role::kW && activates) {
      scale = std::min(1.0, std::exp2(std::round(std::log2(3 / std::sqrt(terms)))));
    } else if (t.role == Role::kPre) {
      scale = kPreScale;
    } else if (t.axes == Axes::kVectors) {
      scale = 0.5;  // decays, so that a formula's sums are short
    }
    // Sums that are not over features, too, can be longer: a token is felt behind it, where few rows are looked at.
    const bool lasting = t.axes == Axes::kVectors && !makes_vectors(p.op);
    bytes_[i].resize(static_cast<size_t>(period * element_size(t.dtype)));
    if (t.axes == Axes::kSteps) {
      const std::vector<float> steps = checked_steps(p);
      values_[i].assign(steps.begin(), steps.end());
      for (int64_t k = 0; k < period; ++k)
        store_element(t.dtype, bytes_[i].data(), k, steps[static_cast<size_t>(k)]);
      continue;
    }
    for (int64_t k = 0; k < period; ++k) {
      float value =
          random_value(kSeed, i, static_cast<uint64_t>(k), static_cast<float>(exact_ ? largest : scale));
      if (lasting) value = std::copysign(1 - std::abs(value) * kLasting, value);
      if (exact_) value = static_cast<float>(scale) * (value < 0 ? std::floor(value) : std::ceil(value));
      store_element(t.dtype, bytes_[i].data(), k, value);
      float stored = load_element(t.dtype, bytes_[i].data(), k);
      // Weights that are wider than the data are rounded when they are loaded; a dW that is added to is not.
      if (t.axes == Axes::kWeights && t.role == Role::kW && !t.written) stored = round_to(p.dtype, stored);
      values_[i].push_back(stored);
    }
  }
}

namespace {

double value_at(const Problem& p, const TensorList& list, const PeriodicInputs& inputs, Role role,
                const OutputPlace& at) {
  const Tensor& t = *list.find(role);
  return inputs.value(role, t.axes == Axes::kActivations
                                ? activation_index(p, t, at.b, at.h, at.row, at.column)
                                : output_index(p, t, at.h * p.T + at.row, at.column));
}

// newton_schulz's Y of (b, h).
std::vector<double> matrix_of(const Problem& p, const TensorList& list, const PeriodicInputs& inputs,
                              int64_t b, int64_t h) {
  return newton_schulz(p, b, h,
                       [&](Role role, const OutputPlace& at) { return value_at(p, list, inputs, role, at); });
}

// The outputs of a sum, and of grad_weight's sum of dy alone; newton_schulz's is given.
OutputValues outputs_of(const Problem& p, const TensorList& list, const PeriodicInputs& inputs,
                        const OutputPlace& o, double sum, double row_sum) {
  const Epilogue& e = p.epilogue;
  const auto read = [&](Role role, const OutputPlace& at) { return value_at(p, list, inputs, role, at); };
  if (op_row(p.op).takes(kStepsField)) {
    OutputValues out;
    out[list.output().role] = sum;
    return out;
  }
  if (!is_product(p.op)) return evaluate(p, o, read);
  const int64_t row = o.h * p.T + o.row;
  const Tensor& main = list.output();
  OutputValues out;
  double& value = out[main.role] = sum;
  if (makes_weights(p.op)) {
    out[Role::kBias] = row_sum;
    if (op_row(p.op).takes(kFactorsField)) {
      value = kCheckedAlpha * value + (o.row == o.column ? kCheckedGamma : 0);
      if (const Tensor* c = list.find(Role::kResidual))
        value += kCheckedBeta * inputs.value(c->role, output_index(p, *c, row, o.column));
    }
    if (e.accumulate) {
      value += inputs.value(main.role, output_index(p, main, row, o.column));
      if (e.bias) out[Role::kBias] += inputs.value(Role::kBias, row);
    }
    return out;
  }
  if (e.bias) value += inputs.value(Role::kBias, row);
  out[Role::kPre] = value;
  value = activate(e.act, value);
  if (e.gate) value *= read(Role::kGate, o);
  if (e.residual) value += read(Role::kResidual, o);
  return out;
}

// A period of an input and what follows it, so that elements in a row lie in a row here, too.
template <class Real>
class Window {
 public:
  Window(const PeriodicInputs& inputs, Role role, int64_t length) : period_(inputs.period(role)) {
    const std::vector<double>& values = inputs.values(role);
    for (int64_t i = 0; i < period_ + length; ++i)
      values_.push_back(static_cast<Real>(values[static_cast<size_t>(i % period_)]));
  }
  const Real* at(int64_t index) const { return values_.data() + index % period_; }

 private:
  int64_t period_;
  std::vector<Real> values_;
};

template <class Real>
void add_scaled(Real* __restrict to, Real factor, const Real* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

template <class Real>
Real dot(const Real* __restrict a, const Real* __restrict b, int64_t count) {
  constexpr int kParts = 8;
  Real parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts)
    for (int k = 0; k < kParts; ++k) parts[k] += a[i + k] * b[i + k];
  Real sum = 0;
  for (const Real part : parts) sum += part;
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::vector<OutputValues> expected_outputs(const Problem& p, const TensorList& list,
                                           const PeriodicInputs& inputs, llvm::ArrayRef<OutputPlace> places) {
  std::vector<OutputValues> out;
  if (!op_row(p.op).takes(kStepsField)) {
    for (const OutputPlace& o : places) out.push_back(expected_output(p, list, inputs, o));
    return out;
  }
  std::map<std::pair<int64_t, int64_t>, std::vector<double>> matrices;
  for (const OutputPlace& o : places) {
    std::vector<double>& matrix = matrices[{o.b, o.h}];
    if (matrix.empty()) matrix = matrix_of(p, list, inputs, o.b, o.h);
    out.emplace_back()[list.output().role] = matrix[static_cast<size_t>(o.row * p.D + o.column)];
  }
  return out;
}

OutputValues expected_output(const Problem& p, const TensorList& list, const PeriodicInputs& inputs,
                             const OutputPlace& o) {
  if (op_row(p.op).takes(kStepsField)) return expected_outputs(p, list, inputs, o).front();
  double sum = 0, row_sum = 0;
  if (makes_weights(p.op) && p.w == WeightForm::kToeplitz) {
    double of_row = 0;
    for (int64_t s = 0; s < p.T - o.row; ++s) {
      sum += batch_sum(p, list, inputs, {0, o.h, o.row + s, s}, of_row);
      if (s == 0) row_sum = of_row;
    }
  } else if (makes_weights(p.op))
    sum = batch_sum(p, list, inputs, o, row_sum);
  else if (is_product(p.op))
    sum = token_sum(p, list, inputs, o);
  return outputs_of(p, list, inputs, o, sum, row_sum);
}

bool ExpectedOutputs::takes(const Problem& p, const TensorList& list) {
  const int64_t columns = output_columns(p), outputs = p.H * list.rows.count;
  if (p.epilogue.grad_input && outputs * output_columns(p, Axes::kActivations) > kMostOutputs) return false;
  const int64_t terms = sum_terms(p) * (makes_vectors(p.op) ? kShortSum : 1);
  if (columns > kMostOutputs || outputs * columns > kMostOutputs) return false;
  return terms <= kMostProducts && outputs * columns * terms / 2 <= kMostProducts;
}

ExpectedOutputs::ExpectedOutputs(const Problem& p, const TensorList& list, const PeriodicInputs& inputs)
    : problem_(p), list_(list), inputs_(inputs) {
  columns_ = output_columns(p);
  sums_.resize(static_cast<size_t>(p.H * list.rows.count * columns_));
  bias_.resize(static_cast<size_t>(p.H * list.rows.count));
  if (op_row(p.op).takes(kStepsField))
    for (int64_t h = 0; h < p.H; ++h)
      for (int64_t b = 0; b < p.B; ++b) {
        const std::vector<double> matrix = matrix_of(p, list, inputs, b, h);
        for (int64_t t = 0; t < p.T; ++t)
          std::copy_n(matrix.begin() + t * p.D, p.D, sums_.begin() + (h * p.T + t) * columns_ + b * p.D);
      }
  if (!is_product(p.op)) return;
  if (inputs.exact())
    add_up<float>();
  else
    add_up<double>();
}

template <class Real>
void ExpectedOutputs::add_up() {
  const Problem& p = problem_;
  const bool weight = makes_weights(p.op), input = transposes(p.op), btd = p.layout == Layout::kBTD;
  // W's or dW's strides, and dy's of a sum over features: grad_weight's first operand.
  const ProductForm& product = *op_row(p.op).product;
  const Tensor &x = *list_.find(product.b), &w = *list_.find(weight ? product.c : product.a),
               &y = *list_.find(weight ? product.a : product.b);
  const Window<Real> data(inputs_, x.role, btd ? p.D : p.T);
  std::vector<Real> factors(static_cast<size_t>(weight ? p.D : p.T)),
      sums(static_cast<size_t>(weight ? p.T * p.K : columns_));
  for (int64_t h = 0, row = 0; h < p.H; ++h) {
    for (int64_t t = list_.rows.first; t < list_.rows.first + list_.rows.count; ++t, ++row) {
      std::fill(sums.begin(), sums.end(), Real{0});
      const auto [first, last] = tokens_of_row(p, t);
      // A row of W, or of dy's features, which all of another axis are multiplied with.
      const auto multiply_by = [&](Role role, int64_t start, int64_t step, int64_t count) {
        Walk walk(inputs_, role, start, step);
        for (int64_t i = 0; i < count; ++i) factors[static_cast<size_t>(i)] = static_cast<Real>(walk.next());
      };
      for (int64_t j = 0; j < p.K; ++j) {
        const int64_t shift = input ? p.pad - j : j - p.pad;
        const int64_t begin = std::max<int64_t>(0, -shift), end = std::min(p.D, p.D - shift);
        if (begin >= end || first >= last) continue;
        if (!weight) {
          const auto at = [&](int64_t k) {
            return input ? weight_index(p, w, h, k, t, j) : weight_index(p, w, h, t, k, j);
          };
          multiply_by(w.role, at(first), at(first + 1) - at(first), last - first);
          for (int64_t b = 0; b < p.B; ++b) {
            Real* const out = &sums[static_cast<size_t>(b * p.D)];
            if (btd)
              for (int64_t s = first; s < last; ++s)
                add_scaled(out + begin, factors[static_cast<size_t>(s - first)],
                           data.at(activation_index(p, x, b, h, s, begin + shift)), end - begin);
            else
              for (int64_t d = begin; d < end; ++d)
                out[d] += dot(factors.data(), data.at(activation_index(p, x, b, h, first, d + shift)),
                              last - first);
          }
          continue;
        }
        for (int64_t b = 0; b < p.B; ++b) {
          multiply_by(y.role, activation_index(p, y, b, h, t, begin), btd ? 1 : y.row, end - begin);
          Real* const out = &sums[static_cast<size_t>(j * p.T)];  // by tap, then token
          if (btd)
            for (int64_t s = first; s < last; ++s)
              out[s] +=
                  dot(factors.data(), data.at(activation_index(p, x, b, h, s, begin + shift)), end - begin);
          else
            for (int64_t d = begin; d < end; ++d)
              add_scaled(out + first, factors[static_cast<size_t>(d - begin)],
                         data.at(activation_index(p, x, b, h, first, d + shift)), last - first);
        }
      }
      if (weight && p.w == WeightForm::kToeplitz)
        for (int64_t s = first; s < last; ++s)
          sums_[static_cast<size_t>(row - s)] += sums[static_cast<size_t>(s)];  // of the distance t - s
      else
        for (int64_t c = 0; c < columns_; ++c)
          sums_[static_cast<size_t>(row * columns_ + c)] =
              sums[static_cast<size_t>(weight ? c % p.K * p.T + c / p.K : c)];
      if (!weight || !p.epilogue.bias) continue;
      for (int64_t b = 0; b < p.B; ++b) {
        Walk all(inputs_, y.role, activation_index(p, y, b, h, t, 0), btd ? 1 : y.row);
        for (int64_t d = 0; d < p.D; ++d) bias_[static_cast<size_t>(row)] += all.next();
      }
    }
  }
}

void ExpectedOutputs::each(llvm::function_ref<void(const OutputPlace&, const OutputValues&)> use) const {
  const Problem& p = problem_;
  const bool weight = makes_weights(p.op);
  for (int64_t h = 0, row = 0; h < p.H; ++h)
    for (int64_t t = list_.rows.first; t < list_.rows.first + list_.rows.count; ++t, ++row) {
      const auto [first, last] = columns_of_row(p, t);
      for (int64_t c = first; c < last; ++c) {
        const OutputPlace place =
            weight || makes_vectors(p.op) ? OutputPlace{0, h, t, c} : OutputPlace{c / p.D, h, t, c % p.D};
        use(place, outputs_of(p, list_, inputs_, place, sums_[static_cast<size_t>(row * columns_ + c)],
                              bias_[static_cast<size_t>(row)]));
      }
      for (int64_t c = 0; p.epilogue.grad_input && c < output_columns(p, Axes::kActivations); ++c) {
        const OutputPlace place{c / p.D, h, t, c % p.D, true};
        use(place, outputs_of(p, list_, inputs_, place, 0, 0));
      }
    }
}

double ExpectedOutputs::bias(int64_t h, int64_t t) const {
  return outputs_of(problem_, list_, inputs_, {0, h, t, 0}, 0,
                    bias_[static_cast<size_t>(h * list_.rows.count + t - list_.rows.first)])[Role::kBias];
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
    if (op_row(p.op).takes(kStepsField)) o.h = i % 2 * (p.H - 1), o.b = i % 2 * (p.B - 1);  // two matrices
    if (makes_weights(p.op)) {
      const auto [first, last] = columns_of_row(p, o.row);
      if (first >= last) continue;  // diag leaves this row empty
      const int64_t s = (i % 3 == 0 ? last - 1 : i % 3 == 1 ? first : first + random(last - first)) / p.K;
      o.column = s * p.K + random(p.K);
      o.b = 0;
    } else if (makes_vectors(p.op) && !(p.epilogue.grad_input && i % 2 == 1)) {
      o.column = i / (p.epilogue.grad_input ? 2 : 1) % scan::kVectors;
      o.b = 0;
    } else {
      o.beside = makes_vectors(p.op);
      o.column = i == 0 ? p.D - 1 : i == 1 ? 0 : random(p.D);
    }
    places.push_back(o);
  }
  return places;
}

std::string to_string(const Problem& p, const OutputPlace& o) {
  const auto text = [](const char* name, int64_t value) { return std::string(name) + std::to_string(value); };
  const std::string name = (o.beside ? *tensor_of(p.op, Role::kPre) : op_row(p.op).output()).symbol;
  if (makes_weights(p.op) && p.w == WeightForm::kToeplitz)
    return name + text("[h=", o.h) + text(",t-s=", o.row) + "]";
  if (makes_weights(p.op))
    return name + text("[h=", o.h) + text(",t=", o.row) + text(",s=", o.column / p.K) +
           text(",j=", o.column % p.K) + "]";
  if (makes_vectors(p.op) && !o.beside)
    return name + text("[h=", o.h) + "," + kVectorNames[o.column] + text(",t=", o.row) + "]";
  return name + text("[b=", o.b) + text(",h=", o.h) + text(transposes(p.op) ? ",s=" : ",t=", o.row) +
         text(",d=", o.column) + "]";
}

}  // namespace trigen
