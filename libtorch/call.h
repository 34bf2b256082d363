// Shared parts of the operators' implementations: a call's options, the checks of its tensors, and their sizes.
// The texts are those of python/trigen/torch/arguments.py. LibTorch takes an error as an exception and as
// nothing else, so these functions throw.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace trigen::libtorch {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Shape = torch::headeronly::IntHeaderOnlyArrayRef;

// The operators' arguments that are no tensors.
struct Options {
  int64_t pad = 0;
  std::string layout = "btd", fill = "lower";
  int64_t diag = 0;
  std::string activation = "none", math = "default", form = "dense";

  bool btd() const { return layout == "btd"; }
  bool lower() const { return fill == "lower"; }
  bool toeplitz() const { return form == "toeplitz"; }
  bool band() const { return form == "band"; }
};

struct Sizes {
  int64_t B;      // batch
  int64_t H;      // heads
  int64_t n;      // tokens of x, at most T
  int64_t D;      // features of one head
  int64_t K;      // taps
  int64_t T;      // tokens of the weight
  int64_t width;  // of a band, else 0
};

[[noreturn]] void refuse(const std::string& text);
std::string text_of(Shape shape);
// LibTorch writes what went wrong to its log. (Its own macro for this has another name in 2.11 than in 2.13.)
inline void succeed(AOTITorchError status) {
  if (status != 0) refuse("trigen: a call of LibTorch's failed; its log has the reason");
}

Sizes check_forward(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, const MaybeTensor& gate,
                    const MaybeTensor& residual, const Options& options);
Sizes check_grad_input(const Tensor& grad, const Tensor& weight, const MaybeTensor& residual,
                       const Options& options);
Sizes check_grad_weight(const Tensor& grad, const Tensor& x, Shape weight_size, ScalarType weight_dtype,
                        const Options& options);

// Whether the weight's first axis is the heads'.
bool has_heads(Shape weight_size, const Options& options);
// [T], or [heads, T] beside a weight with heads.
std::vector<int64_t> bias_size(Shape weight_size, const Options& options);

// The diagonal of the same triangle that problems accept: beyond the corners everything is inside (the
// corner's), or nothing is (none). A prefix of few tokens meets both.
std::optional<int64_t> effective_diagonal(const Options& options, int64_t tokens);

// a + b: ATen's own sum takes a number that the stable interface cannot pass.
inline Tensor add(const Tensor& a, const Tensor& b) { return torch::stable::subtract(a, b, -1.0); }

}  // namespace trigen::libtorch
