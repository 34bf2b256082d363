#include "check/out_of_bounds.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <mutex>

#include "check/parallel.h"
#include "check/text.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

bool all_poison(const std::byte* data, int64_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{kPoison}; });
}

// The first finding of several threads.
class Finding {
 public:
  void report(std::string text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (text_.empty()) text_ = std::move(text);
  }
  std::string take() { return std::move(text_); }

 private:
  std::mutex mutex_;
  std::string text_;
};

std::string find_in_rows(const Problem& p, const Tensor& t, const std::byte* data) {
  for (int64_t i = 0; i < t.elements; ++i)
    if (std::isnan(load_element(t.dtype, data, i))) return place(p, t, i, 0) + " is nan or was never written";
  return "";
}

// The fault of element `at` of dW or D, whose mirror image is `opposite`; null: none.
const char* fault_of_weight(const Problem& p, const Tensor& t, const std::byte* data, int64_t at,
                            int64_t opposite, bool inside) {
  const int64_t size = element_size(t.dtype);
  const float value = load_element(t.dtype, data, at);
  if (inside) return std::isnan(value) ? " is nan or was never written" : nullptr;
  if (p.epilogue.zero_outside) return value == 0 ? nullptr : " is outside the triangle and not zero";
  if (p.epilogue.mirror)
    return std::memcmp(data + at * size, data + opposite * size, static_cast<size_t>(size)) == 0
               ? nullptr
               : " is not the bits of the element mirrored at the diagonal";
  return all_poison(data + at * size, size) ? nullptr : " is outside the triangle and was written";
}

std::string find_in_weights(const Problem& p, const Tensor& t, const std::byte* data) {
  const int64_t size = element_size(t.dtype);
  const auto [rows, columns] = weight_rows(p);
  const bool band = p.w == WeightForm::kBand, toeplitz = p.w == WeightForm::kToeplitz;
  Finding found;
  parallel_for(p.H * rows, 16, [&, rows = rows, columns = columns](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t h = row / rows, time = row % rows, start = h * t.head + time * t.row;
      if (!all_poison(data + (start + columns) * size, (t.row - columns) * size))
        found.report(format("%s: the gap after row h=%" PRId64 " t=%" PRId64 " was written",
                            tensor_of(p.op, t.role)->symbol, h, time));
      for (int64_t i = 0; i < columns; ++i) {
        // What stands there: of a Toeplitz matrix the diagonal that begins at (i, 0), of a band's first rows tokens
        // before the first one.
        const int64_t at = toeplitz ? i : time, column = toeplitz ? 0 : band ? time - p.width + 1 + i : i;
        const int64_t opposite =
            p.epilogue.mirror ? weight_index(p, t, h, column / p.K, time, column % p.K) : 0;
        if (const char* fault = fault_of_weight(p, t, data, start + i, opposite,
                                                column >= 0 && in_triangle(p, at, column / p.K)))
          found.report(place(p, t, h * p.T + at, column) + fault);
      }
    }
  });
  return found.take();
}

std::string find_in_vectors(const Problem& p, const Tensor& t, const std::byte* data) {
  const int64_t size = element_size(t.dtype);
  Finding found;
  for (int64_t i = 0; i < p.H * scan::kVectors; ++i) {
    const int64_t h = i / scan::kVectors, column = i % scan::kVectors, start = vector_index(t, h, column, 0);
    for (int64_t time = 0; time < p.T; ++time)
      if (std::isnan(load_element(t.dtype, data, start + time)))
        found.report(place(p, t, h * p.T + time, column) + " is nan or was never written");
    if (!all_poison(data + (start + p.T) * size, (t.row - p.T) * size))
      found.report(place(p, t, h * p.T + p.T - 1, column) + ": the gap behind it was written");
  }
  return found.take();
}

std::string find_in_activations(const Problem& p, const Tensor& t, const std::byte* data) {
  const int64_t size = element_size(t.dtype);
  const bool btd = p.layout == Layout::kBTD;
  const int64_t outer = btd ? t.tokens : p.D, inner = btd ? p.D : t.tokens;
  Finding found;
  parallel_for(p.B * p.H * outer, std::max<int64_t>(1, 65536 / inner), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / (p.H * outer), h = i / outer % p.H, row = i % outer;
      const int64_t start = b * t.batch + h * t.head + row * t.row;
      for (int64_t e = 0; e < inner; ++e) {
        if (!std::isnan(load_element(t.dtype, data, start + e))) continue;
        const int64_t time = t.first_token + (btd ? row : e), d = btd ? e : row;
        found.report(place(p, t, h * p.T + time, b * p.D + d) + " is nan or was never written");
        break;
      }
      // up to the next head's slice, or the next row
      const int64_t next = btd && p.H > 1 ? (h + 1 < p.H ? t.head : t.row - h * t.head) : t.row;
      if (!all_poison(data + (start + inner) * size, (next - inner) * size))
        found.report(format("%s: the gap after row b=%" PRId64 " h=%" PRId64 " %s=%" PRId64 " was written",
                            to_string(t.role), b, h, btd ? "t" : "d", row));
    }
  });
  return found.take();
}

}  // namespace

std::string place(const Problem& p, const Tensor& t, int64_t row, int64_t column) {
  const int64_t h = row / p.T;
  const char* name = tensor_of(p.op, t.role)->symbol;
  if (t.axes == Axes::kRows) return format("%s[h=%" PRId64 ",t=%" PRId64 "]", name, h, row % p.T);
  if (t.axes == Axes::kVectors)
    return format("%s[h=%" PRId64 ",%s,t=%" PRId64 "]", name, h, kVectorNames[column], row % p.T);
  if (t.axes == Axes::kWeights && p.w == WeightForm::kToeplitz)
    return format("%s[h=%" PRId64 ",t-s=%" PRId64 "]", name, h, row % p.T);
  if (t.axes == Axes::kWeights)
    return format("%s[h=%" PRId64 ",t=%" PRId64 ",s=%" PRId64 ",j=%" PRId64 "]", name, h, row % p.T,
                  column / p.K, column % p.K);
  return format("%s[b=%" PRId64 ",h=%" PRId64 ",%s=%" PRId64 ",d=%" PRId64 "]", name, column / p.D, h,
                transposes(p.op) ? "s" : "t", row % p.T, column % p.D);
}

std::string find_out_of_bounds_write(const Problem& p, const Tensor& t, const std::byte* buffer) {
  if (!all_poison(buffer, t.offset_bytes))
    return format("%s: bytes before its start were written", to_string(t.role));
  if (!all_poison(buffer + t.offset_bytes + t.bytes(), Tensor::kGuardBytes))
    return format("%s: bytes behind its end were written", to_string(t.role));
  const std::byte* data = buffer + t.offset_bytes;
  if (t.axes == Axes::kRows) return find_in_rows(p, t, data);
  if (t.axes == Axes::kWeights) return find_in_weights(p, t, data);
  if (t.axes == Axes::kVectors) return find_in_vectors(p, t, data);
  return find_in_activations(p, t, data);
}

}  // namespace trigen
