"""Forward mode and torch.func's grad and jvp, which a registered operator does not take part in: PyTorch gives it no tangent, silently.

The product is bilinear, so each of the three operators' derivatives, in both directions, are the three again; they are autograd.Functions
here, and what surrounds the product (bias, activation, gate, residual) is PyTorch's own. So any nesting of transforms is right.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from . import ops, plain

_functorch = torch._C._functorch
_stack = getattr(_functorch, "get_interpreter_stack", None)


def wanted() -> bool:
    """Whether derivatives are taken by one of those, here and now. torch.vmap alone needs nothing of this."""
    if forward_ad._current_level >= 0:
        return True
    if _functorch.peek_interpreter_stack() is None:
        return False
    kinds = _functorch.TransformType
    return _stack is None or any(one.key() in (kinds.Grad, kinds.Jvp) for one in _stack() or ())


class _Spec:
    """What is no tensor."""

    def __init__(self, weight, pad, layout, fill, diag, math):
        self.shape, self.dtype = tuple(weight.shape), weight.dtype  # of the weight; under vmap of one example's
        self.options = pad, layout, fill, diag, math


class _Bilinear(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx, inputs, output):
        *ctx_tensors, ctx.spec = inputs
        ctx.save_for_backward(*ctx_tensors)
        ctx.save_for_forward(*ctx_tensors)


def _sum(one, two):
    return two if one is None else one if two is None else one + two


def _tangent(function, ctx, first, second):
    """function(first', second) + function(first, second')."""
    a, b = ctx.saved_tensors
    return _sum(None if first is None else function(first, b, ctx.spec), None if second is None else function(a, second, ctx.spec))


class _Forward(_Bilinear):
    """y = W x"""

    @staticmethod
    def forward(x, weight, spec):
        pad, layout, fill, diag, math = spec.options
        return ops._forward(x, weight, None, None, None, pad, layout, fill, diag, "none", math)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return (_GradInput.apply(grad, weight, ctx.spec) if ctx.needs_input_grad[0] else None,
                _GradWeight.apply(grad, x, ctx.spec) if ctx.needs_input_grad[1] else None, None)

    @staticmethod
    def jvp(ctx, x, weight, _):
        return _tangent(_Forward.apply, ctx, x, weight)


class _GradInput(_Bilinear):
    """dx = W^T grad"""

    @staticmethod
    def forward(grad, weight, spec):
        return ops._grad_input(grad, weight, None, *spec.options)

    @staticmethod
    def backward(ctx, outer):
        grad, weight = ctx.saved_tensors
        return (_Forward.apply(outer, weight, ctx.spec) if ctx.needs_input_grad[0] else None,
                _GradWeight.apply(grad, outer, ctx.spec) if ctx.needs_input_grad[1] else None, None)

    @staticmethod
    def jvp(ctx, grad, weight, _):
        return _tangent(_GradInput.apply, ctx, grad, weight)


class _GradWeight(_Bilinear):
    """dW = grad x^T inside the triangle"""

    @staticmethod
    def forward(grad, x, spec):
        return ops._grad_weight(grad, x, spec.shape, spec.dtype, False, *spec.options)[0]

    @staticmethod
    def backward(ctx, outer):
        grad, x = ctx.saved_tensors
        return (_Forward.apply(x, outer, ctx.spec) if ctx.needs_input_grad[0] else None,
                _GradInput.apply(grad, outer, ctx.spec) if ctx.needs_input_grad[1] else None, None)

    @staticmethod
    def jvp(ctx, grad, x, _):
        return _tangent(_GradWeight.apply, ctx, grad, x)


def forward(x, weight, bias, gate, residual, options):
    """act(W x + bias) * gate + residual. options: (pad, layout, fill, diag, activation, math). Of 16-bit data the product is rounded before
    the epilogue, which runs in float32."""
    pad, layout, fill, diag, activation, math = options
    y = _Forward.apply(x, weight, _Spec(weight, pad, layout, fill, diag, math)).to(plain.compute_dtype(x.dtype))
    if bias is not None:
        y = y + ops._spread_bias(bias.to(y.dtype), y, layout)
    y = plain.activate(y, activation)
    if gate is not None:
        y = y * gate
    if residual is not None:
        y = y + residual
    return y.to(x.dtype)
