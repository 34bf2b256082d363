#include "check/tensors.h"

#include <algorithm>
#include <cmath>

#include "check/parallel.h"
#include "numerics/newton_schulz.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

// Fills the parts of one tensor that hold numbers; element i of the buffer gets number i of the role's
// stream.
void fill(const Problem& p, const Tensor& t, Rows rows, float scale, uint64_t seed, std::byte* data) {
  const auto stream = static_cast<uint64_t>(t.role);
  auto run = [&](int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i) {
      store_element(t.dtype, data, i, random_value(seed, stream, static_cast<uint64_t>(i), scale));
    }
  };
  if (t.axes == Axes::kRows) {
    run(0, t.elements);
  } else if (t.axes == Axes::kSteps) {
    int64_t at = 0;
    for (const float number : checked_steps(p)) store_element(t.dtype, data, at++, number);
  } else if (t.axes == Axes::kVectors) {
    for (int i = 0; i < scan::kVectors; ++i) {
      const VectorForm& form = t.vectors.of[i];
      for (int64_t h = 0; form.given && h < (form.heads ? p.H : 1); ++h) {
        // decay[0] does not count: alone it stays poison.
        const int64_t first = form.tokens && i == scan::kDecay, count = (form.tokens ? p.T : 1) - first,
                      begin = vector_index(t, h, i, first);
        run(begin, count);
        for (int64_t at = begin; i == scan::kDecay && at < begin + count; ++at)
          store_element(t.dtype, data, at, decay_from(load_element(t.dtype, data, at), p.T));
      }
    }
  } else if (t.axes == Axes::kWeights && p.w == WeightForm::kToeplitz) {
    for (int64_t h = 0; h < p.H; ++h) run(h * t.head, p.T);
  } else if (t.axes == Axes::kWeights) {
    parallel_for(p.H * p.T, 16, [&](int64_t begin, int64_t end) {
      for (int64_t ht = begin; ht < end; ++ht) {
        const int64_t h = ht / p.T;
        const int64_t row = ht % p.T;
        if (row < rows.first || row >= rows.first + rows.count) continue;
        const auto [first, last] = tokens_of_weights(p, row);
        if (first < last) run(weight_index(p, t, h, row, first, 0), (last - first) * p.K);
      }
    });
  } else {
    const bool btd = p.layout == Layout::kBTD;
    Tokens used = used_tokens(p, t, rows);
    used = {used.first - t.first_token, used.last - t.first_token};
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

Tokens used_tokens(const Problem& p, const Tensor& t, Rows rows) {
  if (op_row(p.op).takes(kRowsField) && !has_rows_alone(p.op, t.role)) return tokens_of_rows(p, rows);
  return {t.first_token, t.first_token + t.tokens};
}

HostBuffers make_inputs(const Problem& p, const TensorList& list, uint64_t seed) {
  HostBuffers buffers;
  for (const Tensor& t : list.tensors) {
    auto& buffer = buffers.emplace_back(static_cast<size_t>(t.buffer_bytes()), std::byte{kPoison});
    if (!t.read) continue;
    float scale = 1;
    if (t.axes == Axes::kWeights && makes_rows(p.op) && p.epilogue.act != Activation::kNone) {
      // sums of n products of two uniform numbers have a deviation of scale * sqrt(n) / 3: bring it near 1
      const auto terms = static_cast<double>(sum_terms(p));
      scale = static_cast<float>(std::exp2(std::round(std::log2(3 / std::sqrt(terms)))));
    }
    scale = t.role == Role::kPre ? kPreScale : std::min(scale, 1.0F);
    fill(p, t, list.rows, scale, seed, buffer.data() + t.offset_bytes);
  }
  return buffers;
}

}  // namespace trigen
