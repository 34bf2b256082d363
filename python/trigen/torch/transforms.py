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
    """The arguments of a call that are no tensors."""

    def __init__(self, weight, *options):
        self.shape, self.dtype = tuple(weight.shape), weight.dtype  # of the weight; under vmap of one example's
        self.options = options  # (pad, layout, fill, diag, math, form)


class _Bilinear(torch.autograd.Function):
    """product(a, b, spec). for_a, for_b: its derivative's way back, each of (outer gradient, a, b, spec)."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b, ctx.spec = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

    @classmethod
    def of(cls, product, for_a, for_b):
        def backward(ctx, outer):
            a, b = ctx.saved_tensors
            return tuple(
                rule(outer, a, b, ctx.spec) if needed else None
                for rule, needed in zip((for_a, for_b), ctx.needs_input_grad)
            ) + (None,)

        def jvp(ctx, a_tangent, b_tangent, _):
            a, b = ctx.saved_tensors
            parts = [
                None if a_tangent is None else made.apply(a_tangent, b, ctx.spec),
                None if b_tangent is None else made.apply(a, b_tangent, ctx.spec),
            ]
            given = [part for part in parts if part is not None]
            return sum(given[1:], given[0]) if given else None

        made = type(
            product.__name__,
            (cls,),
            {"forward": staticmethod(product), "backward": staticmethod(backward), "jvp": staticmethod(jvp)},
        )
        return made


def _product(x, weight, spec):
    *placed, math, form = spec.options
    return ops._forward(x, weight, None, None, None, *placed, "none", math, form)


def _grad_input(grad, weight, spec):
    return ops._grad_input(grad, weight, None, *spec.options)


def _grad_weight(grad, x, spec):
    return ops._grad_weight(grad, x, spec.shape, spec.dtype, False, *spec.options)[0]


_Forward = _Bilinear.of(
    _product,
    lambda outer, x, weight, spec: _GradInput.apply(outer, weight, spec),
    lambda outer, x, weight, spec: _GradWeight.apply(outer, x, spec),
)
_GradInput = _Bilinear.of(
    _grad_input,
    lambda outer, grad, weight, spec: _Forward.apply(outer, weight, spec),
    lambda outer, grad, weight, spec: _GradWeight.apply(grad, outer, spec),
)
_GradWeight = _Bilinear.of(
    _grad_weight,
    lambda outer, grad, x, spec: _Forward.apply(x, outer, spec),
    lambda outer, grad, x, spec: _GradInput.apply(grad, outer, spec),
)


def forward(x, weight, bias, gate, residual, options):
    """act(W x + bias) * gate + residual. options: (pad, layout, fill, diag, activation, math, form). Of 16-bit data the product is rounded before
    the epilogue, which runs in float32."""
    spec = _Spec(weight, *options[:4], *options[5:])
    y = _Forward.apply(x, weight, spec).to(plain.compute_dtype(x.dtype))
    if bias is not None:
        y = y + ops._spread_bias(bias.to(y.dtype), y, options[1])
    y = plain.activate(y, options[4])
    if gate is not None:
        y = y * gate
    if residual is not None:
        y = y + residual
    return y.to(x.dtype)
