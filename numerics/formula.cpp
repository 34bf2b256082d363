#include "numerics/formula.h"

#include <cmath>

#include "numerics/numbers.h"

namespace trigen {
namespace {

OutputValues grad_epilogue(const Epilogue& e, const OutputPlace& o, InputReader read) {
  const double dy = read(Role::kY, o), pre = read(Role::kPre, o);
  OutputValues out;
  out[Role::kX] = dy * activation_slope(e.act, pre) * (e.gate ? read(Role::kGate, o) : 1);
  out[Role::kResidual] = dy * activate(e.act, pre);
  return out;
}

// Products of decays below this add nothing to a sum in double precision.
constexpr double kNothing = 0x1p-200;

// A column's elements and the head's vectors as scan's formulas want them.
struct Column {
  const Problem& p;
  OutputPlace o;  // of the output
  InputReader read;
  VectorForms forms = vector_forms(p);

  double vector(scan::Vector i, int64_t t) const {
    if (i == scan::kDecay && t == 0) return 0;  // does not count
    return vector_of(forms, i, [&](scan::Vector j) { return read(Role::kW, {0, o.h, t, j}); });
  }
  double element(Role role, int64_t t) const { return read(role, {o.b, o.h, t, o.column}); }
  // Sums over the tokens before row t of decay[t - 1] ... decay[s + 1] source[s] x[s], and over those behind it of
  // decay[t + 1] ... decay[r] target[r] dy[r].
  double before(int64_t t) const {
    double sum = 0, product = 1;
    for (int64_t s = t - 1; s >= 0 && std::abs(product) > kNothing; product *= vector(scan::kDecay, s), --s)
      sum += product * vector(scan::kSource, s) * element(Role::kX, s);
    return sum;
  }
  double behind(int64_t t) const {
    double sum = 0, product = 1;
    for (int64_t r = t + 1; r < p.T; ++r) {
      product *= vector(scan::kDecay, r);
      if (std::abs(product) <= kNothing) break;
      sum += product * vector(scan::kTarget, r) * element(Role::kY, r);
    }
    return sum;
  }
  double input_gradient() const {
    return vector(scan::kSource, o.row) * behind(o.row) +
           vector(scan::kDiagonal, o.row) * element(Role::kY, o.row);
  }
};

OutputValues scan_rows(const Problem& p, const OutputPlace& o, InputReader read) {
  const Column column{p, o, read};
  const Epilogue& e = p.epilogue;
  const int64_t t = o.row;
  OutputValues out;
  if (p.op == Op::kScanGradInput) {
    out[Role::kX] = column.input_gradient() + (e.residual ? read(Role::kResidual, o) : 0);
    return out;
  }
  double& value = out[Role::kY] =
      column.vector(scan::kTarget, t) * column.vector(scan::kDecay, t) * column.before(t) +
      column.vector(scan::kDiagonal, t) * column.element(Role::kX, t) + (e.bias ? read(Role::kBias, o) : 0);
  out[Role::kPre] = value;
  value = activate(e.act, value);
  if (e.gate) value *= read(Role::kGate, o);
  if (e.residual) value += read(Role::kResidual, o);
  return out;
}

OutputValues scan_grad_weight(const Problem& p, const OutputPlace& o, InputReader read) {
  OutputValues out;
  if (o.beside) {
    out[Role::kPre] = Column{p, o, read}.input_gradient();
    return out;
  }
  const int64_t t = o.row;
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t d = 0; d < p.D; ++d) {
      const Column column{p, {b, o.h, t, d}, read};
      const double x = column.element(Role::kX, t), dy = column.element(Role::kY, t);
      out[Role::kBias] += dy;
      double& sum = out[Role::kResidual];
      if (o.column == scan::kDiagonal) sum += dy * x;
      if (o.column == scan::kSource) sum += x * column.behind(t);
      if (o.column == scan::kTarget) sum += dy * column.vector(scan::kDecay, t) * column.before(t);
      if (o.column <= scan::kTarget && !column.forms.of[scan::kDiagonal].given)
        sum += dy * x * column.vector(o.column == scan::kSource ? scan::kTarget : scan::kSource, t);
      if (o.column == scan::kDecay && t > 0 &&
          !column.forms.is_clipped(read(Role::kW, {0, o.h, t, o.column})))
        sum += (column.behind(t) + column.vector(scan::kTarget, t) * dy) * column.before(t);
    }
  return out;
}

}  // namespace

OutputValues evaluate(const Problem& p, const OutputPlace& o, InputReader read) {
  switch (p.op) {
    case Op::kGradEpilogue:
      return grad_epilogue(p.epilogue, o, read);
    case Op::kScan:
    case Op::kScanGradInput:
      return scan_rows(p, o, read);
    case Op::kScanGradWeight:
      return scan_grad_weight(p, o, read);
    default:
      return {};
  }
}

}  // namespace trigen
