#include "numerics/tensors.h"

#include <algorithm>

namespace trigen {
namespace {

// Strides of an activation tensor.
void lay_out(const Problem& p, Tensor& t, int64_t align, int gap) {
  const int64_t unit = std::max<int64_t>(1, align / element_size(p.dtype));
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
}

Tensor tensor_from(const Problem& p, const OpTensor& row, int gap, Rows rows) {
  Tensor t;
  t.role = row.role;
  t.axes = row.axes;
  t.dtype = row.axes == Axes::kActivations ? p.dtype : row.axes == Axes::kSteps ? DType::kF32 : p.wdtype;
  t.read = row.is_read(p.epilogue);
  t.written = row.written;
  int64_t align = row.axes == Axes::kSteps ? element_size(t.dtype) : p.walign;
  if (row.axes == Axes::kActivations) {
    const bool few = has_rows_alone(p.op, row.role);
    align = few && p.layout == Layout::kBDT ? element_size(p.dtype) : p.align;
    t.first_token = few ? rows.first : 0;
    t.tokens = few ? rows.count : p.T;
    lay_out(p, t, align, gap);
  } else if (row.axes == Axes::kWeights) {
    const int64_t unit = std::max<int64_t>(1, align / element_size(p.wdtype));
    const WeightRows rows = weight_rows(p);
    t.row = round_up(rows.elements, unit) + gap * unit;
    t.head = rows.count * t.row;
    t.elements = p.H * t.head;
  } else if (row.axes == Axes::kVectors) {
    const int64_t unit = std::max<int64_t>(1, align / element_size(p.wdtype));
    t.row = round_up(p.T, unit) + gap * unit;
    t.head = scan::kVectors * t.row;
    t.elements = p.H * t.head;
    if (!row.written) t.vectors = vector_forms(p);
  } else if (row.axes == Axes::kSteps) {
    t.elements = step_numbers(p);
  } else {
    t.head = p.T;
    t.elements = p.H * p.T;
  }
  t.offset_bytes = align >= 16 ? 0 : align;
  return t;
}

}  // namespace

VectorForms vector_forms(const Problem& p) {
  constexpr VectorForm kWhole, kLeftOut{false}, kOfHeads{true, true, false}, kOfTokens{true, false, true},
      kNumber{true, false, false};
  constexpr VectorForms kForms[] = {
      {{kWhole, kWhole, kWhole, kWhole}},
      {{kLeftOut, kWhole, kOfHeads, kLeftOut}, -1, 1},
      {{kWhole, kOfTokens, kWhole, kLeftOut}, -1, 1},
      {{kOfHeads, kLeftOut, kNumber, kOfTokens}},
  };
  const bool measured = p.B * p.H * p.T * p.D >= 1 << 20;
  VectorForms forms = kForms[measured ? 0 : (p.B + p.H + p.T + p.D) % 4];
  if (forms.high != 0) {  // on both sides of the decays' middle (decay_from)
    forms.low = (decay_from(-1, p.T) - 1) / 2;
    forms.high = (3 + decay_from(1, p.T)) / 4;
  }
  return forms;
}

const Tensor* TensorList::find(Role role) const {
  for (const Tensor& t : tensors) {
    if (t.role == role) return &t;
  }
  return nullptr;
}

const Tensor& TensorList::output() const {
  return *std::find_if(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.written; });
}

TensorList tensors_of(const Problem& p, int gap, std::optional<Rows> named) {
  TensorList list;
  list.rows = named && op_row(p.op).takes(kRowsField) ? *named : longest_rows(p);
  for (const OpTensor& row : op_row(p.op).list())
    if (row.is_in(p.epilogue)) list.tensors.push_back(tensor_from(p, row, gap, list.rows));
  return list;
}

}  // namespace trigen
