"""The functional form. One call, any mode:

- Under torch.compile, a dispatch mode, functorch or tracing, and for tensor subclasses, it is the operator torch.ops.trigen.forward; where
  forward mode or torch.func takes derivatives, it is transforms.py.
- In plain eager mode it goes straight to the implementation, inside one autograd.Function where a gradient is wanted: PyTorch's
  dispatch of an operator written in Python, with its derivative, costs more host time than the kernel launch (bench/torch_ops.py
  shows both). Both ways run the same code below this file, and tests compare them.
- A combination that ran this way before and that a GPU serves in the usual way is known (known.py): one check in C, then the launch.
"""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch.autograd import forward_ad

from .. import recording
from ..options import Activation, Fill, Layout, Math, Padding
from . import arguments, cuda, known, native, ops, precision, transforms

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_C = torch._C
_modes = _C._len_torch_dispatch_stack
_functorch = getattr(_C._functorch, "peek_interpreter_stack", lambda: None)
_tracing = _C._get_tracing_state
_grad_enabled = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_autocast_dtype = torch.get_autocast_dtype
_calls, _run_known, _tf32_is_allowed = known._calls, known.forward, precision.tf32_is_allowed
_native = native.derivatives  # then the dispatcher costs less than this file's own way
_any_autocast = getattr(_C, "_is_any_autocast_enabled", lambda: True)


def _direct(x, weight) -> bool:
    """True in plain eager mode: nothing but autograd and autocast is watching."""
    return (
        type(x) in _PLAIN_TYPES
        and type(weight) in _PLAIN_TYPES
        and _modes() == 0
        and _functorch() is None
        and forward_ad._current_level < 0
        and _tracing() is None
        and (x.is_cuda or x.is_cpu)
    )


def _forward_kernel(x, weight, bias, gate, residual, options, want_pre):
    if x.is_cuda:
        return cuda.run_forward(x, weight, bias, gate, residual, options, want_pre)
    if want_pre:
        return ops._plain_forward_pre(x, weight, bias, gate, residual, *options)
    return ops._plain_forward(x, weight, bias, gate, residual, *options), None


class _TriangularConv(torch.autograd.Function):
    """act(W x + bias) + residual without an activation or a gate: nothing but x and the weight is kept."""

    @staticmethod
    def forward(ctx, x, weight, bias, residual, options):
        ctx.save_for_backward(x, weight)
        ctx.given = bias, options  # of the bias, backward reads shape and dtype
        return _forward_kernel(x, weight, bias, None, residual, options, False)[0]

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, needs_residual, _ = ctx.needs_input_grad
        dx, dw, db = _linear_gradients(grad, x, weight, *ctx.given, needs_x, needs_weight, needs_bias)
        return dx, dw, db, grad if needs_residual else None, None


class _KnownConv(torch.autograd.Function):
    """W x + bias of a known call."""

    forward = staticmethod(known.recorded_forward)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        call = ctx.call
        needs_x, needs_weight, needs_bias, _, _, _ = ctx.needs_input_grad
        usual = needs_x and needs_weight and not _grad_enabled()
        if usual:
            got = known.gradients(call, grad, x, weight, needs_bias)
            if got is not None:
                return (*got, None, None, None)
        got = _linear_gradients(grad, x, weight, call.bias, call.options, needs_x, needs_weight, needs_bias)
        if usual and _direct(grad, weight):
            known.learn_gradients(call, grad, x, weight, needs_bias)
        return (*got, None, None, None)


def _linear_gradients(grad, x, weight, bias, options, needs_x, needs_weight, needs_bias):
    """(dx, dW, dbias) of W x + bias, None for what is not wanted."""
    direct = _direct(grad, weight) and not _grad_enabled()
    if direct and needs_x and needs_weight and grad.is_cuda:
        return cuda.gradients(grad, x, weight, bias if needs_bias else None, options)
    dx = dw = db = None
    pad, layout, fill, diag, _, math = options
    grad_input, grad_weight = _gradient_kernels(x) if direct else (ops._grad_input, ops._grad_weight)
    if needs_x:
        dx = grad_input(grad, weight, None, pad, layout, fill, diag, math)
    if needs_weight:
        dw, db = grad_weight(grad, x, weight.shape, weight.dtype, needs_bias, pad, layout, fill, diag, math)
    elif needs_bias:
        db = ops.bias_gradient(grad, bias.shape, bias.dtype, layout)
    return dx, dw, db if needs_bias else None


class _TriangularConvEpilogue(torch.autograd.Function):
    """With an activation or a gate: the value before the activation is kept. The derivative is differentiable itself."""

    @staticmethod
    def forward(ctx, x, weight, bias, gate, residual, options):
        y, pre = _forward_kernel(x, weight, bias, gate, residual, options, True)
        ctx.save_for_backward(x, weight, bias, gate, pre)
        ctx.options = options
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias, gate, pre = ctx.saved_tensors
        options, needs = ctx.options, ctx.needs_input_grad
        if (
            _grad_enabled()
        ):  # second derivatives: pre is a constant to autograd here, so it is computed again, differentiably
            return (*ops.forward_gradients(needs, grad, None, x, weight, bias, gate, None, *options), None)
        if not _direct(grad, weight):
            return (*ops.forward_gradients(needs, grad, None, x, weight, bias, gate, pre, *options), None)
        return (*_gradients(needs, grad, x, weight, bias, gate, pre, *options), None)


def _gradient_kernels(x):
    return (cuda.grad_input, cuda.grad_weight) if x.is_cuda else (ops._plain_grad_input, ops._plain_grad_weight)


def _gradients(needs, grad, x, weight, bias, gate, pre, pad, layout, fill, diag, activation, math):
    """ops.forward_gradients without the dispatcher."""
    dx = dw = db = None
    dq, dgate = (cuda.grad_epilogue if x.is_cuda else ops.plain_grad_epilogue)(grad, pre, gate, activation)
    if needs[0] and needs[1] and x.is_cuda:
        dx, dw, db = cuda.gradients(
            dq, x, weight, bias if needs[2] else None, (pad, layout, fill, diag, activation, math)
        )
        return dx, dw, db, dgate if needs[3] else None, grad if needs[4] else None
    grad_input, grad_weight = _gradient_kernels(x)
    if needs[0]:
        dx = grad_input(dq, weight, None, pad, layout, fill, diag, math)
    if needs[1]:
        dw, db = grad_weight(dq, x, weight.shape, weight.dtype, needs[2], pad, layout, fill, diag, math)
    elif needs[2]:
        db = ops.bias_gradient(dq, bias.shape, bias.dtype, layout)
    return dx, dw, db if needs[2] else None, dgate if needs[3] else None, grad if needs[4] else None


# torch.autograd.Function.apply looks for functorch's transforms and tensors first; _direct has done that by the time these are called.
_apply, _apply_epilogue, _apply_known = (
    super(torch.autograd.Function, function).apply
    for function in (_TriangularConv, _TriangularConvEpilogue, _KnownConv)
)


def resolve_padding(padding: Union[int, str], taps: int) -> int:
    """Features of zero padding on the left: 'same' is nn.Conv1d's, (K-1)//2; 'causal' is K-1 (a tap reads no later feature)."""
    if padding == "same":
        return (taps - 1) // 2
    if padding == "causal":
        return taps - 1
    if isinstance(padding, bool) or not isinstance(padding, int):
        raise ValueError(
            f"padding={padding!r} is not known; allowed: 'same', 'causal' or the features of padding on the left"
        )
    return padding


def triangular_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    *,
    gate: Optional[torch.Tensor] = None,
    residual: Optional[torch.Tensor] = None,
    padding: Padding = "same",
    layout: Layout = "btd",
    fill: Fill = "lower",
    diagonal: int = 0,
    activation: Optional[Activation] = None,
    math: Math = "default",
) -> torch.Tensor:
    """y[b,h,t,d] = act(bias[h,t] + sum over s in the triangle, j of W[h,t,s,j] x[b,h,s,d+j-pad]) * gate + residual

    x          [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T: a prefix uses W[:, :n, :n]
    weight     [T, T], [T, T, K] (nn.Conv1d(T, T, K).weight as it is) or [H, T, T, K]. What lies outside the triangle is never
               read; its gradient is exactly zero
    bias       [T], or [H, T] beside a weight of rank 4
    gate, residual   like x
    fill       "lower": s <= t + diagonal; "upper": s >= t + diagonal
    activation None, "gelu" (exact) or "silu"
    math       float32 only: "simt" (full precision), "f16x3" (the same on Hopper's tensor cores), "tf32", or "default":
               as PyTorch's switches for matrix products say

    dtypes: float16, bfloat16, float32 (x, gate, residual, y); weight and bias have x's dtype, or float32 beside 16-bit x. float64
    runs in plain torch. Returns y, contiguous, like x. Inputs need not be contiguous (docs/pytorch-reference.md says which are copied).
    Under autocast x, gate and residual are cast, weight and bias are not.
    Errors: ValueError, TypeError (arguments); trigen.TrigenError (libtrigen). Runs on the current stream of x's device and does not
    synchronise.
    """
    if _native and x.is_cuda and recording.active is None and not _compiling():
        pad = (
            padding if type(padding) is int else resolve_padding(padding, 1 if weight.dim() == 2 else weight.shape[-1])
        )
        return _dispatched(
            x,
            weight,
            bias,
            gate,
            residual,
            (pad, layout, fill, diagonal, activation or "none", precision.resolve_math(math, x.dtype, x.get_device())),
        )
    key = None
    if gate is None and residual is None and not _compiling():
        key = (x.shape, padding, layout, fill, diagonal, activation, math, bias is None)
        try:
            calls = _calls.get(key, ())
        except TypeError:  # an option that is no option: refused by name below
            key, calls = None, ()
        for call in calls:
            if (
                call.check(x, weight) if bias is None else call.check(x, weight, bias)
            ) and call.grad_mode is _grad_enabled():
                if call.tf32 is not None and call.tf32 is not _tf32_is_allowed():
                    continue
                x_pointer, weight_pointer = x.data_ptr(), weight.data_ptr()
                if (
                    (x_pointer | weight_pointer) & 15
                    or recording.active is not None
                    or forward_ad._current_level >= 0
                    or (call.autocast is not None and call.autocast is not _autocast_dtype("cuda"))
                ):
                    break
                if call.wants:
                    return _apply_known(x, weight, bias, call, x_pointer, weight_pointer)
                return _run_known(x, weight, bias, call, x_pointer, weight_pointer)
    arguments.check_tensor(x, "x")
    pad = padding if type(padding) is int else resolve_padding(padding, 1 if weight.dim() == 2 else weight.shape[-1])
    options = (pad, layout, fill, diagonal, activation or "none", math)
    if _compiling() or not _direct(x, weight):
        return _dispatched(x, weight, bias, gate, residual, options)
    given, autocast = x, None
    if _any_autocast():
        device = "cuda" if x.is_cuda else "cpu"
        if torch.is_autocast_enabled(device):
            autocast = _autocast_dtype(device)
            x, weight, bias, gate, residual = ops.autocast_tensors(autocast, x, weight, bias, gate, residual)
            if x is not given and key is not None:  # after a norm, say; what is left may be known
                return triangular_conv1d(
                    x,
                    weight,
                    bias,
                    padding=padding,
                    layout=layout,
                    fill=fill,
                    diagonal=diagonal,
                    activation=activation,
                    math=math,
                )
    y = _eager(x, weight, bias, gate, residual, options)
    if key is not None and x.is_cuda and recording.active is None:
        known.learn(key, x, weight, bias, options, autocast)
    return y


def _eager(x, weight, bias, gate, residual, options):
    if _grad_enabled() and (
        x.requires_grad
        or weight.requires_grad
        or (bias is not None and bias.requires_grad)
        or (gate is not None and gate.requires_grad)
        or (residual is not None and residual.requires_grad)
    ):
        if gate is None and options[4] == "none":
            return _apply(x, weight, bias, residual, options)
        return _apply_epilogue(x, weight, bias, gate, residual, options)
    return _forward_kernel(x, weight, bias, gate, residual, options, False)[0]


def _autocast(x, *others):
    device = "cuda" if x.is_cuda else "cpu"
    return (
        ops.autocast_tensors(_autocast_dtype(device), x, *others) if torch.is_autocast_enabled(device) else (x, *others)
    )


def _dispatched(x, weight, bias, gate, residual, options):
    if not _compiling() and transforms.wanted():
        return transforms.forward(*_autocast(x, weight, bias, gate, residual), options)
    keeps = options[4] != "none" or gate is not None
    if keeps and torch.is_grad_enabled():
        return ops._forward_pre(x, weight, bias, gate, residual, *options)[0]
    return ops._forward(x, weight, bias, gate, residual, *options)
