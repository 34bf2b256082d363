#include "numerics/formula.h"

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

}  // namespace

OutputValues evaluate(const Problem& p, const OutputPlace& o, InputReader read) {
  switch (p.op) {
    case Op::kGradEpilogue:
      return grad_epilogue(p.epilogue, o, read);
    default:
      return {};
  }
}

}  // namespace trigen
