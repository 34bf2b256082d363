// The operators' derivatives and their autocast rule in C++, where python/trigen/torch/ops.py has them in
// Python. LibTorch's stable interface has neither, so this library is built against one PyTorch, and loads
// into that one alone (TRIGEN_TORCH_AUTOGRAD).
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <string_view>

namespace {

using at::Tensor;
using c10::string_view;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<Tensor>;

struct Options {
  int64_t pad;
  std::string layout, fill;
  int64_t diag;
  std::string activation, math;
};

using Forward = Tensor(const Tensor&, const Tensor&, const MaybeTensor&, const MaybeTensor&,
                       const MaybeTensor&, int64_t, string_view, string_view, int64_t, string_view,
                       string_view);
using ForwardPre = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const MaybeTensor&,
                                              const MaybeTensor&, const MaybeTensor&, int64_t, string_view,
                                              string_view, int64_t, string_view, string_view);
using GradInput = Tensor(const Tensor&, const Tensor&, const MaybeTensor&, int64_t, string_view, string_view,
                         int64_t, string_view);
using GradWeight = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, c10::SymIntArrayRef,
                                              at::ScalarType, bool, int64_t, string_view, string_view,
                                              int64_t, string_view);

template <class Signature>
const c10::TypedOperatorHandle<Signature>& handle(const char* name) {
  static const auto found = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
  return found;
}

Tensor call_forward(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, const MaybeTensor& gate,
                    const MaybeTensor& residual, const Options& o, string_view activation) {
  return handle<Forward>("trigen::forward")
      .call(x, weight, bias, gate, residual, o.pad, o.layout, o.fill, o.diag, activation, o.math);
}

std::tuple<Tensor, Tensor> call_forward_pre(const Tensor& x, const Tensor& weight, const MaybeTensor& bias,
                                            const MaybeTensor& gate, const MaybeTensor& residual,
                                            const Options& o) {
  return handle<ForwardPre>("trigen::forward_pre")
      .call(x, weight, bias, gate, residual, o.pad, o.layout, o.fill, o.diag, o.activation, o.math);
}

Tensor call_grad_input(const Tensor& grad, const Tensor& weight, const MaybeTensor& residual,
                       const Options& o) {
  return handle<GradInput>("trigen::grad_input")
      .call(grad, weight, residual, o.pad, o.layout, o.fill, o.diag, o.math);
}

std::tuple<Tensor, Tensor> call_grad_weight(const Tensor& grad, const Tensor& x, c10::SymIntArrayRef size,
                                            at::ScalarType dtype, bool bias, const Options& o) {
  return handle<GradWeight>("trigen::grad_weight")
      .call(grad, x, size, dtype, bias, o.pad, o.layout, o.fill, o.diag, o.math);
}

// What autograd keeps of the options.
void keep(AutogradContext* ctx, const Options& o, const MaybeTensor& residual = {}) {
  ctx->saved_data["residual"] = residual.has_value();
  ctx->saved_data["pad"] = o.pad;
  ctx->saved_data["layout"] = o.layout;
  ctx->saved_data["fill"] = o.fill;
  ctx->saved_data["diag"] = o.diag;
  ctx->saved_data["activation"] = o.activation;
  ctx->saved_data["math"] = o.math;
}

Options kept(AutogradContext* ctx) {
  const auto text = [&](const char* name) { return ctx->saved_data[name].toStringRef(); };
  return {ctx->saved_data["pad"].toInt(),  text("layout"),     text("fill"),
          ctx->saved_data["diag"].toInt(), text("activation"), text("math")};
}

Tensor or_none(const MaybeTensor& tensor) { return tensor.value_or(Tensor()); }
MaybeTensor maybe(const Tensor& tensor) { return tensor.defined() ? MaybeTensor(tensor) : std::nullopt; }

// grad_bias alone, for a weight that is frozen: the sum over batch and features, zero beyond a prefix.
Tensor bias_gradient(const Tensor& grad, c10::SymIntArrayRef shape, at::ScalarType dtype, const Options& o) {
  const bool btd = o.layout == "btd";
  const c10::SymInt heads = shape.size() == 2 ? shape[0] : c10::SymInt(1);
  const Tensor wide = grad.scalar_type() == at::kDouble ? grad : grad.to(at::kFloat);
  const Tensor four = btd ? wide.unflatten_symint(2, {heads, c10::SymInt(-1)}).transpose(1, 2)
                          : wide.unflatten_symint(1, {heads, c10::SymInt(-1)}).transpose(2, 3);
  Tensor db = four.sum(at::IntArrayRef({0, 3}));
  db = at::constant_pad_nd_symint(db, {c10::SymInt(0), shape.back() - db.sym_size(1)});
  return db.reshape_symint(shape).to(dtype);
}

// bias[h,t] at every batch and feature of x.
Tensor spread_bias(const Tensor& bias, const Tensor& x, const Options& o) {
  const bool btd = o.layout == "btd";
  const int64_t heads = bias.dim() == 2 ? bias.size(0) : 1;
  const int64_t tokens = x.size(btd ? 1 : 2), features = x.size(btd ? 2 : 1) / heads;
  const Tensor rows = bias.reshape({heads, -1}).narrow(1, 0, tokens).to(x.scalar_type());
  if (btd)
    return rows.t().reshape({1, tokens, heads, 1}).expand({x.size(0), -1, -1, features}).reshape(x.sizes());
  return rows.reshape({1, heads, 1, tokens}).expand({x.size(0), -1, features, -1}).reshape(x.sizes());
}

// grad * act'(pre), differentiable.
Tensor activation_gradient(const Tensor& grad, const Tensor& pre, const std::string& activation) {
  if (activation == "gelu") return at::gelu_backward(grad, pre);
  if (activation == "silu" && at::GradMode::is_enabled()) {  // silu_backward has no derivative of its own
    const Tensor sigmoid = pre.sigmoid();
    return grad * sigmoid * (1 + pre * (1 - sigmoid));
  }
  return activation == "silu" ? at::silu_backward(grad, pre) : grad;
}

Tensor activate(const Tensor& pre, const std::string& activation) {
  if (activation == "gelu") return at::gelu(pre);
  return activation == "silu" ? at::silu(pre) : pre;
}

struct ForwardFunction : torch::autograd::Function<ForwardFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                               const MaybeTensor& bias, const MaybeTensor& gate, const MaybeTensor& residual,
                               const Options& o, bool want_pre) {
    const at::AutoDispatchBelowADInplaceOrView below;
    keep(ctx, o, residual);
    ctx->set_materialize_grads(false);
    Tensor y, pre;
    if (want_pre) {
      std::tie(y, pre) = call_forward_pre(x, weight, bias, gate, residual, o);
    } else {
      y = call_forward(x, weight, bias, gate, residual, o, o.activation);
    }
    ctx->save_for_backward({x, weight, or_none(bias), or_none(gate), pre});
    return want_pre ? variable_list{y, pre} : variable_list{y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Options o = kept(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &gate = saved[3];
    Tensor pre = saved[4], dx, dw, db, dgate, dresidual;
    const Tensor grad = grads[0], grad_pre = grads.size() > 1 ? grads[1] : Tensor();
    if (!grad.defined() && !grad_pre.defined()) return variable_list(7);
    // Autograd counts the tensors that were given.
    const size_t at_bias = 2, at_gate = at_bias + bias.defined();
    const bool needs_bias = bias.defined() && ctx->needs_input_grad(at_bias);
    Tensor dq = grad_pre;
    if (grad.defined()) {
      if (ctx->saved_data["residual"].toBool()) dresidual = grad;
      if (!pre.defined() && (o.activation != "none" || gate.defined()))
        pre = call_forward(x, weight, maybe(bias), {}, {}, o, "none");
      if (gate.defined() && ctx->needs_input_grad(at_gate)) dgate = grad * activate(pre, o.activation);
      dq = activation_gradient(gate.defined() ? grad * gate : grad, pre, o.activation);
      if (grad_pre.defined()) dq = dq + grad_pre;
    }
    if (ctx->needs_input_grad(0)) dx = call_grad_input(dq, weight, {}, o);
    if (ctx->needs_input_grad(1)) {
      std::tie(dw, db) = call_grad_weight(dq, x, weight.sym_sizes(), weight.scalar_type(), needs_bias, o);
      if (!needs_bias) db = Tensor();
    } else if (needs_bias) {
      db = bias_gradient(dq, bias.sym_sizes(), bias.scalar_type(), o);
    }
    return {dx, dw, db, dgate, dresidual, Tensor(), Tensor()};
  }
};

struct GradInputFunction : torch::autograd::Function<GradInputFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& grad, const Tensor& weight,
                        const MaybeTensor& residual, const Options& o) {
    const at::AutoDispatchBelowADInplaceOrView below;
    keep(ctx, o, residual);
    ctx->save_for_backward({grad, weight});
    return call_grad_input(grad, weight, residual, o);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Options o = kept(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &grad = saved[0], &weight = saved[1], &outer = grads[0];
    Tensor dgrad, dweight;
    if (ctx->needs_input_grad(0)) dgrad = call_forward(outer, weight, {}, {}, {}, o, "none");
    if (ctx->needs_input_grad(1))
      dweight =
          std::get<0>(call_grad_weight(grad, outer, weight.sym_sizes(), weight.scalar_type(), false, o));
    return {dgrad, dweight, ctx->saved_data["residual"].toBool() ? outer : Tensor(), Tensor()};
  }
};

struct GradWeightFunction : torch::autograd::Function<GradWeightFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& grad, const Tensor& x,
                               c10::SymIntArrayRef size, at::ScalarType dtype, bool bias, const Options& o) {
    const at::AutoDispatchBelowADInplaceOrView below;
    keep(ctx, o);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({grad, x});
    auto [dw, db] = call_grad_weight(grad, x, size, dtype, bias, o);
    return {dw, db};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Options o = kept(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &grad = saved[0], &x = saved[1], &ddw = grads[0], &ddb = grads[1];
    Tensor dgrad, dx;
    if (ctx->needs_input_grad(0)) {
      if (ddw.defined()) dgrad = call_forward(x, ddw, {}, {}, {}, o, "none");
      if (ddb.defined() && ddb.numel() > 0) {
        const Tensor spread = spread_bias(ddb, x, o);
        dgrad = dgrad.defined() ? dgrad + spread : spread;
      }
    }
    if (ctx->needs_input_grad(1) && ddw.defined()) dx = call_grad_input(grad, ddw, {}, o);
    return {dgrad, dx, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// Whether a derivative is recorded. A tangent is refused: PyTorch would drop it in silence.
bool wanted(std::initializer_list<const Tensor*> tensors,
            std::initializer_list<const MaybeTensor*> more = {}) {
  const bool enabled = at::GradMode::is_enabled();
  bool found = false;
  const auto look = [&](const Tensor& tensor) {
    found = found || (enabled && tensor.requires_grad());
    TORCH_CHECK_NOT_IMPLEMENTED(
        !tensor._fw_grad(0).defined(),
        "torch.ops.trigen has no forward-mode derivative; allowed: trigen.torch.triangular_conv1d and the "
        "modules, outside torch.compile");
  };
  for (const Tensor* tensor : tensors) look(*tensor);
  for (const MaybeTensor* tensor : more)
    if (*tensor) look(**tensor);
  return found;
}

Options options_of(int64_t pad, string_view layout, string_view fill, int64_t diag, string_view activation,
                   string_view math) {
  return {pad, std::string(layout), std::string(fill), diag, std::string(activation), std::string(math)};
}

Tensor forward(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, const MaybeTensor& gate,
               const MaybeTensor& residual, int64_t pad, string_view layout, string_view fill, int64_t diag,
               string_view activation, string_view math) {
  const Options o = options_of(pad, layout, fill, diag, activation, math);
  if (wanted({&x, &weight}, {&bias, &gate, &residual}))
    return ForwardFunction::apply(x, weight, bias, gate, residual, o, false)[0];
  const at::AutoDispatchBelowADInplaceOrView below;
  return call_forward(x, weight, bias, gate, residual, o, o.activation);
}

std::tuple<Tensor, Tensor> forward_pre(const Tensor& x, const Tensor& weight, const MaybeTensor& bias,
                                       const MaybeTensor& gate, const MaybeTensor& residual, int64_t pad,
                                       string_view layout, string_view fill, int64_t diag,
                                       string_view activation, string_view math) {
  const Options o = options_of(pad, layout, fill, diag, activation, math);
  if (wanted({&x, &weight}, {&bias, &gate, &residual})) {
    const variable_list both = ForwardFunction::apply(x, weight, bias, gate, residual, o, true);
    return {both[0], both[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return call_forward_pre(x, weight, bias, gate, residual, o);
}

Tensor grad_input(const Tensor& grad, const Tensor& weight, const MaybeTensor& residual, int64_t pad,
                  string_view layout, string_view fill, int64_t diag, string_view math) {
  const Options o = options_of(pad, layout, fill, diag, "none", math);
  if (wanted({&grad, &weight}, {&residual})) return GradInputFunction::apply(grad, weight, residual, o);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call_grad_input(grad, weight, residual, o);
}

std::tuple<Tensor, Tensor> grad_weight(const Tensor& grad, const Tensor& x, c10::SymIntArrayRef size,
                                       at::ScalarType dtype, bool bias, int64_t pad, string_view layout,
                                       string_view fill, int64_t diag, string_view math) {
  const Options o = options_of(pad, layout, fill, diag, "none", math);
  if (wanted({&grad, &x})) {
    const variable_list both = GradWeightFunction::apply(grad, x, size, dtype, bias, o);
    return {both[0], both[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return call_grad_weight(grad, x, size, dtype, bias, o);
}

// ---- autocast: x, gate and residual take its dtype; weight and bias stay float32, which kernels round ----

template <c10::DeviceType kDevice>
struct Autocast {
  static Tensor cast(const Tensor& tensor, at::ScalarType keep = at::kDouble) {
    const at::ScalarType dtype = at::autocast::get_autocast_dtype(kDevice), own = tensor.scalar_type();
    const bool as_it_is = !tensor.is_floating_point() || own == dtype || own == at::kDouble || own == keep;
    return as_it_is ? tensor : tensor.to(dtype);
  }
  static MaybeTensor cast(const MaybeTensor& tensor, at::ScalarType keep = at::kDouble) {
    return tensor ? MaybeTensor(cast(*tensor, keep)) : tensor;
  }
  static bool casts(const Tensor& x) {
    const at::ScalarType dtype = at::autocast::get_autocast_dtype(kDevice);
    return (dtype == at::kHalf || dtype == at::kBFloat16) && x.scalar_type() != at::kDouble;
  }

  static Tensor forward(const Tensor& x, const Tensor& weight, const MaybeTensor& bias,
                        const MaybeTensor& gate, const MaybeTensor& residual, int64_t pad, string_view layout,
                        string_view fill, int64_t diag, string_view activation, string_view math) {
    const c10::impl::ExcludeDispatchKeyGuard off(c10::autocast_dispatch_keyset);
    const auto& op = handle<Forward>("trigen::forward");
    if (!casts(x)) return op.call(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math);
    return op.call(cast(x), cast(weight, at::kFloat), cast(bias, at::kFloat), cast(gate), cast(residual), pad,
                   layout, fill, diag, activation, math);
  }

  static std::tuple<Tensor, Tensor> forward_pre(const Tensor& x, const Tensor& weight,
                                                const MaybeTensor& bias, const MaybeTensor& gate,
                                                const MaybeTensor& residual, int64_t pad, string_view layout,
                                                string_view fill, int64_t diag, string_view activation,
                                                string_view math) {
    const c10::impl::ExcludeDispatchKeyGuard off(c10::autocast_dispatch_keyset);
    const auto& op = handle<ForwardPre>("trigen::forward_pre");
    if (!casts(x)) return op.call(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math);
    return op.call(cast(x), cast(weight, at::kFloat), cast(bias, at::kFloat), cast(gate), cast(residual), pad,
                   layout, fill, diag, activation, math);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(trigen, Autograd, library) {
  library.impl("forward", TORCH_FN(forward));
  library.impl("forward_pre", TORCH_FN(forward_pre));
  library.impl("grad_input", TORCH_FN(grad_input));
  library.impl("grad_weight", TORCH_FN(grad_weight));
}

TORCH_LIBRARY_IMPL(trigen, AutocastCUDA, library) {
  library.impl("forward", TORCH_FN(Autocast<c10::DeviceType::CUDA>::forward));
  library.impl("forward_pre", TORCH_FN(Autocast<c10::DeviceType::CUDA>::forward_pre));
}

TORCH_LIBRARY_IMPL(trigen, AutocastCPU, library) {
  library.impl("forward", TORCH_FN(Autocast<c10::DeviceType::CPU>::forward));
  library.impl("forward_pre", TORCH_FN(Autocast<c10::DeviceType::CPU>::forward_pre));
}
