#include "libtorch/call.h"

#include <algorithm>
#include <initializer_list>

namespace trigen::libtorch {
namespace {

constexpr int64_t kMaxCoordinate =
    (int64_t{1} << 31) - (int64_t{1} << 16);  // the largest flattened coordinate that kernels index

const char* name_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
      return "torch.float16";
    case ScalarType::BFloat16:
      return "torch.bfloat16";
    case ScalarType::Float:
      return "torch.float32";
    case ScalarType::Double:
      return "torch.float64";
    default:
      return "another dtype";
  }
}

bool is_short(ScalarType dtype) { return dtype == ScalarType::Half || dtype == ScalarType::BFloat16; }

std::string device_text(const Tensor& tensor) {
  return tensor.is_cuda()  ? "cuda:" + std::to_string(tensor.get_device_index())
         : tensor.is_cpu() ? "cpu"
                           : "another device";
}

void check_word(const char* name, const std::string& value, std::initializer_list<const char*> allowed) {
  std::string list;
  for (const char* word : allowed) {
    if (value == word) return;
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  refuse(std::string(name) + "='" + value + "' is not known; allowed: " + list);
}

void check_words(const Options& options) {
  check_word("layout", options.layout, {"btd", "bdt"});
  check_word("fill", options.fill, {"lower", "upper"});
  check_word("activation", options.activation, {"none", "gelu", "silu"});
  check_word("math", options.math, {"default", "simt", "tf32", "f16x3"});
  check_word("form", options.form, {"dense", "toeplitz", "band"});
  if (options.form != "dense" && (!options.lower() || options.diag != 0))
    refuse("fill='" + options.fill + "' and diagonal=" + std::to_string(options.diag) + " with form='" +
           options.form + "'; allowed: fill='lower' and diagonal=0; form='dense' takes the others");
}

void check_dtypes(const char* name, ScalarType dtype, ScalarType weight_dtype) {
  if (!is_short(dtype) && dtype != ScalarType::Float && dtype != ScalarType::Double)
    refuse(std::string(name) + " has dtype " + name_of(dtype) +
           "; allowed: float16, bfloat16, float32 (and float64, without a kernel)");
  if (weight_dtype == dtype || (weight_dtype == ScalarType::Float && is_short(dtype))) return;
  refuse(std::string("weight has dtype ") + name_of(weight_dtype) + " while " + name + " has " +
         name_of(dtype) + "; allowed beside it: " + name_of(dtype) +
         (is_short(dtype) ? " or torch.float32" : "") + "; cast one of them");
}

void check_device(const char* name, const Tensor& tensor, const Tensor& x, const char* reference) {
  if (device_text(tensor) == device_text(x)) return;
  refuse(std::string(name) + " (shape " + text_of(tensor.sizes()) + ") is on " + device_text(tensor) +
         " while " + reference + " is on " + device_text(x) + "; allowed: one device");
}

void check_like(const char* name, const MaybeTensor& tensor, const Tensor& x, const char* reference = "x") {
  if (!tensor) return;
  if (!std::ranges::equal(tensor->sizes(), x.sizes()))
    refuse(std::string(name) + " has shape " + text_of(tensor->sizes()) + "; allowed: " + reference +
           "'s shape " + text_of(x.sizes()));
  if (tensor->scalar_type() != x.scalar_type())
    refuse(std::string(name) + " has dtype " + name_of(tensor->scalar_type()) + "; allowed: " + reference +
           "'s dtype " + name_of(x.scalar_type()));
  check_device(name, *tensor, x, reference);
}

Sizes check_activations(const Tensor& x, Shape weight, const Options& options, const char* name) {
  const bool dense = !options.toeplitz() && !options.band();
  const std::string shapes = dense            ? "[T, T], [T, T, K] or [heads, T, T, K]"
                             : options.band() ? "[T, width] or [heads, T, width]"
                                              : "[T] or [heads, T]";
  const size_t rank = weight.size(), first = has_heads(weight, options) ? 1 : 0;
  const size_t least = options.toeplitz() ? 1 : 2;
  if (rank - first < least || rank - first > (dense ? 3 : least))
    refuse("weight has shape " + text_of(weight) + (dense ? "" : " with form='" + options.form + "'") +
           "; allowed: " + shapes);
  const int64_t heads = first ? weight[0] : 1, tokens = weight[first];
  const int64_t taps = dense && rank > 2 ? weight[rank - 1] : 1,
                width = options.band() ? weight[rank - 1] : 0;
  if (dense && tokens != weight[first + 1])
    refuse("weight has shape " + text_of(weight) + ": " + std::to_string(tokens) + " output tokens and " +
           std::to_string(weight[first + 1]) + " input tokens; allowed: a square " + shapes);
  if (std::ranges::any_of(weight, [](int64_t size) { return size < 1; }))
    refuse("weight has shape " + text_of(weight) + "; every size must be at least 1");
  if (width > tokens)
    refuse("weight has shape " + text_of(weight) + ": a band of " + std::to_string(width) +
           " tokens while there are " + std::to_string(tokens) + "; allowed: a width of at most " +
           std::to_string(tokens));
  const Shape given = x.sizes();
  const std::string shape = std::string(name) + " has shape " + text_of(given);
  if (given.size() != 3)
    refuse(shape + "; allowed: rank 3, " +
           (options.btd() ? "[batch, tokens, features]" : "[batch, features, tokens]") +
           " (layout=" + options.layout + ")");
  const int64_t batch = given[0], n = given[options.btd() ? 1 : 2], features = given[options.btd() ? 2 : 1];
  if (n > tokens)
    refuse(std::string(name) + " has " + std::to_string(n) + " tokens (shape " + text_of(given) +
           ", layout=" + options.layout + ") while weight has shape " + text_of(weight) +
           "; allowed: at most " + std::to_string(tokens) + " tokens");
  if (n < 1 || features < 1) refuse(shape + "; every size but the batch's must be at least 1");
  if (features % heads != 0)
    refuse(std::string(name) + " has " + std::to_string(features) + " features (shape " + text_of(given) +
           ") while weight has " + std::to_string(heads) + " heads; allowed: a multiple of " +
           std::to_string(heads));
  if (batch * features > kMaxCoordinate || tokens * taps > kMaxCoordinate || heads > kMaxCoordinate)
    refuse(shape + " and weight " + text_of(weight) +
           "; allowed: batch * features, tokens * taps and heads of at most " +
           std::to_string(kMaxCoordinate));
  if (options.pad < 0 || options.pad >= taps)
    refuse("pad=" + std::to_string(options.pad) + " is outside the taps; allowed: 0 to K-1 = " +
           std::to_string(taps - 1) + " (K is weight's last size)");
  if (width > n)
    refuse("weight has shape " + text_of(weight) + ": a band of " + std::to_string(width) + " tokens while " +
           name + " has " + std::to_string(n) + "; allowed: at most " + std::to_string(n) +
           ", weight[..., -" + std::to_string(n) + ":]");
  return {batch, heads, n, features / heads, taps, tokens, width};
}

}  // namespace

void refuse(const std::string& text) { throw std::runtime_error(text); }

std::string text_of(Shape shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

bool has_heads(Shape weight_size, const Options& options) {
  return weight_size.size() == (options.toeplitz() ? 2 : options.band() ? 3 : 4);
}

std::vector<int64_t> bias_size(Shape weight_size, const Options& options) {
  if (has_heads(weight_size, options)) return {weight_size[0], weight_size[1]};
  return {weight_size[0]};
}

std::optional<int64_t> effective_diagonal(const Options& options, int64_t tokens) {
  const int64_t corner = tokens - 1;
  if (options.lower())
    return options.diag < -corner ? std::nullopt : std::optional(std::min(options.diag, corner));
  return options.diag > corner ? std::nullopt : std::optional(std::max(options.diag, -corner));
}

Sizes check_forward(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, const MaybeTensor& gate,
                    const MaybeTensor& residual, const Options& options) {
  check_words(options);
  const Sizes sizes = check_activations(x, weight.sizes(), options, "x");
  check_dtypes("x", x.scalar_type(), weight.scalar_type());
  check_device("weight", weight, x, "x");
  if (bias) {
    const std::vector<int64_t> allowed = bias_size(weight.sizes(), options);
    const bool one_head = allowed.size() == 2 && allowed[0] == 1;  // whose axis a bias may leave out
    if (!std::ranges::equal(bias->sizes(), allowed) &&
        !(one_head && bias->dim() == 1 && bias->size(0) == allowed[1]))
      refuse("bias has shape " + text_of(bias->sizes()) + " while weight has " + text_of(weight.sizes()) +
             "; allowed: " + text_of(allowed));
    if (bias->scalar_type() != weight.scalar_type())
      refuse(std::string("bias has dtype ") + name_of(bias->scalar_type()) + "; allowed: weight's dtype " +
             name_of(weight.scalar_type()));
    check_device("bias", *bias, x, "x");
  }
  check_like("gate", gate, x);
  check_like("residual", residual, x);
  return sizes;
}

Sizes check_grad_input(const Tensor& grad, const Tensor& weight, const MaybeTensor& residual,
                       const Options& options) {
  check_words(options);
  const Sizes sizes = check_activations(grad, weight.sizes(), options, "grad");
  check_dtypes("grad", grad.scalar_type(), weight.scalar_type());
  check_device("weight", weight, grad, "grad");
  check_like("residual", residual, grad, "grad");
  return sizes;
}

Sizes check_grad_weight(const Tensor& grad, const Tensor& x, Shape weight_size, ScalarType weight_dtype,
                        const Options& options) {
  check_words(options);
  const Sizes sizes = check_activations(x, weight_size, options, "x");
  check_dtypes("x", x.scalar_type(), weight_dtype);
  check_like("grad", grad, x);
  return sizes;
}

}  // namespace trigen::libtorch
