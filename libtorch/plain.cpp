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

// [H, n, n] of a tap: rounded to x's dtype, zero outside the triangle.
Tensor masked_tap(const Tensor& weight, int64_t tap, const Sizes& sizes, const Options& options,
                  ScalarType dtype) {
  Tensor square = torch::stable::select(
      torch::stable::reshape(weight, Sizes64{sizes.H, sizes.T, sizes.T, sizes.K}), 3, tap);
  square = torch::stable::narrow(square, 1, 0, sizes.n);
  square = torch::stable::narrow(square, 2, 0, sizes.n);
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
  Tensor dw = aten("aten::stack", "", taps, int64_t{3});
  const int64_t beyond = sizes.T - sizes.n;
  if (beyond > 0) dw = padded(dw, {0, 0, 0, beyond, 0, beyond});
  dw = torch::stable::reshape(cast(dw, weight_dtype), weight_size);
  if (!bias) return {dw, torch::stable::new_zeros(dw, Sizes64{0})};
  Tensor db = torch::stable::sum(dy, Sizes64{0, 3});
  if (beyond > 0) db = padded(db, {0, beyond});
  return {dw, torch::stable::reshape(cast(db, weight_dtype), bias_size(weight_size))};
}

}  // namespace trigen::libtorch::plain
