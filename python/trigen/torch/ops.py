"""The operators `trigen::forward`, `trigen::forward_pre`, `trigen::grad_input` and `trigen::grad_weight` (torch.library), and the one
derivative of a mixer.

    forward(x, weight, bias?, gate?, residual?, ...) -> y            y = act(W x + bias) * gate + residual
    forward_pre(same)                                -> (y, pre)     also the value before the activation, for backward
    grad_input(grad, weight, residual?, ...)         -> dx           dx = W^T grad + residual
    grad_weight(grad, x, weight_size, ...)           -> (dW, dbias)  dW is exactly zero outside the triangle

Shapes: arguments.py. Outputs are contiguous and alias nothing. Every operator has a CUDA implementation (cuda.py), one in plain
torch for every other device (plain.py), a fake one, and a derivative made of the same operators, so second derivatives are
right too. `forward` computes the value before the activation again in its backward pass; `forward_pre` keeps it.

The derivative is `Mixer`, for the dispatcher's operators (as their kernel of the Autograd key) and for eager calls of the functional form, which
go to it without the dispatcher. In plain eager mode it runs the implementations themselves; where anything else is watching (torch.compile, a
dispatch mode, a functorch transform, a tensor subclass) it calls the operators below autograd.

Autocast: x, gate and residual are cast to autocast's dtype; weight and bias stay float32 (kernels cast at load; gradients are
float32 then).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Sequence

import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import flop_registry, register_flop_formula

from .. import weights
from . import arguments, cuda, plain
from .arguments import Options

_C = torch._C
# Of an operator's inputs: tensors of no other class, and options.
_PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter, type(None), int, str, bool, list, torch.dtype))
_modes = _C._len_torch_dispatch_stack
_functorch = getattr(_C._functorch, "peek_interpreter_stack", lambda: None)
_is_batched = getattr(
    _C._functorch, "is_legacy_batchedtensor", lambda tensor: False
)  # torch.autograd.grad(is_grads_batched=True)
_tracing = _C._get_tracing_state
_grad_enabled = torch.is_grad_enabled

_OPTIONS = 'int pad=0, str layout="btd", str fill="lower", int diag=0'
_FORWARD = (
    f"(Tensor x, Tensor weight, Tensor? bias=None, Tensor? gate=None, Tensor? residual=None, {_OPTIONS}, "
    'str activation="none", str math="default", str form="dense")'
)
SCHEMAS = (
    f"forward{_FORWARD} -> Tensor",
    f"forward_pre{_FORWARD} -> (Tensor, Tensor)",
    f'grad_input(Tensor grad, Tensor weight, Tensor? residual=None, {_OPTIONS}, str math="default", str form="dense") -> Tensor',
    f"grad_weight(Tensor grad, Tensor x, SymInt[] weight_size, ScalarType weight_dtype, bool bias=False, {_OPTIONS}, "
    'str math="default", str form="dense") -> (Tensor, Tensor)',
)
# flexible_layout: strides are read as they come, so torch.compile need not make a tensor of its own for each operator that reads it. It also
# leaves out options that are the defaults, each of which costs the dispatcher time.
TAGS = (torch.Tag.pt2_compliant_tag, *filter(None, (getattr(torch.Tag, "flexible_layout", None),)))
# Whether libtrigen_torch.so was loaded before: schemas and CUDA kernels are C++ then (libtorch/).
_in_cpp = bool(_C._jit_get_schemas_for_operator("trigen::forward"))
LIBRARY = torch.library.Library("trigen", "FRAGMENT" if _in_cpp else "DEF")
if not _in_cpp:
    for _schema in SCHEMAS:
        LIBRARY.define(_schema, tags=TAGS)

_forward = torch.ops.trigen.forward.default
_forward_pre = torch.ops.trigen.forward_pre.default
_grad_input = torch.ops.trigen.grad_input.default
_grad_weight = torch.ops.trigen.grad_weight.default


def kernels_of(x):
    """The implementation for x's device, by the same names."""
    return cuda if x.is_cuda else plain


# ---- fake: shapes and strides only --------------------------------------------------------------------------------------


def _fake_forward(x, weight, bias=None, gate=None, residual=None, *options):
    arguments.check_forward(x, weight, bias, gate, residual, *Options(*options))
    return x.new_empty(x.shape)


def _fake_forward_pre(x, *rest):
    return _fake_forward(x, *rest), x.new_empty(x.shape)


def _fake_grad_input(
    grad, weight, residual=None, pad=0, layout="btd", fill="lower", diag=0, math="default", form="dense"
):
    arguments.check_grad_input(grad, weight, residual, pad, layout, fill, diag, math, form)
    return grad.new_empty(grad.shape)


def _fake_grad_weight(
    grad,
    x,
    weight_size,
    weight_dtype,
    bias=False,
    pad=0,
    layout="btd",
    fill="lower",
    diag=0,
    math="default",
    form="dense",
):
    arguments.check_grad_weight(grad, x, weight_size, weight_dtype, pad, layout, fill, diag, math, form)
    dw = x.new_empty(weight_size, dtype=weight_dtype)
    return dw, dw.new_empty(weights.bias_size(weight_size, form) if bias else [0])


# ---- the derivative -----------------------------------------------------------------------------------------------------


def direct(x, *others) -> bool:
    """True in plain eager mode: nothing but autograd and autocast is watching."""
    return _PLAIN_TYPES.issuperset(map(type, (x, *others))) and unwatched() and (x.is_cuda or x.is_cpu)


def unwatched() -> bool:
    return _modes() == 0 and _functorch() is None and forward_ad._current_level < 0 and _tracing() is None


def recorded(x, weight, bias, gate, residual) -> bool:
    """Whether autograd records the call."""
    return _grad_enabled() and (
        x.requires_grad
        or weight.requires_grad
        or (bias is not None and bias.requires_grad)
        or (gate is not None and gate.requires_grad)
        or (residual is not None and residual.requires_grad)
    )


def _below_autograd(x, weight, bias, gate, residual, options, want_pre):
    """(y, pre or None) by the dispatcher."""
    with _C._AutoDispatchBelowAutograd():
        if want_pre:
            return _forward_pre(x, weight, bias, gate, residual, *options)
        return _forward(x, weight, bias, gate, residual, *options), None


class Mixer(torch.autograd.Function):
    """act(W x + bias) * gate + residual with its derivative, which is differentiable itself.

    how: (options, want_pre, run). want_pre: the value before the activation is a result too, and kept; else it is computed again where an
    activation or a gate needs it. run: makes (y, pre or None) of all this."""

    @staticmethod
    def forward(ctx, x, weight, bias, gate, residual, how):
        options, want_pre, run = how
        y, pre = run(x, weight, bias, gate, residual, options, want_pre)
        ctx.options, ctx.bias = options, bias  # of the bias, shape and dtype are read
        if gate is None and options[4] == "none":
            ctx.save_for_backward(x, weight)
        else:
            ctx.save_for_backward(x, weight, bias, gate, pre)
        if not want_pre:
            return y
        ctx.set_materialize_grads(False)
        return y, pre

    @staticmethod
    def backward(ctx, grad, grad_pre=None):
        return derivative(ctx, ctx.saved_tensors, grad, grad_pre)


def derivative(ctx, saved, grad, grad_pre=None):
    """Mixer's. saved: ctx.saved_tensors, which may be asked for once (activation checkpointing computes them again at that)."""
    options, bias, needs = ctx.options, ctx.bias, ctx.needs_input_grad
    x, weight = saved[0], saved[1]
    dq, dgate = grad_pre if grad is None else grad, None
    if dq is None:
        return (None,) * 6
    eager = not _grad_enabled() and direct(dq, weight) and not _is_batched(dq)
    if grad is not None:
        if len(saved) > 2:
            gate, pre = saved[3], saved[4]
            if pre is None:
                again = kernels_of(x).run_forward if eager else _operators.run_forward
                pre = again(x, weight, saved[2], None, None, (*options[:4], "none", *options[5:]), False)[0]
            epilogue = kernels_of(x).grad_epilogue if eager else plain.epilogue_gradients
            dq, dgate = epilogue(grad, pre, gate, options[4])
        if grad_pre is not None:
            dq = dq + grad_pre
    gradients = _products(eager, dq, x, weight, bias, options, needs)
    return (*gradients, dgate if needs[3] else None, grad if needs[4] else None, None)


# torch.autograd.Function.apply looks for functorch's transforms and tensors first; where direct() has done that:
apply_direct = super(torch.autograd.Function, Mixer).apply


def _products(eager, grad, x, weight, bias, options, needs):
    """(dx, dW, dbias) of W x + bias, None for what is not wanted."""
    needs_x, needs_weight, needs_bias = needs[:3]
    kernels = kernels_of(x) if eager else _operators
    if needs_x and needs_weight and kernels is cuda:
        return cuda.gradients(grad, x, weight, bias if needs_bias else None, options)
    dx = dw = db = None
    options = (*options[:4], *options[5:])
    if needs_x:
        dx = kernels.grad_input(grad, weight, None, *options)
    if needs_weight:
        dw, db = kernels.grad_weight(grad, x, weight.shape, weight.dtype, needs_bias, *options)
    elif needs_bias:
        db = bias_gradient(grad, bias.shape, bias.dtype, options[1])
    return dx, dw, db.reshape(bias.shape) if needs_bias else None


_operators = SimpleNamespace(
    run_forward=lambda *given: (_forward(*given[:5], *given[5]), None), grad_input=_grad_input, grad_weight=_grad_weight
)


def _refuse_tangents(name, tensors) -> None:
    """PyTorch drops the tangents of what a kernel of the Autograd key is given in silence. triangular_conv1d has them (transforms.py)."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(
                f"torch.ops.trigen.{name} has no forward-mode derivative; allowed: trigen.torch.triangular_conv1d "
                f"and the modules, outside torch.compile"
            )


def _autograd(name, want_pre):
    """The kernel of the Autograd key."""

    def kernel(x, weight, bias=None, gate=None, residual=None, *options):
        tensors = x, weight, bias, gate, residual
        _refuse_tangents(name, tensors)
        eager = direct(*tensors)
        run, options = kernels_of(x).run_forward if eager else _below_autograd, Options(*options)
        if recorded(*tensors):
            return (apply_direct if eager else Mixer.apply)(*tensors, (options, want_pre, run))
        y, pre = run(*tensors, options, want_pre)
        return (y, pre) if want_pre else y

    return kernel


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


# ---- the gradients' own derivatives ---------------------------------------------------------------------------------------


def _setup_grad_input(ctx, inputs, output):
    grad, weight, _, *ctx.options = inputs
    ctx.save_for_backward(grad, weight)
    ctx.set_materialize_grads(False)


def _backward_grad_input(ctx, ddx):
    if ddx is None:
        return (None,) * 9
    grad, weight = ctx.saved_tensors
    *placed, math, form = ctx.options
    needs = (*ctx.needs_input_grad, False)  # PyTorch leaves out a trailing residual that is None
    dgrad = dweight = None
    if needs[0]:
        dgrad = _forward(ddx, weight, None, None, None, *placed, "none", math, form)
    if needs[1]:
        dweight, _ = _grad_weight(grad, ddx, weight.shape, weight.dtype, False, *ctx.options)
    return dgrad, dweight, ddx if needs[2] else None, *(None,) * 6


def _setup_grad_weight(ctx, inputs, output):
    grad, x, _, _, _, *ctx.options = inputs
    ctx.save_for_backward(grad, x)
    ctx.set_materialize_grads(False)


def _backward_grad_weight(ctx, ddw, ddb):
    grad, x = ctx.saved_tensors
    *placed, math, form = ctx.options
    dgrad = dx = None
    if ctx.needs_input_grad[0]:
        if ddw is not None:
            dgrad = _forward(x, ddw, None, None, None, *placed, "none", math, form)
        if ddb is not None and ddb.numel() > 0:
            spread = _spread_bias(ddb, x, placed[1])
            dgrad = spread if dgrad is None else dgrad + spread
    if ctx.needs_input_grad[1] and ddw is not None:
        dx = _grad_input(grad, ddw, None, *ctx.options)
    return dgrad, dx, *(None,) * 9


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

    x, gate, residual = autocast_activations(dtype, x, gate, residual)
    if dtype not in arguments.SHORT_DTYPES or x.dtype == torch.float64:
        return x, weight, bias, gate, residual
    return x, _cast(weight, dtype, torch.float32), _cast(bias, dtype, torch.float32), gate, residual


def autocast_activations(dtype, x, gate, residual):
    """The rule for those that are like x."""
    if dtype not in arguments.SHORT_DTYPES or x.dtype == torch.float64:
        return x, gate, residual
    return _cast(x, dtype), _cast(gate, dtype), _cast(residual, dtype)


def _cast(tensor, dtype, keep=None):
    if (
        tensor is None
        or not tensor.is_floating_point()
        or tensor.dtype in (dtype, torch.float64)
        or tensor.dtype == keep
    ):
        return tensor
    return tensor.to(dtype)


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


# ---- registration -------------------------------------------------------------------------------------------------------


class _Checked:
    """The library as register_autograd sees it: its kernels are not to meet a tangent, and where nothing is recorded, as in a compiled backward
    pass, the implementation runs without the dispatcher."""

    @staticmethod
    def impl(name, kernel, *arguments, **options):
        own_name = name.rpartition("::")[2]

        def checked(keyset, *inputs, **keywords):
            if not _grad_enabled() and direct(*inputs):
                return getattr(kernels_of(inputs[0]), own_name)(*inputs, **keywords)
            _refuse_tangents(own_name, (*inputs, *keywords.values()))
            return kernel(keyset, *inputs, **keywords)

        LIBRARY.impl(name, checked, *arguments, **options)


for _name, _fake_kernel in (
    ("forward", _fake_forward),
    ("forward_pre", _fake_forward_pre),
    ("grad_input", _fake_grad_input),
    ("grad_weight", _fake_grad_weight),
):
    LIBRARY.impl(_name, getattr(plain, _name), "CompositeExplicitAutograd")
    if not _in_cpp:
        LIBRARY.impl(_name, getattr(cuda, _name), "CUDA")
    torch.library.register_fake(f"trigen::{_name}", _fake_kernel, lib=LIBRARY)
for _operator, _name, _wants_pre in ((_forward, "forward", False), (_forward_pre, "forward_pre", True)):
    LIBRARY.impl(_name, _autograd(_name, _wants_pre), "Autograd")
    _autocast(_operator, "cpu", "AutocastCPU")
    _autocast(_operator, "cuda", "AutocastCUDA")
for _name, _setup, _backward in (
    ("grad_input", _setup_grad_input, _backward_grad_input),
    ("grad_weight", _setup_grad_weight, _backward_grad_weight),
):
    torch.library.register_autograd(f"trigen::{_name}", _backward, setup_context=_setup, lib=_Checked)
if hasattr(torch.library, "register_vmap"):  # PyTorch 2.5; before it PyTorch loops, with a warning
    for _name, _operator, _activations, _weights in (
        ("forward", _forward, (0, 3, 4), (1, 2)),
        ("forward_pre", _forward_pre, (0, 3, 4), (1, 2)),
        ("grad_input", _grad_input, (0, 2), (1,)),
        ("grad_weight", _grad_weight, (), None),
    ):
        torch.library.register_vmap(f"trigen::{_name}", _vmap(_operator, _activations, _weights), lib=LIBRARY)


# ---- operation counts: products inside the triangle, two operations each, as `trigen bench` counts them (without the products with x's zero
# padding, which are counted here) ------------------------------------------------------------------------------------------


def triangle_entries(n: int, fill: str, diag: int) -> int:
    """Number of (t, s) in the triangle of an n x n weight."""
    if fill == "lower":
        return sum(min(n, max(0, t + diag + 1)) for t in range(n))
    return sum(min(n, max(0, n - t - diag)) for t in range(n))


def _count(x_shape: Sequence[int], weight_shape: Sequence[int], layout: str, fill: str, diag: int, form: str) -> int:
    batch, n, features = x_shape if layout == "btd" else (x_shape[0], x_shape[2], x_shape[1])
    entries = triangle_entries(n, fill, diag)
    if form == "band":
        entries -= triangle_entries(n, fill, -weight_shape[-1])
    return 2 * batch * features * weights.taps_of(weight_shape, form) * entries


@register_flop_formula([_forward.overloadpacket, _forward_pre.overloadpacket])
def forward_flop(
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
    form="dense",
    *,
    out_shape=None,
):
    return _count(x, weight, layout, fill, diag, form)


@register_flop_formula(_grad_input.overloadpacket)
def grad_input_flop(
    grad,
    weight,
    residual=None,
    pad=0,
    layout="btd",
    fill="lower",
    diag=0,
    math="default",
    form="dense",
    *,
    out_shape=None,
):
    return _count(grad, weight, layout, fill, diag, form)


@register_flop_formula(_grad_weight.overloadpacket)
def grad_weight_flop(
    grad,
    x,
    weight_size,
    weight_dtype=None,
    bias=False,
    pad=0,
    layout="btd",
    fill="lower",
    diag=0,
    math="default",
    form="dense",
    *,
    out_shape=None,
):
    return _count(x, weight_size, layout, fill, diag, form)


for _operator in (_forward, _forward_pre, _grad_input, _grad_weight):
    if (
        _operator.overloadpacket not in flop_registry
    ):  # PyTorch 2.4 files the formula under the overload, and looks under the packet
        flop_registry[_operator.overloadpacket] = flop_registry[_operator]
