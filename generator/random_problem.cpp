#include "generator/random_problem.h"

#include <algorithm>

#include "generator/names.h"
#include "generator/ops.h"

namespace trigen {

Problem RandomProblem::kind() {
  Problem p;
  p.op = static_cast<Op>(pick(kOps.values.size()));
  p.dtype = static_cast<DType>(pick(kDTypes.values.size()));
  const OpRow& op = op_row(p.op);
  p.wdtype = p.dtype != DType::kF32 && coin() && op.takes(kWeightTypeField) ? DType::kF32 : p.dtype;
  if (p.dtype == DType::kF32) {
    const int64_t maths = kMaths.values.size() - 1;  // all but the default, which is not f32's
    p.math = op.takes(kMathField) ? static_cast<Math>(1 + pick(maths)) : Math::kSimt;
  }
  return p;
}

Problem RandomProblem::next() {
  Problem p = kind();
  p.B = size(300), p.H = size(16), p.T = size(5000), p.D = size(5000), p.K = coin() ? 1 : size(16);
  rest(p);
  return p;
}

Problem RandomProblem::next_small(bool tf32) {
  Problem p = kind();
  while (!tf32 && (p.math == Math::kTF32 || p.op == Op::kNewtonSchulz)) p = kind();
  p.B = 1 + pick(3), p.H = 1 + pick(3), p.K = coin() ? 1 : 1 + pick(4);
  p.T = 1 + pick(coin() ? 20 : 140), p.D = 1 + pick(coin() ? 20 : 140);
  const bool plain = pick(4) == 0;
  if (plain || coin()) p.T = (p.T + 7) / 8 * 8, p.D = (p.D + 7) / 8 * 8;
  if (count_work(p).dense_flop > 4e7) p.B = p.H = 1;
  rest(p);
  if (plain) {
    p.layout = Layout::kBTD;
    if (coin()) {
      p.K = 1, p.pad = 0;
    } else if (op_row(p.op).takes(kTapFields) && p.w == WeightForm::kDense) {  // Hopper's taps
      if (coin()) p.K = 1 + pick(32), p.pad = pick(p.K);
      p.epilogue.pre = p.epilogue.gate = p.epilogue.residual = false;
    }
    set_contiguous_alignment(p);
  }
  return p;
}

void RandomProblem::rest(Problem& p) {
  const OpRow& op = op_row(p.op);
  if (!op.takes(kTapFields) && !op.takes(kStepsField)) p.K = 1;
  if (op.takes(kStepsField)) p.T = 1 + (p.T - 1) % kUsualStepRows;
  p.pad = op.takes(kTapFields) ? pick(p.K) : 0;
  if (op.takes(kRowsField) && coin()) p.rows = 1 + pick(std::min<int64_t>(p.T, coin() ? 8 : kMaxDecodeRows));
  p.layout = coin() ? Layout::kBTD : Layout::kBDT;
  p.fill = coin() || !op.takes(kFillField) ? Fill::kLower : Fill::kUpper;
  if (coin() && op.takes(kDiagonalField)) p.diag = pick(2 * p.T - 1) - (p.T - 1);
  if (op.takes(kFormField) && pick(6) == 0) {
    p.w = static_cast<WeightForm>(1 + pick(2));
    p.K = 1, p.pad = p.diag = 0, p.fill = Fill::kLower;
    if (p.w == WeightForm::kBand) p.width = 1 + pick(coin() ? p.T : std::min<int64_t>(p.T, 40));
  }
  set_contiguous_alignment(p);
  while (coin() && p.align > element_size(p.dtype)) p.align /= 2;
  while (coin() && p.walign > element_size(p.wdtype)) p.walign /= 2;
  Epilogue& e = p.epilogue;
  if (op.parts.bias) e.bias = coin();
  if (op.parts.act != Activation::kNone) e.act = static_cast<Activation>(pick(kActivations.values.size()));
  if (op.parts.gate) e.gate = coin();
  if (op.bare != nullptr && e.act == Activation::kNone) e.gate = true;
  if (op.parts.pre) e.pre = (e.gate || e.act != Activation::kNone) && coin();
  if (op.parts.residual) e.residual = coin();
  if (op.parts.accumulate) e.accumulate = coin();
  if (op.parts.zero_outside) e.zero_outside = coin();
  if (op.parts.mirror) e.mirror = coin();
  if (op.parts.grad_input) e.grad_input = coin();
  if (op.takes(kPointersKeyField) && pick(3) == 0) p.B = p.pointers = 1;
}

// Powers of two, neighbours of powers of two and anything else.
int64_t RandomProblem::size(int64_t most) {
  int64_t value = int64_t{1} << pick(13);
  if (coin()) value += pick(3) - 1;
  if (coin()) value = 1 + pick(most);
  return std::clamp<int64_t>(value, 1, most);
}

}  // namespace trigen
