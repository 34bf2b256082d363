#include "check/reference.h"

#include <algorithm>
#include <set>

#include "check/contraction.h"
#include "check/correlation.h"
#include "check/operands.h"
#include "check/parallel.h"
#include "check/recurrence.h"
#include "numerics/newton_schulz.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

constexpr uint64_t kSampleSeed = 0x7269676e;  // fixed: two runs check the same places

// Sorted distinct positions in [0, size): both ends, both sides of tile borders, and random ones up to
// `count`.
std::vector<int64_t> sample(int64_t size, int64_t count, uint64_t stream) {
  std::set<int64_t> chosen;
  auto add = [&](int64_t i) {
    if (i >= 0 && i < size) chosen.insert(i);
  };
  for (int64_t i : {int64_t{0}, int64_t{1}, size - 2, size - 1}) add(i);
  for (int64_t tile : {8, 16, 32, 64, 128, 256}) {
    const int64_t last = (size - 1) / tile * tile;
    for (int64_t border : {tile, last}) {
      add(border - 1);
      add(border);
    }
  }
  for (uint64_t i = 0; static_cast<int64_t>(chosen.size()) < std::min(count, size); ++i) {
    add(static_cast<int64_t>(random_bits(kSampleSeed, stream, i) % static_cast<uint64_t>(size)));
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<int64_t> all(int64_t size) {
  std::vector<int64_t> out(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) out[static_cast<size_t>(i)] = i;
  return out;
}

// Of flattened columns: borders of both axes, of which the inner one has `inner`, and of the whole.
std::set<int64_t> sample_columns(int64_t columns, int64_t inner) {
  std::set<int64_t> chosen;
  for (int64_t c : sample(columns, 96, 3)) chosen.insert(c);
  const auto outers = sample(columns / inner, 8, 4);
  for (int64_t outer : {outers.front(), outers[outers.size() / 2], outers.back()})
    for (int64_t i : sample(inner, 32, 5)) chosen.insert(outer * inner + i);
  return chosen;
}

}  // namespace

Reference::Reference(const Problem& problem, const TensorList& list, const HostBuffers& inputs,
                     const ReferenceOptions& options)
    : problem_(problem), list_(list), inputs_(&inputs) {
  choose_samples(options);
  compute();
}

void Reference::choose_samples(const ReferenceOptions& options) {
  const Problem& p = problem_;
  const bool weight = makes_weights(p.op);
  const int64_t columns = output_columns(p);
  const double rows_of_all = static_cast<double>(p.H) * static_cast<double>(p.T),
               outputs = rows_of_all * static_cast<double>(columns);
  const double work = count_work(p).triangle_flop / 2;
  const bool diagonals = weight && p.w == WeightForm::kToeplitz;
  full_ = options.full || op_row(p.op).takes(kRowsField) || makes_vectors(p.op) || diagonals ||
          (!options.sample && work <= kFullWork && outputs <= 0x1p25);
  if (full_) {
    for (int64_t h = 0; h < p.H; ++h)
      for (int64_t t = list_.rows.first; t < list_.rows.first + list_.rows.count; ++t)
        rows_.push_back(h * p.T + t);
    columns_ = all(columns);
    if (p.epilogue.grad_input) {
      const int64_t beside = output_columns(p, Axes::kActivations);
      const std::set<int64_t> some = sample_columns(beside, p.D);
      columns_beside_ = options.full || rows_of_all * static_cast<double>(beside) <= 0x1p25
                            ? all(beside)
                            : std::vector<int64_t>(some.begin(), some.end());
    }
    return;
  }
  const auto rows = sample(p.T, 40, 1);
  for (int64_t h : sample(p.H, 4, 2)) {
    for (int64_t t : rows) rows_.push_back(h * p.T + t);
  }
  std::set<int64_t> columns_set = sample_columns(columns, weight ? p.K : p.D);
  if (weight) {  // both sides of the diagonal of every sampled row
    for (int64_t t : rows) {
      for (int64_t s = t + p.diag - 1; s <= t + p.diag + 1; ++s) {
        if (s >= 0 && s < p.T) columns_set.insert(s * p.K + (s % p.K));
      }
    }
  }
  columns_.assign(columns_set.begin(), columns_set.end());
}

const std::vector<int64_t>& Reference::columns(const Tensor& output) const {
  static const std::vector<int64_t> kOne = {0};
  if (output.axes == Axes::kRows) return kOne;
  return output.axes == list_.output().axes ? columns_ : columns_beside_;
}

bool Reference::is_output(const Tensor& tensor, int64_t row, int64_t column) const {
  return tensor.axes != Axes::kWeights || in_triangle(problem_, row % problem_.T, column / problem_.K);
}

void Reference::evaluate_formula() {
  const Problem& p = problem_;
  struct Input {
    const Tensor* tensor = nullptr;
    const std::byte* data = nullptr;
  };
  std::array<Input, kRoles> inputs;
  for (const Tensor& t : list_.tensors)
    inputs[static_cast<size_t>(t.role)] = {&t, data_of(list_, t, *inputs_)};
  const auto read = [&](Role role, const OutputPlace& o) {
    const auto& [tensor, data] = inputs[static_cast<size_t>(role)];
    return load_element(tensor->dtype, data, activation_index(p, *tensor, o.b, o.h, o.row, o.column));
  };
  const size_t columns = columns_.size();
  for (const Tensor& t : list_.tensors)
    if (t.written) values(t.role).resize(rows_.size() * columns);
  parallel_for(static_cast<int64_t>(rows_.size()), 1, [&](int64_t begin, int64_t end) {
    for (size_t i = static_cast<size_t>(begin) * columns; i < static_cast<size_t>(end) * columns; ++i) {
      const int64_t row = rows_[i / columns], column = columns_[i % columns];
      const OutputValues out = evaluate(p, {column / p.D, row / p.T, row % p.T, column % p.D}, read);
      for (const Tensor& t : list_.tensors)
        if (t.written) values(t.role)[i] = out[t.role];
    }
  });
}

// newton_schulz, a matrix at a time.
void Reference::iterate() {
  const Problem& p = problem_;
  const auto read = [&](Role role, const OutputPlace& o) {
    const Tensor& t = *list_.find(role);
    return load_element(t.dtype, data_of(list_, t, *inputs_),
                        t.axes == Axes::kActivations ? activation_index(p, t, o.b, o.h, o.row, o.column)
                                                     : output_index(p, t, 0, o.column));
  };
  std::set<std::pair<int64_t, int64_t>> wanted;
  for (const int64_t row : rows_)
    for (const int64_t column : columns_) wanted.insert({column / p.D, row / p.T});
  const std::vector<std::pair<int64_t, int64_t>> places(wanted.begin(), wanted.end());
  std::vector<double>& out = values(list_.output().role);
  const size_t columns = columns_.size();
  out.resize(rows_.size() * columns);
  parallel_for(static_cast<int64_t>(places.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t place = begin; place < end; ++place) {
      const auto [b, h] = places[static_cast<size_t>(place)];
      const std::vector<double> matrix = newton_schulz(p, b, h, read);
      for (size_t i = 0; i < out.size(); ++i) {
        const int64_t row = rows_[i / columns], column = columns_[i % columns];
        if (row / p.T == h && column / p.D == b)
          out[i] = matrix[static_cast<size_t>(row % p.T * p.D + column % p.D)];
      }
    }
  });
}

void Reference::compute() {
  if (is_scan(problem_.op)) return recur();
  if (op_row(problem_.op).takes(kStepsField)) return iterate();
  if (!is_product(problem_.op)) return evaluate_formula();
  if (makes_weights(problem_.op) && problem_.w == WeightForm::kToeplitz)
    sum_diagonals();
  else
    multiply();
  if (!full_ && Projection::applies(problem_)) projection_ = Projection(problem_, list_, *inputs_);
  if (makes_weights(problem_.op)) {
    if (op_row(problem_.op).takes(kFactorsField)) scale();
    if (problem_.epilogue.accumulate) accumulate();
  } else {
    apply_epilogue();
  }
}

void Reference::recur() {
  const Problem& p = problem_;
  const Recurrences recurrences(p, list_, *inputs_);
  if (makes_vectors(p.op)) {
    const std::vector<double> sums = recurrences.gradients();
    std::vector<double>&main = values(list_.output().role), &bias = values(Role::kBias);
    for (const int64_t row : rows_) {
      const double* from = &sums[static_cast<size_t>(row * (scan::kVectors + 1))];
      main.insert(main.end(), from, from + scan::kVectors);
      bias.push_back(from[scan::kVectors]);
    }
    if (p.epilogue.grad_input) recur_columns(recurrences, *list_.find(Role::kPre));
    return;
  }
  recur_columns(recurrences, list_.output());
  apply_epilogue();
}

// Outputs with x's axes.
void Reference::recur_columns(const Recurrences& recurrences, const Tensor& output) {
  const Problem& p = problem_;
  const std::vector<int64_t>& list = columns(output);
  const size_t columns = list.size();
  std::vector<double>& out = values(output.role);
  out.resize(rows_.size() * columns);
  size_t begin = 0;
  while (begin < rows_.size()) {  // one head at a time
    const int64_t h = rows_[begin] / p.T;
    size_t end = begin;
    while (end < rows_.size() && rows_[end] / p.T == h) ++end;
    parallel_for(static_cast<int64_t>(columns), 1, [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) {
        const std::vector<double> column = recurrences.column(h, list[static_cast<size_t>(c)]);
        for (size_t i = begin; i < end; ++i)
          out[i * columns + static_cast<size_t>(c)] = column[static_cast<size_t>(rows_[i] % p.T)];
      }
    });
    begin = end;
  }
}

void Reference::multiply() {
  const Operands operands(problem_, list_, *inputs_);
  const int64_t columns = static_cast<int64_t>(columns_.size());
  std::vector<double>& main = values(list_.output().role);
  size_t begin = 0;
  while (begin < rows_.size()) {  // one head at a time
    const int64_t h = rows_[begin] / problem_.T;
    size_t end = begin;
    while (end < rows_.size() && rows_[end] / problem_.T == h) ++end;
    Contraction c;
    c.rows = static_cast<int64_t>(end - begin);
    c.columns = columns;
    c.depth = operands.depth();
    c.range = [&](int64_t row) {
      return operands.range(rows_[begin + static_cast<size_t>(row)] % problem_.T);
    };
    c.coefficients = [&](int64_t row, int64_t k0, int64_t k1, double* out) {
      operands.coefficients(h, rows_[begin + static_cast<size_t>(row)] % problem_.T, k0, k1, out);
    };
    c.panel = [&](int64_t c0, int64_t k0, int64_t k1, double* out) {
      for (int64_t i = 0; i < kPanelWidth; ++i) {
        if (c0 + i < columns) {
          operands.column(h, columns_[static_cast<size_t>(c0 + i)], k0, k1, out + i, kPanelWidth);
        } else {
          for (int64_t k = k0; k < k1; ++k) out[(k - k0) * kPanelWidth + i] = 0;
        }
      }
    };
    const auto part = contract(c);
    main.insert(main.end(), part.begin(), part.end());
    begin = end;
  }
  if (makes_weights(problem_.op) && problem_.epilogue.bias) values(Role::kBias) = operands.row_sums();
}

// The gradient of a Toeplitz matrix: row t is the diagonal that begins at (t, 0).
void Reference::sum_diagonals() {
  const Problem& p = problem_;
  const Operands operands(p, list_, *inputs_);
  std::vector<double>& main = values(list_.output().role);
  for (int64_t h = 0; h < p.H; ++h) {
    const std::vector<double> sums = correlate(p, operands, h);
    main.insert(main.end(), sums.begin(), sums.end());
  }
  if (p.epilogue.bias) values(Role::kBias) = operands.row_sums();
}

void Reference::apply_epilogue() {
  const Problem& p = problem_;
  const Epilogue& e = p.epilogue;
  const size_t columns = columns_.size();
  std::vector<double>& main = values(list_.output().role);
  const auto each = [&](auto body) {
    parallel_for(static_cast<int64_t>(rows_.size()), 1, [&](int64_t r0, int64_t r1) {
      for (size_t i = static_cast<size_t>(r0) * columns; i < static_cast<size_t>(r1) * columns; ++i)
        body(rows_[i / columns], columns_[i % columns], main[i]);
    });
  };
  // With the input's element that belongs to each output.
  const auto each_with = [&](Role role, auto body) {
    const Tensor& t = *list_.find(role);
    const std::byte* data = data_of(list_, t, *inputs_);
    each([&](int64_t row, int64_t column, double& v) {
      body(v, load_element(t.dtype, data, output_index(p, t, row, column)));
    });
  };
  if (e.bias) each_with(Role::kBias, [](double& v, double bias) { v += bias; });
  if (e.pre) values(Role::kPre) = main;
  if (e.act != Activation::kNone) each([&](int64_t, int64_t, double& v) { v = activate(e.act, v); });
  if (e.gate) each_with(Role::kGate, [](double& v, double gate) { v *= gate; });
  if (e.residual) each_with(Role::kResidual, [](double& v, double residual) { v += residual; });
}

// D: alpha times the sums, beta C and gamma I.
void Reference::scale() {
  const size_t columns = columns_.size();
  const Tensor* c = list_.find(Role::kResidual);
  const std::byte* data = c == nullptr ? nullptr : data_of(list_, *c, *inputs_);
  std::vector<double>& sums = values(list_.output().role);
  parallel_for(static_cast<int64_t>(sums.size()), 1024, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const int64_t row = rows_[i / columns], column = columns_[i % columns];
      sums[i] = kCheckedAlpha * sums[i] + (row % problem_.T == column ? kCheckedGamma : 0);
      if (c != nullptr && is_output(*c, row, column))
        sums[i] += kCheckedBeta * load_element(c->dtype, data, output_index(problem_, *c, row, column));
    }
  });
}

// dW and grad_bias: what was there before.
void Reference::accumulate() {
  const size_t columns = columns_.size();
  for (const Tensor& t : list_.tensors) {
    if (!t.written) continue;
    std::vector<double>& sums = values(t.role);
    const std::byte* data = data_of(list_, t, *inputs_);
    parallel_for(static_cast<int64_t>(sums.size()), 1024, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const bool rows = t.axes == Axes::kRows;
        const int64_t row = rows ? static_cast<int64_t>(i) : rows_[i / columns];
        const int64_t column = rows ? 0 : columns_[i % columns];
        if (is_output(t, row, column))
          sums[i] += load_element(t.dtype, data, output_index(problem_, t, row, column));
      }
    });
  }
}

}  // namespace trigen
