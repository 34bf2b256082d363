// The reference against the definition written as plain loops, and the checks against planted defects.
#include "check/reference.h"

#include <gmock/gmock.h>

#include <cmath>

#include "numerics/newton_schulz.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

using testing::HasSubstr;

Problem parse(const std::string& text) {
  auto problem = parse_problem(text);
  EXPECT_TRUE(static_cast<bool>(problem)) << text;
  return *problem;
}

struct Case {
  Problem problem;
  TensorList list;
  HostBuffers inputs;
  explicit Case(const std::string& text, int gap = 0)
      : problem(parse(text)), list(tensors_of(problem, gap)), inputs(make_inputs(problem, list, 7)) {}
  double at(Role role, int64_t index) const {
    const Tensor& t = *list.find(role);
    return load_element(t.dtype, data(inputs, role), index);
  }
  static const std::byte* offset(const HostBuffers& buffers, const TensorList& list, Role role) {
    const Tensor* t = list.find(role);
    return buffers[static_cast<size_t>(t - list.tensors.data())].data() + t->offset_bytes;
  }
  const std::byte* data(const HostBuffers& buffers, Role role) const { return offset(buffers, list, role); }
  std::byte* data(HostBuffers& buffers, Role role) const {
    return const_cast<std::byte*>(offset(buffers, list, role));
  }
  double activation(Role role, int64_t b, int64_t h, int64_t t, int64_t d) const {
    if (d < 0 || d >= problem.D) return 0;
    return at(role, activation_index(problem, *list.find(role), b, h, t, d));
  }
  // By the definitions of docs/weights.md; outside a band 0.
  double weight(int64_t h, int64_t t, int64_t s, int64_t j) const {
    const Problem& p = problem;
    const Tensor& tensor = *list.find(Role::kW);
    if (p.w == WeightForm::kBand && t - s >= p.width) return 0;
    const double w =
        at(Role::kW, p.w == WeightForm::kToeplitz ? h * tensor.head + (t - s)
                     : p.w == WeightForm::kBand   ? h * tensor.head + t * tensor.row + (s - t + p.width - 1)
                                                  : h * tensor.head + t * tensor.row + s * p.K + j);
    return round_to(problem.dtype, static_cast<float>(w));
  }
};

// W[t,s] of a W that is vectors, factor by factor; `without`: 1 in place of one of them.
double scan_weight(const Case& c, int64_t h, int64_t t, int64_t s, int without = -1, int64_t at = -1) {
  const Tensor& w = *c.list.find(Role::kW);
  const VectorForms& forms = w.vectors;
  const auto value = [&](scan::Vector i, int64_t token) {
    if ((i == without && token == at) || !forms.of[i].given) return 1.0;
    const double number =
        c.at(Role::kW, h * forms.of[i].heads * w.head + i * w.row + token * forms.of[i].tokens);
    const bool bounded = i == scan::kDecay && forms.low < forms.high;
    return bounded ? std::clamp<double>(number, forms.low, forms.high) : number;
  };
  if (s > t) return 0;
  if (s == t && (forms.of[scan::kDiagonal].given || without == scan::kDiagonal))
    return value(scan::kDiagonal, t);
  double product = value(scan::kTarget, t) * value(scan::kSource, s);
  for (int64_t r = s + 1; r <= t; ++r) product *= value(scan::kDecay, r);
  return product;
}
// scan's formulas as dense products; a vector's derivative as that of a product of factors: without the factor.
double define_scan(const Case& c, Role role, int64_t h, int64_t row, int64_t column) {
  const Problem& p = c.problem;
  double sum = 0;
  if (p.op == Op::kScanGradWeight && role != Role::kPre) {
    const Tensor& w = *c.list.find(Role::kW);
    const bool derived = !w.vectors.of[scan::kDiagonal].given;
    if (role != Role::kBias && column == scan::kDecay && w.vectors.low < w.vectors.high) {
      const double decay = c.at(Role::kW, vector_index(w, h, column, row));
      if (decay != std::clamp<double>(decay, w.vectors.low, w.vectors.high)) return 0;
    }
    for (int64_t b = 0; b < p.B; ++b)
      for (int64_t d = 0; d < p.D; ++d)
        for (int64_t t = 0; t < p.T; ++t) {
          if (role == Role::kBias) {
            if (t == row) sum += c.activation(Role::kY, b, h, t, d);
            continue;
          }
          for (int64_t s = 0; s <= t; ++s) {
            const bool factor = column == scan::kDiagonal ? s == t && t == row
                                : column == scan::kSource ? (s < t || derived) && s == row
                                : column == scan::kTarget ? (s < t || derived) && t == row
                                                          : s < row && row <= t;
            if (factor)
              sum += c.activation(Role::kY, b, h, t, d) * c.activation(Role::kX, b, h, s, d) *
                     scan_weight(c, h, t, s, static_cast<int>(column), row);
          }
        }
    return sum;
  }
  const bool back = p.op != Op::kScan;
  for (int64_t k = 0; k < p.T; ++k)
    sum += (back ? scan_weight(c, h, k, row) : scan_weight(c, h, row, k)) *
           c.activation(back ? Role::kY : Role::kX, column / p.D, h, k, column % p.D);
  if (p.op == Op::kScanGradWeight) return sum;
  const auto value = [&](Role of) { return c.activation(of, column / p.D, h, row, column % p.D); };
  if (p.epilogue.bias) sum += c.at(Role::kBias, h * p.T + row);
  if (role == Role::kPre) return sum;
  if (p.epilogue.act == Activation::kGELU) sum *= 0.5 * (1 + std::erf(sum / std::sqrt(2.0)));
  if (p.epilogue.gate) sum *= value(Role::kGate);
  if (p.epilogue.residual) sum += value(Role::kResidual);
  return sum;
}

// newton_schulz step by step on X itself.
double define_newton_schulz(const Case& c, int64_t h, int64_t row, int64_t column) {
  const Problem& p = c.problem;
  const auto T = static_cast<size_t>(p.T), D = static_cast<size_t>(p.D);
  using Matrix = std::vector<std::vector<double>>;
  Matrix x(T, std::vector<double>(D));
  double norm = 0;
  for (size_t t = 0; t < T; ++t)
    for (size_t d = 0; d < D; ++d) {
      x[t][d] = c.activation(Role::kX, column / p.D, h, static_cast<int64_t>(t), static_cast<int64_t>(d));
      norm = std::hypot(norm, x[t][d]);
    }
  for (auto& values : x)
    for (double& value : values) value /= std::max(norm, c.at(Role::kW, 3 * p.K));
  const auto times = [](const Matrix& a, const auto& b, size_t columns, size_t depth) {
    Matrix out(a.size(), std::vector<double>(columns));
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t j = 0; j < columns; ++j)
        for (size_t k = 0; k < depth; ++k) out[i][j] += a[i][k] * b(k, j);
    return out;
  };
  for (int64_t step = 0; step < p.K; ++step) {
    const Matrix r = times(
                     x, [&](size_t k, size_t j) { return x[j][k]; }, T, D),
                 rr = times(
                     r, [&](size_t k, size_t j) { return r[k][j]; }, T, T);
    Matrix z = rr;
    for (size_t i = 0; i < T; ++i)
      for (size_t j = 0; j < T; ++j)
        z[i][j] = c.at(Role::kW, 3 * step + 2) * rr[i][j] + c.at(Role::kW, 3 * step + 1) * r[i][j] +
                  (i == j ? c.at(Role::kW, 3 * step) : 0);
    x = times(
        z, [&](size_t k, size_t j) { return x[k][j]; }, D, T);
  }
  return x[static_cast<size_t>(row)][static_cast<size_t>(column % p.D)];
}

// The definition in templates/params.h's words, term by term.
double define(const Case& c, Role role, int64_t h, int64_t row, int64_t column) {
  const Problem& p = c.problem;
  if (is_scan(p.op)) return define_scan(c, role, h, row, column);
  if (p.op == Op::kNewtonSchulz) return define_newton_schulz(c, h, row, column);
  double sum = 0;
  if (p.op == Op::kGradEpilogue) {
    const auto value = [&](Role of) { return c.activation(of, column / p.D, h, row, column % p.D); };
    const double v = value(Role::kPre), share = p.epilogue.act == Activation::kNone ? 1
                                                : p.epilogue.act == Activation::kGELU
                                                    ? 0.5 * (1 + std::erf(v / std::sqrt(2.0)))
                                                    : 1 / (1 + std::exp(-v));
    if (role == Role::kResidual) return value(Role::kY) * v * share;
    const double slope = p.epilogue.act == Activation::kNone ? 1
                         : p.epilogue.act == Activation::kGELU
                             ? share + v * std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0))
                             : share + v * share * (1 - share);
    return value(Role::kY) * slope * (p.epilogue.gate ? value(Role::kGate) : 1);
  }
  if (p.op == Op::kGram) {  // D = alpha A B^T + beta C + gamma I; A is y, B is x, C is residual
    for (int64_t b = 0; b < p.B; ++b)
      for (int64_t d = 0; d < p.D; ++d)
        sum += c.activation(Role::kY, b, h, row, d) * c.activation(Role::kX, b, h, column, d);
    sum *= -0.5;
    if (const Tensor* from = c.list.find(Role::kResidual))
      sum += 3 * c.at(Role::kResidual, weight_index(p, *from, h, row, column, 0));
    return row == column ? sum + 2 : sum;
  }
  if (p.op == Op::kGradWeight) {
    if (role == Role::kBias) {
      for (int64_t b = 0; b < p.B; ++b)
        for (int64_t d = 0; d < p.D; ++d) sum += c.activation(Role::kY, b, h, row, d);
      return sum + (p.epilogue.accumulate ? c.at(Role::kBias, h * p.T + row) : 0);
    }
    const int64_t s = column / p.K;
    const int64_t j = column % p.K;
    if (p.w == WeightForm::kToeplitz) {  // of the distance `row`
      for (int64_t b = 0; b < p.B; ++b)
        for (int64_t t = row; t < p.T; ++t)
          for (int64_t d = 0; d < p.D; ++d)
            sum += c.activation(Role::kY, b, h, t, d) * c.activation(Role::kX, b, h, t - row, d);
      return sum + (p.epilogue.accumulate ? c.at(Role::kW, h * c.list.output().head + row) : 0);
    }
    for (int64_t b = 0; b < p.B; ++b)
      for (int64_t d = 0; d < p.D; ++d)
        sum += c.activation(Role::kY, b, h, row, d) * c.activation(Role::kX, b, h, s, d + j - p.pad);
    return sum + (p.epilogue.accumulate
                      ? c.at(Role::kW, weight_index(p, *c.list.find(Role::kW), h, row, s, j))
                      : 0);
  }
  const int64_t b = column / p.D;
  const int64_t d = column % p.D;
  for (int64_t other = 0; other < p.T; ++other) {
    const int64_t t = p.op == Op::kForward ? row : other;
    const int64_t s = p.op == Op::kForward ? other : row;
    if (!(p.fill == Fill::kLower ? s <= t + p.diag : s >= t + p.diag)) continue;
    for (int64_t j = 0; j < p.K; ++j) {
      sum += c.weight(h, t, s, j) * (p.op == Op::kForward ? c.activation(Role::kX, b, h, s, d + j - p.pad)
                                                          : c.activation(Role::kY, b, h, t, d - j + p.pad));
    }
  }
  if (p.epilogue.bias) sum += c.at(Role::kBias, h * p.T + row);
  if (role == Role::kPre) return sum;
  if (p.epilogue.act == Activation::kGELU) sum = sum * 0.5 * (1 + std::erf(sum / std::sqrt(2.0)));
  if (p.epilogue.act == Activation::kSiLU) sum = sum * (1 / (1 + std::exp(-sum)));
  if (p.epilogue.gate) sum *= c.activation(Role::kGate, b, h, row, d);
  if (p.epilogue.residual) sum += c.activation(Role::kResidual, b, h, row, d);
  return sum;
}

// The buffers that a right kernel leaves: the definition, rounded to the output's format.
HostBuffers right_outputs(const Case& c) {
  const Problem& p = c.problem;
  HostBuffers out = c.inputs;
  for (const Tensor& t : c.list.tensors) {
    if (!t.written) continue;
    std::byte* data = c.data(out, t.role);
    for (int64_t h = 0; h < p.H; ++h) {
      for (int64_t row = 0; row < p.T; ++row) {
        if (t.role == Role::kBias) {
          store_element(t.dtype, data, h * p.T + row, static_cast<float>(define(c, t.role, h, row, 0)));
          continue;
        }
        const int64_t columns = output_columns(p, t.axes);
        for (int64_t column = 0; column < columns; ++column) {
          if (t.role != Role::kW) {
            store_element(t.dtype, data, output_index(p, t, h * p.T + row, column),
                          static_cast<float>(define(c, t.role, h, row, column)));
            continue;
          }
          const int64_t at = weight_index(p, t, h, row, column / p.K, column % p.K);
          if (p.w == WeightForm::kBand && p.epilogue.zero_outside && column == 0)
            for (int64_t i = 0; i < p.width - 1 - row; ++i)  // left of token 0
              store_element(t.dtype, data, h * t.head + row * t.row + i, 0);
          if (in_triangle(p, row, column / p.K)) {
            const auto value = static_cast<float>(define(c, t.role, h, row, column));
            store_element(t.dtype, data, at, value);
            if (p.epilogue.mirror) store_element(t.dtype, data, weight_index(p, t, h, column, row, 0), value);
          } else if (p.epilogue.zero_outside && p.w == WeightForm::kDense) {
            store_element(t.dtype, data, at, 0);
          }
        }
      }
    }
  }
  return out;
}

std::vector<std::string> variants() {
  std::vector<std::string> list;
  for (const char* op : {"forward", "grad_input", "grad_weight"}) {
    const std::string name = op;
    for (const char* sizes :
         {"B=2,H=1,T=5,D=7,K=1", "B=1,H=3,T=9,D=4,K=3,pad=2", "B=3,H=2,T=4,D=6,K=4", "B=1,H=1,T=1,D=1,K=1"}) {
      const std::string base = name + "," + sizes;
      list.push_back(base + ",dtype=f32");
      list.push_back(base + ",dtype=bf16,layout=bdt");
      list.push_back(base + ",dtype=f16,wdtype=f32");
      if (base.find("T=1,") == std::string::npos) {
        list.push_back(base + ",dtype=f16,fill=upper,diag=1");
        list.push_back(base + ",dtype=f32,math=tf32,diag=-2,layout=bdt");
        list.push_back(base + ",dtype=bf16,fill=upper,diag=-1,align=4,walign=2");
      }
      if (name == "forward") {
        list.push_back(base + ",dtype=f16,epilogue=bias+gelu+pre+gate+residual");
        list.push_back(base + ",dtype=f32,layout=bdt,epilogue=bias+silu");
        list.push_back(base + ",dtype=bf16,epilogue=residual");
      } else if (name == "grad_input") {
        list.push_back(base + ",dtype=bf16,epilogue=residual");
      } else {
        list.push_back(base + ",dtype=bf16,wdtype=f32,epilogue=bias+accumulate");
        list.push_back(base + ",dtype=f16,layout=bdt,epilogue=bias+zero_outside");
        list.push_back(base + ",dtype=f32,fill=upper,epilogue=accumulate+zero_outside");
      }
    }
  }
  for (const char* op : {"forward", "grad_input", "grad_weight"})
    for (const char* form : {"w=toeplitz", "w=band,width=1", "w=band,width=4", "w=band,width=9"}) {
      const std::string base = std::string(op) + ",B=2,H=2,T=9,D=12," + form;
      list.push_back(base + ",dtype=f32");
      list.push_back(base + ",dtype=bf16,layout=bdt,wdtype=f32");
      if (std::string(op) == "forward")
        list.push_back(base + ",dtype=f16,epilogue=bias+gelu+pre+gate+residual");
      if (std::string(op) != "grad_weight") continue;
      list.push_back(base + ",dtype=bf16,wdtype=f32,epilogue=bias+accumulate");
      list.push_back(base + ",dtype=f16,epilogue=bias+zero_outside");
    }
  for (const char* rest :
       {"dtype=bf16,B=2,H=2,T=9,D=12,epilogue=gelu+gate", "dtype=f16,B=3,T=7,D=5,layout=bdt,epilogue=silu",
        "dtype=f32,B=1,T=30,D=8,epilogue=gate"})
    list.push_back(std::string("grad_epilogue,") + rest);
  for (const char* rest :
       {"scan,dtype=bf16,B=2,H=2,T=9,D=12,wdtype=f32,epilogue=bias+gelu+pre+gate+residual",
        "scan,dtype=f32,B=1,T=1,D=3", "scan,dtype=f16,B=3,T=30,D=5,layout=bdt",
        "scan_grad_input,dtype=bf16,B=2,H=2,T=9,D=12,epilogue=residual",
        "scan_grad_input,dtype=f32,B=1,T=30,D=5,layout=bdt",
        "scan_grad_weight,dtype=bf16,B=2,H=2,T=9,D=12,wdtype=f32,epilogue=bias",
        "scan_grad_weight,dtype=f32,B=3,T=30,D=5,layout=bdt", "scan_grad_weight,dtype=f32,B=2,H=2,T=10,D=12",
        "scan_grad_weight,dtype=f16,B=2,H=2,T=12,D=12",
        "scan_grad_weight,dtype=f16,B=2,H=2,T=9,D=12,epilogue=bias+grad_input",
        "scan_grad_weight,dtype=bf16,B=3,T=30,D=5,layout=bdt,wdtype=f32,epilogue=grad_input"})
    list.push_back(rest);
  for (const char* rest : {"dtype=bf16,B=2,H=2,T=7,D=12,K=3", "dtype=f32,B=1,H=3,T=9,D=5,K=5,layout=bdt",
                           "dtype=f16,B=1,T=1,D=1,K=1", "dtype=f16,B=1,T=4,D=31,K=6,align=2"})
    list.push_back(std::string("newton_schulz,") + rest);
  for (const char* sizes : {"B=2,H=1,T=5,D=7", "B=1,H=3,T=9,D=4", "B=1,H=1,T=1,D=1", "B=3,H=2,T=24,D=40"})
    for (const char* rest :
         {"dtype=f32", "dtype=bf16,layout=bdt,epilogue=mirror", "dtype=f16,wdtype=f32,epilogue=residual",
          "dtype=f16,fill=upper,epilogue=residual+mirror", "dtype=bf16,fill=upper,align=2,walign=2",
          "dtype=f32,math=tf32,layout=bdt,epilogue=residual+mirror"})
      list.push_back(std::string("gram,") + sizes + "," + rest);
  return list;
}

class Variant : public testing::TestWithParam<std::string> {};

TEST_P(Variant, EqualsTheDefinition) {
  const Case c(GetParam(), 1);
  const Reference reference(c.problem, c.list, c.inputs);
  ASSERT_TRUE(reference.full());
  for (const Tensor& t : c.list.tensors) {
    if (!t.written || t.role == Role::kBias) continue;
    const auto& values = reference.expected(t.role);
    const std::vector<int64_t>& columns = reference.columns(t);
    ASSERT_EQ(values.size(), reference.rows().size() * columns.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t row = reference.rows()[i / columns.size()];
      const int64_t column = columns[i % columns.size()];
      if (t.role == Role::kW && !in_triangle(c.problem, row % c.problem.T, column / c.problem.K)) continue;
      const double want = define(c, t.role, row / c.problem.T, row % c.problem.T, column);
      ASSERT_NEAR(values[i], want, 1e-12 * (1 + std::fabs(want))) << row << ' ' << column;
    }
  }
  const CheckResult good = reference.check(right_outputs(c));
  EXPECT_TRUE(good.ok) << good.failure;
  EXPECT_LT(good.error, good.tolerance);
}

TEST_P(Variant, UnwrittenOutputsFail) {
  const Case c(GetParam());
  const Reference reference(c.problem, c.list, c.inputs);
  if (c.problem.epilogue.accumulate) return;  // the old values are numbers; WrongElementFails covers them
  const CheckResult result = reference.check(c.inputs);
  bool any = c.problem.op != Op::kGradWeight;
  for (int64_t t = 0; t < c.problem.T; ++t)
    for (int64_t s = 0; s < c.problem.T; ++s)
      any = any || in_triangle(c.problem, t, s) || c.problem.epilogue.zero_outside;
  EXPECT_EQ(result.ok, !any && !c.problem.epilogue.bias) << result.failure;
}

TEST_P(Variant, SampleAndSignedSumsAgreeWithARightKernel) {
  const Case c(GetParam(), 1);
  ReferenceOptions options;
  options.sample = true;
  const Reference reference(c.problem, c.list, c.inputs, options);
  const CheckResult result = reference.check(right_outputs(c));
  EXPECT_TRUE(result.ok) << result.failure;
  EXPECT_EQ(result.projected, Projection::applies(c.problem));
}

INSTANTIATE_TEST_SUITE_P(Reference, Variant, testing::ValuesIn(variants()), [](const auto& info) {
  std::string name = info.param;
  for (char& ch : name)
    if (std::isalnum(static_cast<unsigned char>(ch)) == 0) ch = '_';
  return name;
});

// A long Toeplitz gradient, which transforms make, against sums of its products.
TEST(Reference, LongCorrelationsAreSumsOfProducts) {
  const Case c("grad_weight,dtype=bf16,B=3,H=2,T=3001,D=11,w=toeplitz,wdtype=f32");
  const Reference reference(c.problem, c.list, c.inputs);
  for (const int64_t h : {0, 1})
    for (const int64_t distance : {0, 1, 1500, 2999, 3000}) {
      const double want = define(c, Role::kW, h, distance, 0);
      EXPECT_NEAR(reference.expected(Role::kW)[static_cast<size_t>(h * c.problem.T + distance)], want,
                  1e-11 * (1 + std::fabs(want)));
    }
}

// One diagonal of a long Toeplitz matrix is its neighbour: a product in thousands of each output is another.
TEST(Check, SeesOneDiagonalOfAToeplitzMatrixOffByOne) {
  for (const char* text : {"forward,dtype=bf16,B=1,T=16384,D=2,w=toeplitz",
                           "grad_input,dtype=f16,B=1,T=16384,D=2,w=toeplitz,wdtype=f32",
                           "grad_weight,dtype=bf16,B=1,T=16384,D=2,w=toeplitz,wdtype=f32"}) {
    const Case c(text);
    const Problem& p = c.problem;
    const Tensor& out = c.list.output();
    ReferenceOptions options;
    options.full = true;
    const Reference all(p, c.list, c.inputs, options);
    options.full = false;
    options.sample = true;
    const Reference sampled(p, c.list, c.inputs, options);
    const auto columns = static_cast<int64_t>(all.columns().size());
    const auto outputs_with = [&](int64_t distance) {  // none below 0
      HostBuffers buffers = c.inputs;
      for (int64_t row = 0; row < p.T; ++row)
        for (int64_t column = 0; column < columns; ++column) {
          const auto value = [&](int64_t of) {
            return all.expected(out.role)[static_cast<size_t>(of * columns + column)];
          };
          double sum = value(row);
          const int64_t other = transposes(p.op) ? row + distance : row - distance;
          if (makes_weights(p.op)) {
            if (row == distance) sum = value(row + 1);
          } else if (distance >= 0 && other >= 0 && other < p.T) {
            sum += (c.weight(0, distance + 1, 0, 0) - c.weight(0, distance, 0, 0)) *
                   c.activation(transposes(p.op) ? Role::kY : Role::kX, 0, 0, other, column);
          }
          if (!makes_weights(p.op) || column == 0)
            store_element(out.dtype, c.data(buffers, out.role), output_index(p, out, row, column),
                          static_cast<float>(sum));
        }
      return buffers;
    };
    EXPECT_TRUE(all.check(outputs_with(-1)).ok) << text;
    EXPECT_TRUE(sampled.check(outputs_with(-1)).ok) << text;
    for (const int64_t distance : {0, 1, 63, 64, 127, 1000, 8191, 12000}) {
      EXPECT_FALSE(all.check(outputs_with(distance)).ok) << text << ' ' << distance;
      EXPECT_FALSE(sampled.check(outputs_with(distance)).ok) << text << ' ' << distance << ", sampled";
    }
  }
}

TEST(Check, SeesOneWrongElementAnywhere) {
  for (const char* text :
       {"forward,dtype=bf16,B=2,H=2,T=40,D=24", "grad_input,dtype=f16,B=2,H=1,T=33,D=17",
        "grad_weight,dtype=bf16,wdtype=f32,B=2,H=1,T=40,D=24,K=2",
        "grad_epilogue,dtype=bf16,B=2,T=40,D=24,epilogue=gelu+gate",
        "scan,dtype=bf16,B=2,H=2,T=40,D=24,wdtype=f32,epilogue=bias",
        "scan_grad_input,dtype=f32,B=2,T=40,D=24,layout=bdt",
        "scan_grad_weight,dtype=bf16,B=2,H=2,T=20,D=12,wdtype=f32,epilogue=bias+grad_input",
        "gram,dtype=bf16,B=2,T=40,D=24,epilogue=residual",
        "gram,dtype=f16,B=1,H=2,T=40,D=24,wdtype=f32,epilogue=residual+mirror"}) {
    const Case c(text);
    ReferenceOptions sampled;
    sampled.sample = true;
    const Reference full(c.problem, c.list, c.inputs);
    const Reference quick(c.problem, c.list, c.inputs, sampled);
    const HostBuffers right = right_outputs(c);
    const Role role = c.problem.epilogue.grad_input ? Role::kPre : c.list.output().role;
    const Tensor& t = *c.list.find(role);
    int64_t tried = 0;
    for (int64_t i = 0; i < t.elements; i += 37) {
      HostBuffers wrong = right;
      const float old = load_element(t.dtype, c.data(right, role), i);
      if (std::isnan(old)) continue;  // outside the triangle
      store_element(t.dtype, c.data(wrong, role), i, old + 4);
      ++tried;
      EXPECT_FALSE(full.check(wrong).ok) << text << " element " << i;
      EXPECT_FALSE(quick.check(wrong).ok) << text << " element " << i;
    }
    EXPECT_GT(tried, 20);
  }
}

TEST(Check, SeesOneWrongDerivativeOfAVector) {
  const Case c("scan_grad_weight,dtype=f32,B=1,H=2,T=9,D=4,epilogue=bias", 1);
  const Reference reference(c.problem, c.list, c.inputs);
  const HostBuffers right = right_outputs(c);
  const Tensor& t = *c.list.find(Role::kResidual);
  for (int64_t i = 0; i < 2 * scan::kVectors * 9; ++i) {
    HostBuffers wrong = right;
    const int64_t at = vector_index(t, i / 9 / scan::kVectors, i / 9 % scan::kVectors, i % 9);
    store_element(t.dtype, c.data(wrong, t.role), at,
                  load_element(t.dtype, c.data(right, t.role), at) + 0.01F);
    EXPECT_THAT(reference.check(wrong).failure, HasSubstr(kVectorNames[i / 9 % scan::kVectors]));
  }
}

// newton_schulz by a kernel with one fault: what it would compute, rounded once.
TEST(Check, SeesAFaultOfNewtonSchulz) {
  for (const char* sizes :
       {"T=64,D=64,K=5", "T=128,D=1024,K=5", "T=37,D=151,K=4,layout=bdt", "T=128,D=160,K=3"}) {
    SCOPED_TRACE(sizes);
    const Case c(std::string("newton_schulz,dtype=bf16,B=1,") + sizes);
    const Problem& p = c.problem;
    const Reference reference(p, c.list, c.inputs);
    const auto element = [&](const OutputPlace& o) { return c.activation(Role::kX, 0, 0, o.row, o.column); };
    const auto number = [&](int64_t i) { return c.at(Role::kW, i); };
    double squares = 0;
    for (int64_t t = 0; t < p.T; ++t)
      for (int64_t d = 0; d < p.D; ++d) squares += element({0, 0, t, d}) * element({0, 0, t, d});
    // Y with other numbers, of some of the columns, whatever the norm of these.
    const auto made = [&](const Problem& of, const auto& w, int64_t first, int64_t last) {
      return newton_schulz(of, 0, 0, [&](Role role, const OutputPlace& o) {
        if (role == Role::kW) return o.column == 3 * of.K ? std::sqrt(squares) : w(o.column);
        return o.column >= first && o.column < last ? 0.0 : element(o);
      });
    };
    const auto check = [&](const std::vector<double>& y) {
      HostBuffers out = c.inputs;
      const Tensor& t = *c.list.find(Role::kY);
      for (int64_t row = 0; row < p.T; ++row)
        for (int64_t d = 0; d < p.D; ++d)
          store_element(t.dtype, c.data(out, Role::kY), activation_index(p, t, 0, 0, row, d),
                        static_cast<float>(y[static_cast<size_t>(row * p.D + d)]));
      return reference.check(out);
    };
    const std::vector<double> right = made(p, number, 0, 0);
    EXPECT_TRUE(check(right).ok);
    Problem shorter = p;
    --shorter.K;
    EXPECT_FALSE(check(made(shorter, number, 0, 0)).ok) << "the last step is missing";
    EXPECT_FALSE(check(made(
                           shorter, [&](int64_t i) { return number(i < 3 ? i : i + 3); }, 0, 0))
                     .ok)
        << "the second step is missing";
    for (const auto& pair : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)}) {
      const int first = pair.first, second = pair.second;  // clang captures no structured bindings
      EXPECT_FALSE(check(made(
                             p,
                             [&](int64_t i) {
                               const int64_t which = i % 3;
                               return number(which == first    ? i - first + second
                                             : which == second ? i - second + first
                                                               : i);
                             },
                             0, 0))
                       .ok)
          << "coefficients " << first << " and " << second << " are exchanged";
    }
    // 16 columns are not in any R.
    std::vector<double> without = made(p, number, 0, 16);
    for (int64_t row = 0; row < p.T; ++row)
      std::copy_n(right.begin() + row * p.D, 16, without.begin() + row * p.D);
    EXPECT_FALSE(check(without).ok) << "R lacks 16 columns of X";
  }
}

TEST(Check, SaysWhereAndWhat) {
  const Case c("grad_weight,dtype=f32,B=1,T=6,D=5");
  const Reference reference(c.problem, c.list, c.inputs);
  HostBuffers out = right_outputs(c);
  const Tensor& w = *c.list.find(Role::kW);
  store_element(DType::kF32, c.data(out, Role::kW), weight_index(c.problem, w, 0, 2, 4, 0), 1);
  EXPECT_THAT(reference.check(out).failure,
              HasSubstr("dW[h=0,t=2,s=4,j=0] is outside the triangle and was written"));
  out = right_outputs(c);
  store_element(DType::kF32, c.data(out, Role::kW), weight_index(c.problem, w, 0, 3, 1, 0), NAN);
  EXPECT_THAT(reference.check(out).failure, HasSubstr("dW[h=0,t=3,s=1,j=0] is nan or was never written"));
  out = right_outputs(c);
  store_element(DType::kF32, c.data(out, Role::kW), weight_index(c.problem, w, 0, 3, 1, 0), 100);
  EXPECT_THAT(reference.check(out).failure, HasSubstr("dW[h=0,t=3,s=1,j=0] is 100"));
}

TEST(Check, SeesAMissingProductOfOneTerm) {
  // one of 257 products left out in every output: what a kernel that drops the last step of an odd size does
  const Case c("forward,dtype=bf16,B=1,T=257,D=9");
  const Reference reference(c.problem, c.list, c.inputs);
  HostBuffers out = right_outputs(c);
  const Tensor& y = *c.list.find(Role::kY);
  for (int64_t d = 0; d < 9; ++d) {
    const int64_t at = activation_index(c.problem, y, 0, 0, 256, d);
    const double missing = c.weight(0, 256, 256, 0) * c.activation(Role::kX, 0, 0, 256, d);
    store_element(y.dtype, c.data(out, Role::kY), at,
                  static_cast<float>(define(c, Role::kY, 0, 256, d) - missing));
  }
  EXPECT_FALSE(reference.check(out).ok);
}

TEST(Check, SeesWritesIntoGaps) {
  const Case c("forward,dtype=bf16,B=2,T=8,D=8", 1);
  const Reference reference(c.problem, c.list, c.inputs);
  HostBuffers out = right_outputs(c);
  ASSERT_TRUE(reference.check(out).ok);
  const Tensor& y = *c.list.find(Role::kY);
  store_element(y.dtype, c.data(out, Role::kY), activation_index(c.problem, y, 1, 0, 3, 0) + 8, 0);
  EXPECT_THAT(reference.check(out).failure, HasSubstr("gap after row b=1 h=0 t=3 was written"));
}

TEST(Inputs, MaskedWeightsAndGapsAreNaN) {
  const Case c("forward,dtype=f16,B=1,T=7,D=3,K=2,pad=0,fill=upper,diag=1", 1);
  const Tensor& w = *c.list.find(Role::kW);
  for (int64_t t = 0; t < 7; ++t) {
    for (int64_t s = 0; s < 7; ++s) {
      EXPECT_EQ(std::isnan(c.at(Role::kW, weight_index(c.problem, w, 0, t, s, 1))), s < t + 1);
    }
  }
  const HostBuffers again = make_inputs(c.problem, c.list, 7);
  EXPECT_EQ(again, c.inputs);
  EXPECT_NE(make_inputs(c.problem, c.list, 8), c.inputs);
}

TEST(Numbers, RoundToNearestEvenAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_f16(value), half);
    const float brain = bf16_to_float(half);
    if (!std::isnan(brain)) {
      ASSERT_EQ(float_to_bf16(brain), half);
    }
  }
  EXPECT_EQ(float_to_f16(1 + 0x1p-11F), 0x3c00);             // tie to even
  EXPECT_EQ(float_to_f16(1 + 0x1p-11F + 0x1p-20F), 0x3c01);  // above the tie
  EXPECT_EQ(float_to_f16(65519), 0x7bff);
  EXPECT_EQ(float_to_f16(65520), 0x7c00);
  EXPECT_EQ(float_to_f16(0x1p-25F), 0);  // tie with zero
  EXPECT_EQ(float_to_f16(0x1.8p-25F), 1);
  EXPECT_EQ(float_to_bf16(1 + 0x1p-8F), 0x3f80);
  EXPECT_EQ(float_to_bf16(1 + 0x1p-8F + 0x1p-16F), 0x3f81);
}

// The numbers of a tensor depend on its places alone, so the rows of decode are those of forward; beyond the
// tokens that they read, x is poison.
TEST(Reference, DecodeIsRowsOfForward) {
  for (const char* rest : {"dtype=f32,B=2,H=2,T=12,D=5,K=3,diag=-2,epilogue=bias+silu+gate",
                           "dtype=f16,B=2,T=16,D=8,layout=bdt,fill=upper,diag=2"}) {
    const Problem whole = llvm::cantFail(parse_problem(std::string("forward,") + rest));
    const TensorList list = tensors_of(whole);
    HostBuffers inputs = make_inputs(whole, list, 5);
    for (const Rows rows : {Rows{0, 3}, Rows{5, 1}, Rows{whole.T - 3, 3}}) {
      Problem few = whole;
      few.op = Op::kDecode, few.rows = 3;
      const TensorList few_list = tensors_of(few, 0, rows);
      HostBuffers few_inputs = make_inputs(few, few_list, 5);
      // The gate holds the rows only: the same numbers at other places.
      if (const Tensor* gate = few_list.find(Role::kGate)) {
        const Tensor& from = *list.find(Role::kGate);
        const auto at = static_cast<size_t>(gate - few_list.tensors.data());
        for (int64_t b = 0; b < few.B; ++b)
          for (int64_t h = 0; h < few.H; ++h)
            for (int64_t t = rows.first; t < rows.first + rows.count; ++t)
              for (int64_t d = 0; d < few.D; ++d)
                store_element(gate->dtype, few_inputs[at].data() + gate->offset_bytes,
                              activation_index(few, *gate, b, h, t, d),
                              load_element(from.dtype, inputs[at].data() + from.offset_bytes,
                                           activation_index(whole, from, b, h, t, d)));
      }
      const Reference reference(whole, list, inputs), of_rows(few, few_list, few_inputs);
      const auto& expected = reference.expected(Role::kY);
      const auto& got = of_rows.expected(Role::kY);
      const size_t columns = reference.columns().size();
      ASSERT_EQ(got.size(), static_cast<size_t>(few.H * rows.count) * columns);
      for (size_t i = 0; i < got.size(); ++i) {
        const auto row = static_cast<size_t>(of_rows.rows()[i / columns]);
        EXPECT_EQ(got[i], expected[row * columns + i % columns]) << rest << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace trigen
