#include "check/tensors.h"

#include <algorithm>
#include <cmath>

#include "check/numbers.h"
#include "check/parallel.h"

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

// Fills the parts of one tensor that hold numbers; element i of the buffer gets number i of the role's
// stream.
void fill(const Problem& p, const Tensor& t, Rows rows, float scale, uint64_t seed, std::byte* data) {
  const auto stream = static_cast<uint64_t>(t.role);
  auto run = [&](int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i) {
      store_element(t.dtype, data, i, random_value(seed, stream, static_cast<uint64_t>(i), scale));
    }
  };
  if (t.role == Role::kBias) {
    run(0, t.elements);
  } else if (t.role == Role::kW) {
    parallel_for(p.H * p.T, 16, [&](int64_t begin, int64_t end) {
      for (int64_t ht = begin; ht < end; ++ht) {
        const int64_t h = ht / p.T;
        const int64_t row = ht % p.T;
        if (row < rows.first || row >= rows.first + rows.count) continue;
        int64_t first = 0;
        int64_t last = p.T;  // of s
        if (p.fill == Fill::kLower) last = std::clamp<int64_t>(row + p.diag + 1, 0, p.T);
        if (p.fill == Fill::kUpper) first = std::clamp<int64_t>(row + p.diag, 0, p.T);
        if (first < last) run(weight_index(p, t, h, row, first, 0), (last - first) * p.K);
      }
    });
  } else {
    const bool btd = p.layout == Layout::kBTD;
    const Tokens used =
        p.op == Op::kDecode && t.role == Role::kX ? tokens_of_rows(p, rows) : Tokens{0, t.tokens};
    const int64_t outer = btd ? t.tokens : p.D;
    const int64_t inner = btd ? p.D : t.tokens;
    parallel_for(p.B * p.H * outer, std::max<int64_t>(1, 65536 / inner), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / (p.H * outer);
        const int64_t h = i / outer % p.H;
        if (btd && (i % outer < used.first || i % outer >= used.last)) continue;
        const int64_t start = b * t.batch + h * t.head + i % outer * t.row;
        run(start + (btd ? 0 : used.first), btd ? inner : used.last - used.first);
      }
    });
  }
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
  }
  return list;
}

HostBuffers make_inputs(const Problem& p, const TensorList& list, uint64_t seed) {
  HostBuffers buffers;
  for (const Tensor& t : list.tensors) {
    auto& buffer = buffers.emplace_back(static_cast<size_t>(t.buffer_bytes()), std::byte{kPoison});
    if (!t.read) continue;
    float scale = 1;
    if (t.role == Role::kW && (p.op == Op::kForward || p.op == Op::kDecode) &&
        p.epilogue.act != Activation::kNone) {
      // sums of n products of two uniform numbers have a deviation of scale * sqrt(n) / 3: bring it near 1
      const double terms = static_cast<double>(p.T) * static_cast<double>(p.K);
      scale = static_cast<float>(std::exp2(std::round(std::log2(3 / std::sqrt(terms)))));
    }
    fill(p, t, list.rows, std::min(scale, 1.0F), seed, buffer.data() + t.offset_bytes);
  }
  return buffers;
}

}  // namespace trigen
