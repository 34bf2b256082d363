"""Operation counts for torch.utils.flop_counter: products inside the triangle only, two operations each, as `trigen bench` counts them (the
products with the zero padding of x are left out there and counted here)."""

from __future__ import annotations

from typing import Sequence

from torch.utils.flop_counter import flop_registry, register_flop_formula

from . import ops


def triangle_entries(n: int, fill: str, diag: int) -> int:
    """Number of (t, s) in the triangle of an n x n weight."""
    if fill == "lower":
        return sum(min(n, max(0, t + diag + 1)) for t in range(n))
    return sum(min(n, max(0, n - t - diag)) for t in range(n))


def _count(x_shape: Sequence[int], weight_shape: Sequence[int], layout: str, fill: str, diag: int) -> int:
    batch, n, features = x_shape if layout == "btd" else (x_shape[0], x_shape[2], x_shape[1])
    taps = 1 if len(weight_shape) == 2 else weight_shape[-1]
    return 2 * batch * features * taps * triangle_entries(n, fill, diag)


@register_flop_formula([ops._forward.overloadpacket, ops._forward_pre.overloadpacket])
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
    *rest,
    out_shape=None,
    **keywords,
):
    return _count(x, weight, layout, fill, diag)


@register_flop_formula(ops._grad_input.overloadpacket)
def grad_input_flop(
    grad, weight, residual=None, pad=0, layout="btd", fill="lower", diag=0, *rest, out_shape=None, **keywords
):
    return _count(grad, weight, layout, fill, diag)


@register_flop_formula(ops._grad_weight.overloadpacket)
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
    *rest,
    out_shape=None,
    **keywords,
):
    return _count(x, weight_size, layout, fill, diag)


for _operator in (ops._forward, ops._forward_pre, ops._grad_input, ops._grad_weight):
    if (
        _operator.overloadpacket not in flop_registry
    ):  # PyTorch 2.4 files the formula under the overload, and looks under the packet
        flop_registry[_operator.overloadpacket] = flop_registry[_operator]
