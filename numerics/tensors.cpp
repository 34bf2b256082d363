#include "numerics/tensors.h"

#include <algorithm>

namespace trigen {
namespace {

Tensor place(Role role, DType dtype, int64_t align, bool read, bool written) {
  Tensor t;
  t.role = role;
  t.dtype = dtype;
  t.read = read;
  t.written = written;
  t.offset_bytes = align >= 16 ? 0 : align;
  return t;
}

Tensor activations(const Problem& p, Role role, bool read, bool written, int gap, Rows rows) {
  const bool few = p.op == Op::kDecode && role != Role::kX;
  const int64_t size = element_size(p.dtype), align = few && p.layout == Layout::kBDT ? size : p.align;
  Tensor t = place(role, p.dtype, align, read, written);
  t.first_token = few ? rows.first : 0;
  t.tokens = few ? rows.count : p.T;
  const int64_t unit = std::max<int64_t>(1, align / size);
  if (p.layout == Layout::kBTD) {
    // A head is a slice of the last axis; its own start must keep the alignment, too.
    t.head = round_up(p.D, unit);
    t.row = (p.H > 1 ? p.H * t.head : round_up(p.D, unit)) + gap * unit;
    t.batch = t.tokens * t.row;
  } else {
    t.row = round_up(t.tokens, unit) + gap * unit;
    t.head = p.D * t.row;
    t.batch = p.H * t.head;
  }
  t.elements = p.B * t.batch;
  return t;
}

Tensor weights(const Problem& p, bool read, bool written, int gap) {
  Tensor t = place(Role::kW, p.wdtype, p.walign, read, written);
  const int64_t unit = std::max<int64_t>(1, p.walign / element_size(p.wdtype));
  t.row = round_up(p.T * p.K, unit) + gap * unit;
  t.head = p.T * t.row;
  t.elements = p.H * t.head;
  return t;
}

Tensor bias(const Problem& p, bool read, bool written) {
  Tensor t = place(Role::kBias, p.wdtype, p.walign, read, written);
  t.head = p.T;
  t.elements = p.H * p.T;
  return t;
}

}  // namespace

const char* to_string(Role role) {
  switch (role) {
    case Role::kX:
      return "x";
    case Role::kY:
      return "y";
    case Role::kW:
      return "w";
    case Role::kBias:
      return "bias";
    case Role::kPre:
      return "pre";
    case Role::kGate:
      return "gate";
    case Role::kResidual:
      return "residual";
  }
  return "?";
}

const Tensor* TensorList::find(Role role) const {
  for (const Tensor& t : tensors) {
    if (t.role == role) return &t;
  }
  return nullptr;
}

TensorList tensors_of(const Problem& p, int gap, std::optional<Rows> named) {
  TensorList list;
  const Rows rows = list.rows = named && p.op == Op::kDecode ? *named : longest_rows(p);
  auto& out = list.tensors;
  const Epilogue& e = p.epilogue;
  switch (p.op) {
    case Op::kForward:
    case Op::kDecode:
      out.push_back(activations(p, Role::kX, true, false, gap, rows));
      out.push_back(activations(p, Role::kY, false, true, gap, rows));
      out.push_back(weights(p, true, false, gap));
      if (e.bias) out.push_back(bias(p, true, false));
      if (e.pre) out.push_back(activations(p, Role::kPre, false, true, gap, rows));
      if (e.gate) out.push_back(activations(p, Role::kGate, true, false, gap, rows));
      if (e.residual) out.push_back(activations(p, Role::kResidual, true, false, gap, rows));
      break;
    case Op::kGradInput:
      out.push_back(activations(p, Role::kX, false, true, gap, rows));
      out.push_back(activations(p, Role::kY, true, false, gap, rows));
      out.push_back(weights(p, true, false, gap));
      if (e.residual) out.push_back(activations(p, Role::kResidual, true, false, gap, rows));
      break;
    case Op::kGradWeight:
      out.push_back(activations(p, Role::kX, true, false, gap, rows));
      out.push_back(activations(p, Role::kY, true, false, gap, rows));
      out.push_back(weights(p, e.accumulate, true, gap));
      if (e.bias) out.push_back(bias(p, e.accumulate, true));
      break;
    case Op::kGradEpilogue:
      out.push_back(activations(p, Role::kX, false, true, gap, rows));
      out.push_back(activations(p, Role::kY, true, false, gap, rows));
      out.push_back(activations(p, Role::kPre, true, false, gap, rows));
      if (e.gate) out.push_back(activations(p, Role::kGate, true, false, gap, rows));
      if (e.gate) out.push_back(activations(p, Role::kResidual, false, true, gap, rows));
      break;
  }
  return list;
}

}  // namespace trigen
