#include "libtorch/plain.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace trigen::libtorch::plain {
namespace {

using Sizes64 = std::vector<int64_t>;

// An operation of ATen's by its name, for those that the stable interface has no function for.
template <class... Arguments>
Tensor aten(const char* name, const char* overload, const Arguments&... arguments) {
  std::array<StableIValue, sizeof...(Arguments)> stack{torch::stable::detail::from(arguments)...};
  succeed(torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

ScalarType compute_dtype(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16 ? ScalarType::Float : dtype;
}

// Zeros around the last axes, or less of them: (before, after) of the last one first.
Tensor padded(Tensor tensor, const Sizes64& amounts) { return torch::stable::pad(tensor, amounts); }

Tensor narrowed(Tensor tensor, int64_t axis, int64_t begin, int64_t length) {
  return torch::stable::narrow(tensor, axis, begin, length);
}

Tensor cast(const Tensor& tensor, ScalarType dtype) { return torch::stable::to(tensor, dtype); }

// [B, H, n, D] in the dtype that sums are made in.
Tensor heads_first(const Tensor& x, const Sizes& sizes, const Options& options) {
  const Tensor wide = cast(x, compute_dtype(x.scalar_type()));
  if (options.btd())
    return torch::stable::transpose(torch::stable::reshape(wide, Sizes64{sizes.B, sizes.n, sizes.H, sizes.D}),
                                    1, 2);
  return torch::stable::transpose(torch::stable::reshape(wide, Sizes64{sizes.B, sizes.H, sizes.D, sizes.n}),
                                  2, 3);
}

// Its inverse, contiguous.
Tensor heads_last(const Tensor& y, const Sizes& sizes, const Options& options, ScalarType dtype) {
  const int64_t features = sizes.H * sizes.D;
  const Tensor back =
      options.btd()
          ? torch::stable::reshape(torch::stable::transpose(y, 1, 2), Sizes64{sizes.B, sizes.n, features})
          : torch::stable::reshape(torch::stable::transpose(y, 2, 3), Sizes64{sizes.B, features, sizes.n});
  return torch::stable::contiguous(cast(back, dtype));
}

Tensor triangle(const Tensor& square, const Options& options) {
  return aten(options.lower() ? "aten::tril" : "aten::triu", "", square, options.diag);
}

// Rows of a matrix [H, n, n] that lie as a band does, [H, n, width], and back: each begins one element later.
Tensor from_band(const Tensor& rows, int64_t n, int64_t width) {
  const int64_t heads = rows.size(0), row = width + n;
  Tensor flat = torch::stable::reshape(padded(rows, {0, n}), Sizes64{heads, n * row});
  flat = narrowed(flat, 1, width - 1, n * (row - 1));
  return narrowed(torch::stable::reshape(flat, Sizes64{heads, n, row - 1}), 2, 0, n);
}
Tensor to_band(const Tensor& square, int64_t n, int64_t width) {
  const int64_t heads = square.size(0), row = width + n - 1;
  Tensor flat = torch::stable::reshape(padded(square, {width - 1, 0}), Sizes64{heads, n * row});
  flat = torch::stable::reshape(padded(flat, {0, n}), Sizes64{heads, n, row + 1});
  return narrowed(flat, 2, 0, width);
}

// [H, T, T, K] as it lies, or [H, n, n, 1] of the numbers that stand for it: of a Toeplitz matrix a band of n tokens with
// the same numbers in each row.
Tensor in_full(const Tensor& weight, const Sizes& sizes, const Options& options) {
  if (options.toeplitz()) {
    Tensor one = narrowed(torch::stable::reshape(weight, Sizes64{sizes.H, 1, sizes.T}), 2, 0, sizes.n);
    one = aten("aten::flip", "", one, Sizes64{2});
    const Tensor rows = aten("aten::expand", "", one, Sizes64{sizes.H, sizes.n, sizes.n}, false);
    return torch::stable::unsqueeze(from_band(rows, sizes.n, sizes.n), 3);
  }
  if (options.band()) {
    const Tensor rows = torch::stable::reshape(weight, Sizes64{sizes.H, sizes.T, sizes.width});
    return torch::stable::unsqueeze(from_band(narrowed(rows, 1, 0, sizes.n), sizes.n, sizes.width), 3);
  }
  return torch::stable::reshape(weight, Sizes64{sizes.H, sizes.T, sizes.T, sizes.K});
}

// [H, n, n] of a tap: rounded to x's dtype, zero outside the triangle.
Tensor masked_tap(const Tensor& weight, int64_t tap, const Sizes& sizes, const Options& options,
                  ScalarType dtype) {
  Tensor square = torch::stable::select(in_full(weight, sizes, options), 3, tap);
  square = narrowed(narrowed(square, 1, 0, sizes.n), 2, 0, sizes.n);
  return triangle(cast(cast(square, dtype), compute_dtype(dtype)), options);
}

// Feature d of the result is feature d + shift of x, or zero.
Tensor shifted(const Tensor& x, int64_t shift) { return shift == 0 ? x : padded(x, {-shift, shift}); }

// The sum over taps of W_j times the shifted x, as one product over [taps * tokens].
Tensor product(const Tensor& x, const Tensor& weight, const Sizes& sizes, const Options& options,
               ScalarType dtype, bool transposed) {
  std::vector<Tensor> squares, columns;
  for (int64_t tap = 0; tap < sizes.K; ++tap) {
    const int64_t shift = transposed ? options.pad - tap : tap - options.pad;
    if (std::abs(shift) >= sizes.D) continue;  // it reads padding alone
    const Tensor square = masked_tap(weight, tap, sizes, options, dtype);
    squares.push_back(transposed ? torch::stable::transpose(square, 1, 2) : square);
    columns.push_back(shifted(x, shift));
  }
  if (squares.size() == 1) return torch::stable::matmul(squares[0], columns[0]);
  return torch::stable::matmul(aten("aten::cat", "", squares, int64_t{2}),
                               aten("aten::cat", "", columns, int64_t{2}));
}

Tensor activate(const Tensor& q, const std::string& activation) {
  if (activation == "gelu") return aten("aten::gelu", "", q, std::string("none"));
  return activation == "silu" ? aten("aten::silu", "", q) : q;
}

}  // namespace

std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& weight, const MaybeTensor& bias,
                                  const MaybeTensor& gate, const MaybeTensor& residual, const Sizes& sizes,
                                  const Options& options) {
  const ScalarType dtype = x.scalar_type();
  Tensor q = product(heads_first(x, sizes, options), weight, sizes, options, dtype, false);
  if (bias) {
    Tensor rows = torch::stable::reshape(*bias, Sizes64{sizes.H, sizes.T});
    rows = torch::stable::narrow(rows, 1, 0, sizes.n);
    q = add(q, torch::stable::unsqueeze(cast(rows, q.scalar_type()), -1));
  }
  Tensor y = activate(q, options.activation);
  if (gate) y = aten("aten::mul", "Tensor", y, heads_first(*gate, sizes, options));
  if (residual) y = add(y, heads_first(*residual, sizes, options));
  return {heads_last(y, sizes, options, dtype), heads_last(q, sizes, options, dtype)};
}

Tensor grad_input(const Tensor& grad, const Tensor& weight, const MaybeTensor& residual, const Sizes& sizes,
                  const Options& options) {
  Tensor dx = product(heads_first(grad, sizes, options), weight, sizes, options, grad.scalar_type(), true);
  if (residual) dx = add(dx, heads_first(*residual, sizes, options));
  return heads_last(dx, sizes, options, grad.scalar_type());
}

std::pair<Tensor, Tensor> grad_weight(const Tensor& grad, const Tensor& x, Shape weight_size,
                                      ScalarType weight_dtype, bool bias, const Sizes& sizes,
                                      const Options& options) {
  const Tensor dy = heads_first(grad, sizes, options), xs = heads_first(x, sizes, options);
  // [H, n, B * D]: the sum over batch and features is the product's.
  const auto flat = [&](const Tensor& four) {
    return torch::stable::reshape(aten("aten::permute", "", four, Sizes64{1, 2, 0, 3}),
                                  Sizes64{sizes.H, sizes.n, sizes.B * sizes.D});
  };
  std::vector<Tensor> taps;
  for (int64_t tap = 0; tap < sizes.K; ++tap) {
    const int64_t shift = tap - options.pad;
    if (std::abs(shift) >= sizes.D) {
      taps.push_back(torch::stable::new_zeros(dy, Sizes64{sizes.H, sizes.n, sizes.n}));
    } else {
      taps.push_back(
          triangle(torch::stable::matmul(flat(dy), torch::stable::transpose(flat(shifted(xs, shift)), 1, 2)),
                   options));
    }
  }
  const int64_t beyond = sizes.T - sizes.n;
  Tensor dw;
  if (options.toeplitz()) {
    const Tensor sums = torch::stable::sum(to_band(taps[0], sizes.n, sizes.n), Sizes64{1});
    dw = padded(aten("aten::flip", "", sums, Sizes64{1}), {0, beyond});
  } else if (options.band()) {
    dw = padded(to_band(taps[0], sizes.n, sizes.width), {0, 0, 0, beyond});
  } else {
    dw = padded(aten("aten::stack", "", taps, int64_t{3}), {0, 0, 0, beyond, 0, beyond});
  }
  dw = torch::stable::reshape(cast(dw, weight_dtype), weight_size);
  if (!bias) return {dw, torch::stable::new_zeros(dw, Sizes64{0})};
  Tensor db = torch::stable::sum(dy, Sizes64{0, 3});
  if (beyond > 0) db = padded(db, {0, beyond});
  return {dw, torch::stable::reshape(cast(db, weight_dtype), bias_size(weight_size, options))};
}

}  // namespace trigen::libtorch::plain
