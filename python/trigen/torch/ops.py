"""The operators `trigen::forward`, `trigen::forward_pre`, `trigen::grad_input` and `trigen::grad_weight` (torch.library).

    forward(x, weight, bias?, gate?, residual?, ...) -> y            y = act(W x + bias) * gate + residual
    forward_pre(same)                                -> (y, pre)     also the value before the activation, for backward
    grad_input(grad, weight, residual?, ...)         -> dx           dx = W^T grad + residual
    grad_weight(grad, x, weight_size, ...)           -> (dW, dbias)  dW is exactly zero outside the triangle

Shapes: arguments.py. Outputs are contiguous and alias nothing. Every operator has a CUDA implementation (cuda.py), one in plain
torch for every other device (plain.py), a fake one, and a derivative made of the same operators, so second derivatives are
right too. `forward` computes the value before the activation again in its backward pass; `forward_pre` keeps it.

Autocast: x, gate and residual are cast to autocast's dtype; weight and bias stay float32 (kernels cast at load; gradients are
float32 then).
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from .. import recording
from . import arguments, cuda, native, plain, problems

_OPTIONS = 'int pad=0, str layout="btd", str fill="lower", int diag=0'
_FORWARD = (
    f"(Tensor x, Tensor weight, Tensor? bias=None, Tensor? gate=None, Tensor? residual=None, {_OPTIONS}, "
    'str activation="none", str math="default")'
)

LIBRARY = torch.library.Library("trigen", "FRAGMENT" if native.operators else "DEF")
SCHEMAS = (
    f"forward{_FORWARD} -> Tensor",
    f"forward_pre{_FORWARD} -> (Tensor, Tensor)",
    f'grad_input(Tensor grad, Tensor weight, Tensor? residual=None, {_OPTIONS}, str math="default") -> Tensor',
    f"grad_weight(Tensor grad, Tensor x, SymInt[] weight_size, ScalarType weight_dtype, bool bias=False, {_OPTIONS}, "
    'str math="default") -> (Tensor, Tensor)',
)
if not native.operators:
    for _schema in SCHEMAS:
        LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))

_forward = torch.ops.trigen.forward.default
_forward_pre = torch.ops.trigen.forward_pre.default
_grad_input = torch.ops.trigen.grad_input.default
_grad_weight = torch.ops.trigen.grad_weight.default


# ---- plain torch: CPU and every other device without kernels -------------------------------------------------------------


def _plain_forward(
    x,
    weight,
    bias=None,
    gate=None,
    residual=None,
    pad=0,
    layout="btd",
    fill="lower",
    diag=0,
    activation="none",
    math="default",
):
    sizes = arguments.check_forward(x, weight, bias, gate, residual, pad, layout, fill, activation, math)
    if recording.active is not None:
        problems.record(
            problems.forward(sizes, x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math, False)
        )
    return plain.forward(x, weight, bias, gate, residual, sizes, pad, layout, fill, diag, activation)[0]


def _plain_forward_pre(
    x,
    weight,
    bias=None,
    gate=None,
    residual=None,
    pad=0,
    layout="btd",
    fill="lower",
    diag=0,
    activation="none",
    math="default",
):
    sizes = arguments.check_forward(x, weight, bias, gate, residual, pad, layout, fill, activation, math)
    if recording.active is not None:
        problems.record(
            problems.forward(sizes, x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math, True)
        )
    y, pre = plain.forward(x, weight, bias, gate, residual, sizes, pad, layout, fill, diag, activation)
    return y, pre.clone() if pre.data_ptr() == y.data_ptr() else pre


def _plain_grad_input(grad, weight, residual=None, pad=0, layout="btd", fill="lower", diag=0, math="default"):
    sizes = arguments.check_grad_input(grad, weight, residual, pad, layout, fill, math)
    if recording.active is not None:
        problems.record(problems.grad_input(sizes, grad, weight, residual, pad, layout, fill, diag, math))
    return plain.grad_input(grad, weight, residual, sizes, pad, layout, fill, diag)


def plain_grad_epilogue(grad, pre, gate, activation):
    if recording.active is not None:
        tensors = (grad, pre, gate)  # a GPU copies what its kernel cannot read, and then looks again
        problems.record(
            problems.grad_epilogue(
                *(
                    tensor
                    if tensor is None or problems.activation_strides(tensor, tensor.shape[2], "btd")
                    else tensor.contiguous()
                    for tensor in tensors
                ),
                activation,
            )
        )
    return plain.grad_epilogue(grad, pre, gate, activation)


def _plain_grad_weight(
    grad, x, weight_size, weight_dtype, bias=False, pad=0, layout="btd", fill="lower", diag=0, math="default"
):
    sizes = arguments.check_grad_weight(grad, x, weight_size, weight_dtype, pad, layout, fill, math)
    if recording.active is not None:
        problems.record(problems.grad_weight(sizes, grad, x, weight_dtype, bias, pad, layout, fill, diag, math))
    return plain.grad_weight(grad, x, weight_size, weight_dtype, bias, sizes, pad, layout, fill, diag)


# ---- fake: shapes and strides only --------------------------------------------------------------------------------------


def _fake_forward(
    x,
    weight,
    bias=None,
    gate=None,
    residual=None,
    pad=0,
    layout="btd",
    fill="lower",
    diag=0,
    activation="none",
    math="default",
):
    arguments.check_forward(x, weight, bias, gate, residual, pad, layout, fill, activation, math)
    return x.new_empty(x.shape)


def _fake_forward_pre(x, *args, **kwargs):
    return _fake_forward(x, *args, **kwargs), x.new_empty(x.shape)


def _fake_grad_input(grad, weight, residual=None, pad=0, layout="btd", fill="lower", diag=0, math="default"):
    arguments.check_grad_input(grad, weight, residual, pad, layout, fill, math)
    return grad.new_empty(grad.shape)


def _fake_grad_weight(
    grad, x, weight_size, weight_dtype, bias=False, pad=0, layout="btd", fill="lower", diag=0, math="default"
):
    arguments.check_grad_weight(grad, x, weight_size, weight_dtype, pad, layout, fill, math)
    dw = x.new_empty(weight_size, dtype=weight_dtype)
    return dw, dw.new_empty(arguments.bias_size(weight_size) if bias else [0])


# ---- derivatives --------------------------------------------------------------------------------------------------------


def forward_gradients(needs, grad, grad_pre, x, weight, bias, gate, pre, pad, layout, fill, diag, activation, math):
    """Gradients of (x, weight, bias, gate, residual); needs says which are wanted, the others are None.

    grad is dL/dy; grad_pre is dL/dpre or None; pre is the value before the activation, or None: then it is computed again where
    an activation or a gate needs it. bias and gate are None where the operator had none.
    """
    dx = dw = db = dgate = dresidual = None
    if grad is None:  # only pre was used
        dq = grad_pre
    else:
        dresidual = grad if needs[4] else None
        if pre is None and (activation != "none" or needs[3]):
            pre = _forward(x, weight, bias, None, None, pad, layout, fill, diag, "none", math)
        if needs[3]:
            dgate = grad * plain.activate(pre, activation)
        dq = grad if gate is None else grad * gate
        dq = plain.activation_gradient(dq, pre, activation)
        if grad_pre is not None:
            dq = dq + grad_pre
    if needs[0]:
        dx = _grad_input(dq, weight, None, pad, layout, fill, diag, math)
    if needs[1]:
        dw, db = _grad_weight(dq, x, weight.shape, weight.dtype, needs[2], pad, layout, fill, diag, math)
    elif needs[2]:
        db = bias_gradient(dq, bias.shape, bias.dtype, layout)
    return dx, dw, db if needs[2] else None, dgate, dresidual


def bias_gradient(grad, shape, dtype, layout):
    """grad_bias of that shape and dtype alone, for a weight that is frozen: the sum over batch and features, zero beyond a prefix."""
    heads = shape[0] if len(shape) == 2 else 1
    grad = (
        grad.unflatten(2, (heads, -1)).transpose(1, 2)
        if layout == "btd"
        else grad.unflatten(1, (heads, -1)).transpose(2, 3)
    )
    db = grad.to(plain.compute_dtype(grad.dtype)).sum((0, 3))
    db = torch.nn.functional.pad(db, (0, shape[-1] - db.shape[-1]))
    return db.reshape(shape).to(dtype)


def _needs(ctx, count):
    """needs_input_grad for the first arguments; PyTorch leaves out trailing ones that have their default."""
    return (tuple(ctx.needs_input_grad) + (False,) * count)[:count]


def _setup_forward(ctx, inputs, output):
    x, weight, bias, gate, _, *ctx.options = inputs
    pre = output[1] if isinstance(output, tuple) else None
    ctx.save_for_backward(x, weight, bias, gate, pre)
    ctx.set_materialize_grads(False)


def _backward_forward(ctx, grad, grad_pre=None):
    if grad is None and grad_pre is None:
        return (None,) * 11
    x, weight, bias, gate, pre = ctx.saved_tensors
    gradients = forward_gradients(_needs(ctx, 5), grad, grad_pre, x, weight, bias, gate, pre, *ctx.options)
    return (*gradients, None, None, None, None, None, None)


def _setup_grad_input(ctx, inputs, output):
    grad, weight, _, *ctx.options = inputs
    ctx.save_for_backward(grad, weight)
    ctx.set_materialize_grads(False)


def _backward_grad_input(ctx, ddx):
    if ddx is None:
        return (None,) * 8
    grad, weight = ctx.saved_tensors
    pad, layout, fill, diag, math = ctx.options
    needs = _needs(ctx, 3)
    dgrad = dweight = None
    if needs[0]:
        dgrad = _forward(ddx, weight, None, None, None, pad, layout, fill, diag, "none", math)
    if needs[1]:
        dweight, _ = _grad_weight(grad, ddx, weight.shape, weight.dtype, False, pad, layout, fill, diag, math)
    return dgrad, dweight, ddx if needs[2] else None, None, None, None, None, None


def _setup_grad_weight(ctx, inputs, output):
    grad, x, _, _, _, *ctx.options = inputs
    ctx.save_for_backward(grad, x)
    ctx.set_materialize_grads(False)


def _backward_grad_weight(ctx, ddw, ddb):
    grad, x = ctx.saved_tensors
    pad, layout, fill, diag, math = ctx.options
    dgrad = dx = None
    if ctx.needs_input_grad[0]:
        if ddw is not None:
            dgrad = _forward(x, ddw, None, None, None, pad, layout, fill, diag, "none", math)
        if ddb is not None and ddb.numel() > 0:
            spread = _spread_bias(ddb, x, layout)
            dgrad = spread if dgrad is None else dgrad + spread
    if ctx.needs_input_grad[1] and ddw is not None:
        dx = _grad_input(grad, ddw, None, pad, layout, fill, diag, math)
    return dgrad, dx, None, None, None, None, None, None, None, None


def _spread_bias(bias, x, layout):
    """bias[h,t] at every batch and feature of x."""
    heads = bias.shape[0] if bias.dim() == 2 else 1
    tokens = x.shape[1] if layout == "btd" else x.shape[2]
    features = (x.shape[2] if layout == "btd" else x.shape[1]) // heads
    bias = bias.reshape(heads, -1)[:, :tokens].to(x.dtype)
    if layout == "btd":
        return bias.t().reshape(1, tokens, heads, 1).expand(x.shape[0], -1, -1, features).reshape(x.shape)
    return bias.reshape(1, heads, 1, tokens).expand(x.shape[0], -1, features, -1).reshape(x.shape)


# ---- autocast -----------------------------------------------------------------------------------------------------------


def autocast_tensors(dtype, x, weight, bias, gate, residual):
    """The autocast rule; float64 and non-floating tensors stay as they are (and are refused or served later)."""
    if (
        x.dtype is dtype
        and weight.dtype is torch.float32
        and gate is None
        and residual is None
        and (bias is None or bias.dtype is torch.float32)
    ):
        return x, weight, bias, gate, residual  # the usual case

    def cast(tensor, keep):
        if (
            tensor is None
            or not tensor.is_floating_point()
            or tensor.dtype in (dtype, torch.float64)
            or tensor.dtype == keep
        ):
            return tensor
        return tensor.to(dtype)

    if dtype not in arguments.SHORT_DTYPES or x.dtype == torch.float64:
        return x, weight, bias, gate, residual
    return cast(x, None), cast(weight, torch.float32), cast(bias, torch.float32), cast(gate, None), cast(residual, None)


def _autocast(operator, device_type, key):
    def kernel(x, weight, bias=None, gate=None, residual=None, *options, **keywords):
        tensors = autocast_tensors(torch.get_autocast_dtype(device_type), x, weight, bias, gate, residual)
        with torch._C._DisableAutocast():
            return operator(*tensors, *options, **keywords)

    LIBRARY.impl(operator, kernel, key)


# ---- torch.vmap ---------------------------------------------------------------------------------------------------------


def _vmap(operator, activations, weights):
    """The rule of an operator, by the places of its activations and of the weight and bias: an axis more of activations alone is more batch;
    where a weight has it too, or comes of it (grad_weight), each example is a call."""

    def rule(info, axes, *given, **options):
        axes = [axis if isinstance(one, torch.Tensor) else None for one, axis in zip(given, axes)]
        if weights is None or any(axes[place] is not None for place in weights if place < len(given)):
            each = [
                operator(*(one if axis is None else one.select(axis, i) for one, axis in zip(given, axes)), **options)
                for i in range(info.batch_size)
            ]
            results = (
                tuple(torch.stack(parts) for parts in zip(*each)) if isinstance(each[0], tuple) else torch.stack(each)
            )
        else:

            def merged(one, axis):
                return (one.expand(info.batch_size, *one.shape) if axis is None else one.movedim(axis, 0)).flatten(0, 1)

            results = operator(
                *(
                    merged(one, axis) if place in activations and one is not None else one
                    for place, (one, axis) in enumerate(zip(given, axes))
                ),
                **options,
            )
            apart = [
                one.unflatten(0, (info.batch_size, -1))
                for one in (results if isinstance(results, tuple) else (results,))
            ]
            results = tuple(apart) if isinstance(results, tuple) else apart[0]
        return results, (0,) * len(results) if isinstance(results, tuple) else 0

    return rule


# ---- forward mode -------------------------------------------------------------------------------------------------------


class _Checked:
    """The library as register_autograd sees it: the kernel that PyTorch makes for the derivative drops tangents in silence, so it is not to
    meet any. triangular_conv1d has them (transforms.py)."""

    @staticmethod
    def impl(name, kernel, *arguments, **options):
        def checked(keyset, *inputs, **keywords):
            if forward_ad._current_level >= 0:
                for tensor in (*inputs, *keywords.values()):
                    if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
                        raise NotImplementedError(
                            f"torch.ops.trigen.{name.rpartition('::')[2]} has no forward-mode derivative; allowed: trigen.torch.triangular_conv1d "
                            f"and the modules, outside torch.compile"
                        )
            return kernel(keyset, *inputs, **keywords)

        LIBRARY.impl(name, checked, *arguments, **options)


# ---- registration -------------------------------------------------------------------------------------------------------

for _name, _plain_kernel, _cuda_kernel, _fake_kernel, _setup, _backward in (
    ("forward", _plain_forward, cuda.forward, _fake_forward, _setup_forward, _backward_forward),
    ("forward_pre", _plain_forward_pre, cuda.forward_pre, _fake_forward_pre, _setup_forward, _backward_forward),
    ("grad_input", _plain_grad_input, cuda.grad_input, _fake_grad_input, _setup_grad_input, _backward_grad_input),
    ("grad_weight", _plain_grad_weight, cuda.grad_weight, _fake_grad_weight, _setup_grad_weight, _backward_grad_weight),
):
    LIBRARY.impl(_name, _plain_kernel, "CompositeExplicitAutograd")
    if not native.operators:
        LIBRARY.impl(_name, _cuda_kernel, "CUDA")
    torch.library.register_fake(f"trigen::{_name}", _fake_kernel, lib=LIBRARY)
    if not native.derivatives:
        torch.library.register_autograd(f"trigen::{_name}", _backward, setup_context=_setup, lib=_Checked)
if hasattr(torch.library, "register_vmap"):  # PyTorch 2.5; before it PyTorch loops, with a warning
    for _name, _operator, _activations, _weights in (
        ("forward", _forward, (0, 3, 4), (1, 2)),
        ("forward_pre", _forward_pre, (0, 3, 4), (1, 2)),
        ("grad_input", _grad_input, (0, 2), (1,)),
        ("grad_weight", _grad_weight, (), None),
    ):
        torch.library.register_vmap(f"trigen::{_name}", _vmap(_operator, _activations, _weights), lib=LIBRARY)
for _operator in () if native.derivatives else (_forward, _forward_pre):
    _autocast(_operator, "cpu", "AutocastCPU")
    _autocast(_operator, "cuda", "AutocastCUDA")
