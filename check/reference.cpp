#include "check/reference.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "check/contraction.h"
#include "check/operands.h"
#include "check/parallel.h"
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

}  // namespace

Reference::Reference(const Problem& problem, const TensorList& list, const HostBuffers& inputs,
                     const ReferenceOptions& options)
    : problem_(problem), list_(list), inputs_(&inputs) {
  choose_samples(options);
  compute();
  if (!full_ && Projection::applies(problem_)) projection_ = Projection(problem_, list_, inputs);
  apply_epilogue();
}

void Reference::choose_samples(const ReferenceOptions& options) {
  const Problem& p = problem_;
  const bool weight = p.op == Op::kGradWeight;
  const int64_t columns = weight ? p.T * p.K : p.B * p.D;
  const double outputs = static_cast<double>(p.H) * static_cast<double>(p.T) * static_cast<double>(columns);
  const double work = count_work(p).triangle_flop / 2;
  full_ = options.full || p.op == Op::kDecode || (!options.sample && work <= kFullWork && outputs <= 0x1p25);
  if (full_) {
    for (int64_t h = 0; h < p.H; ++h)
      for (int64_t t = list_.rows.first; t < list_.rows.first + list_.rows.count; ++t)
        rows_.push_back(h * p.T + t);
    columns_ = all(columns);
    return;
  }
  const auto rows = sample(p.T, 40, 1);
  for (int64_t h : sample(p.H, 4, 2)) {
    for (int64_t t : rows) rows_.push_back(h * p.T + t);
  }
  // borders of both axes of a flattened column, and of the whole
  const int64_t inner = weight ? p.K : p.D;
  std::set<int64_t> columns_set;
  for (int64_t c : sample(columns, 96, 3)) columns_set.insert(c);
  const auto outers = sample(columns / inner, 8, 4);
  for (int64_t outer : {outers.front(), outers[outers.size() / 2], outers.back()}) {
    for (int64_t i : sample(inner, 32, 5)) columns_set.insert(outer * inner + i);
  }
  if (weight) {  // both sides of the diagonal of every sampled row
    for (int64_t t : rows) {
      for (int64_t s = t + p.diag - 1; s <= t + p.diag + 1; ++s) {
        if (s >= 0 && s < p.T) columns_set.insert(s * p.K + (s % p.K));
      }
    }
  }
  columns_.assign(columns_set.begin(), columns_set.end());
}

bool Reference::inside(int64_t row, int64_t column) const {
  return problem_.op != Op::kGradWeight || in_triangle(problem_, row % problem_.T, column / problem_.K);
}

int64_t Reference::index(const Tensor& tensor, int64_t row, int64_t column) const {
  const Problem& p = problem_;
  const int64_t h = row / p.T;
  const int64_t t = row % p.T;
  if (tensor.role == Role::kW) return weight_index(p, tensor, h, t, column / p.K, column % p.K);
  return activation_index(p, tensor, column / p.D, h, t, column % p.D);
}

void Reference::derive_epilogue() {
  const Epilogue& e = problem_.epilogue;
  const auto reader = [&](Role role) {
    const Tensor* t = list_.find(role);
    const std::byte* data =
        t == nullptr ? nullptr
                     : (*inputs_)[static_cast<size_t>(t - list_.tensors.data())].data() + t->offset_bytes;
    return [=, this](int64_t row, int64_t column) {
      return load_element(t->dtype, data, index(*t, row, column));
    };
  };
  const auto dy = reader(Role::kY), pre = reader(Role::kPre), gate = reader(Role::kGate);
  const size_t columns = columns_.size();
  main_.resize(rows_.size() * columns);
  gate_.resize(e.gate ? main_.size() : 0);
  parallel_for(static_cast<int64_t>(rows_.size()), 1, [&](int64_t begin, int64_t end) {
    for (size_t i = static_cast<size_t>(begin) * columns; i < static_cast<size_t>(end) * columns; ++i) {
      const int64_t row = rows_[i / columns], column = columns_[i % columns];
      const double outer = dy(row, column), before = pre(row, column);
      main_[i] = outer * activation_slope(e.act, before);
      if (!e.gate) continue;
      main_[i] *= gate(row, column);
      gate_[i] = outer * activate(e.act, before);
    }
  });
}

void Reference::compute() {
  if (problem_.op == Op::kGradEpilogue) return derive_epilogue();
  const Operands operands(problem_, list_, *inputs_);
  const int64_t columns = static_cast<int64_t>(columns_.size());
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
    main_.insert(main_.end(), part.begin(), part.end());
    begin = end;
  }
  if (problem_.op == Op::kGradWeight && problem_.epilogue.bias) bias_ = operands.row_sums();
}

void Reference::apply_epilogue() {
  const Problem& p = problem_;
  const Epilogue& e = p.epilogue;
  auto input = [&](Role role) {
    const Tensor* t = list_.find(role);
    const auto at = static_cast<size_t>(t - list_.tensors.data());
    return std::pair(t, static_cast<const void*>((*inputs_)[at].data() + t->offset_bytes));
  };
  const size_t columns = columns_.size();
  auto each = [&](auto body) {
    parallel_for(static_cast<int64_t>(rows_.size()), 1, [&](int64_t r0, int64_t r1) {
      for (int64_t r = r0; r < r1; ++r) {
        for (size_t c = 0; c < columns; ++c) body(r, c, main_[static_cast<size_t>(r) * columns + c]);
      }
    });
  };
  if (p.op == Op::kForward || p.op == Op::kDecode) {
    if (e.bias) {
      const auto [t, data] = input(Role::kBias);
      each([&, t = t, data = data](int64_t r, size_t, double& v) {
        v += load_element(t->dtype, data, rows_[static_cast<size_t>(r)]);
      });
    }
    if (e.pre) pre_ = main_;
    each([&](int64_t, size_t, double& v) { v = activate(e.act, v); });
    if (e.gate) {
      const auto [t, data] = input(Role::kGate);
      each([&, t = t, data = data](int64_t r, size_t c, double& v) {
        v *= load_element(t->dtype, data, index(*t, rows_[static_cast<size_t>(r)], columns_[c]));
      });
    }
  }
  if (p.op != Op::kGradWeight && e.residual) {
    const auto [t, data] = input(Role::kResidual);
    each([&, t = t, data = data](int64_t r, size_t c, double& v) {
      v += load_element(t->dtype, data, index(*t, rows_[static_cast<size_t>(r)], columns_[c]));
    });
  }
  if (p.op == Op::kGradWeight && e.accumulate) {
    const auto [t, data] = input(Role::kW);
    each([&, t = t, data = data](int64_t r, size_t c, double& v) {
      const int64_t row = rows_[static_cast<size_t>(r)];
      if (inside(row, columns_[c])) v += load_element(t->dtype, data, index(*t, row, columns_[c]));
    });
    if (e.bias) {
      const auto [b, bias_data] = input(Role::kBias);
      for (size_t i = 0; i < bias_.size(); ++i)
        bias_[i] += load_element(b->dtype, bias_data, static_cast<int64_t>(i));
    }
  }
}

const std::vector<double>& Reference::expected(Role role) const {
  if (role == Role::kPre) return pre_;
  if (role == Role::kBias) return bias_;
  if (role == Role::kResidual) return gate_;
  return main_;
}

}  // namespace trigen
