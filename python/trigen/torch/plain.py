"""The operators in plain torch operations: the CPU implementation, the fallback for dtypes and devices without kernels, and the
definition that the kernels are tested against. First the sums, then the implementations, which check and record, by cuda.py's names.

Follows the kernels' arithmetic: the weight is masked by index (its other triangle may hold anything, NaN included) and cast to
x's dtype at load; 16-bit data is multiplied and added up in float32, epilogues run in float32, and one rounding ends it.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

from .. import recording
from ..weights import bias_size
from . import arguments, problems
from .arguments import SHORT_DTYPES, Options, Sizes


def _without_autocast(function):
    """Autocast has had its say before an implementation runs; the sums inside must not be rounded by it."""

    @functools.wraps(function)
    def guarded(*args):
        with torch._C._DisableAutocast():
            return function(*args)

    return guarded


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in SHORT_DTYPES else dtype


def triangle(n: int, fill: str, diag: int, device, begin: int = 0) -> torch.Tensor:
    """[n - begin, n] of bool, rows from `begin` on: True where W[t, s] takes part."""
    t = torch.arange(begin, n, device=device).unsqueeze(1)
    s = torch.arange(n, device=device).unsqueeze(0)
    return s <= t + diag if fill == "lower" else s >= t + diag


def heads_first(x: torch.Tensor, sizes: Sizes, layout: str) -> torch.Tensor:
    """x as [B, H, n, D] in the dtype that sums are made in."""
    if layout == "btd":
        x = x.unflatten(2, (sizes.H, sizes.D)).transpose(1, 2)
    else:
        x = x.unflatten(1, (sizes.H, sizes.D)).transpose(2, 3)
    return x.to(compute_dtype(x.dtype))


def heads_last(y: torch.Tensor, sizes: Sizes, layout: str, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of heads_first, contiguous."""
    shape = (sizes.B, sizes.n, sizes.H * sizes.D)
    if layout == "btd":
        y = y.transpose(1, 2).reshape(shape)
    else:
        y = y.transpose(2, 3).reshape(shape[0], shape[2], shape[1])
    return y.to(dtype).contiguous()


def masked_weight(
    weight: torch.Tensor, sizes: Sizes, dtype: torch.dtype, fill: str, diag: int, begin: int = 0
) -> torch.Tensor:
    """[K, H, n - begin, n], rows from `begin` on: rounded to x's dtype, zero outside the triangle and the band."""
    heads, n, width = sizes.H, sizes.n, sizes.width
    inside = triangle(n, fill, diag, weight.device, begin)
    if sizes.form == "dense":
        weight = weight.reshape(heads, sizes.T, sizes.T, sizes.K)[:, begin:n, :n]
    else:
        distance = torch.arange(begin, n, device=weight.device).unsqueeze(1) - torch.arange(n, device=weight.device)
        if sizes.form == "toeplitz":
            weight = weight.reshape(heads, sizes.T)[:, distance.clamp(min=0)].unsqueeze(-1)
        else:
            inside &= distance < width
            at = (width - 1 - distance).clamp(0, width - 1).expand(heads, -1, -1)
            weight = weight.reshape(heads, sizes.T, width)[:, begin:n].gather(2, at).unsqueeze(-1)
    weight = weight.to(dtype).to(compute_dtype(dtype)).permute(3, 0, 1, 2)
    return weight.masked_fill(~inside, 0)


def of_form(dw: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """The gradient of the numbers that stand for W, [H, n] or [H, n, width], of dW [H, n, n]."""
    distance = torch.arange(sizes.width or sizes.n, device=dw.device)
    if sizes.form == "band":
        distance = distance.flip(0)
    s = torch.arange(sizes.n, device=dw.device).unsqueeze(1) - distance
    rows = dw.gather(2, s.clamp(min=0).expand(sizes.H, -1, -1)).masked_fill(s < 0, 0)
    return rows.sum(1) if sizes.form == "toeplitz" else rows


def tap_range(tap: int, pad: int, features: int):
    """Output features [begin, end) whose input feature d + shift exists, and the shift."""
    shift = tap - pad
    return max(0, -shift), min(features, features - shift), shift


def product(x: torch.Tensor, weight: torch.Tensor, pad: int, transposed: bool = False) -> torch.Tensor:
    """sum over taps of W_j times the shifted x (or of the transposes, shifted back): [B, H, rows, D], weight [K, H, rows, n]."""
    features = x.shape[-1]
    if weight.shape[0] == 1:
        return torch.matmul(weight[0].transpose(-1, -2) if transposed else weight[0], x)
    y = x.new_zeros(*x.shape[:2], weight.shape[-1 if transposed else -2], features)
    for tap in range(weight.shape[0]):
        begin, end, shift = tap_range(tap, pad, features)
        if begin >= end:
            continue
        if transposed:
            y[..., begin + shift : end + shift] += torch.matmul(weight[tap].transpose(-1, -2), x[..., begin:end])
        else:
            y[..., begin:end] += torch.matmul(weight[tap], x[..., begin + shift : end + shift])
    return y


def activate(q: torch.Tensor, activation: str) -> torch.Tensor:
    if activation == "gelu":
        return F.gelu(q)
    return F.silu(q) if activation == "silu" else q


@_without_autocast
def mixed(x, weight, bias, gate, residual, sizes: Sizes, pad, layout, fill, diag, activation, begin: int = 0):
    """(y, pre), both like x and contiguous; rows from `begin` on alone, of which gate and residual are."""
    masked = masked_weight(weight, sizes, x.dtype, fill, diag, begin)
    q = product(heads_first(x, sizes, layout), masked, pad)
    if bias is not None:
        q = q + bias.reshape(sizes.H, sizes.T)[:, begin : sizes.n].to(q.dtype).unsqueeze(-1)
    y = activate(q, activation)
    if gate is not None:
        y = y * heads_first(gate, sizes, layout)
    if residual is not None:
        y = y + heads_first(residual, sizes, layout)
    sizes = sizes._replace(n=sizes.n - begin)
    return heads_last(y, sizes, layout, x.dtype), heads_last(q, sizes, layout, x.dtype)


@_without_autocast
def epilogue_gradients(grad, pre, gate, activation):
    """(dz, grad_gate or None)."""
    dtype = grad.dtype
    grad, pre = grad.to(compute_dtype(dtype)), pre.to(compute_dtype(dtype))
    dz = activation_gradient(grad if gate is None else grad * gate, pre, activation)
    return dz.to(dtype).contiguous(), None if gate is None else (grad * activate(pre, activation)).to(
        dtype
    ).contiguous()


def activation_gradient(grad, pre, activation):
    """grad * act'(pre), differentiable."""
    if activation == "gelu":
        return torch.ops.aten.gelu_backward(grad, pre)
    if activation == "silu" and torch.is_grad_enabled():  # silu_backward has no derivative of its own
        sigmoid = torch.sigmoid(pre)
        return grad * sigmoid * (1 + pre * (1 - sigmoid))
    if activation == "silu":
        return torch.ops.aten.silu_backward(grad, pre)
    return grad


@_without_autocast
def _grad_input(grad, weight, residual, sizes: Sizes, pad, layout, fill, diag):
    masked = masked_weight(weight, sizes, grad.dtype, fill, diag)
    dx = product(heads_first(grad, sizes, layout), masked, pad, transposed=True)
    if residual is not None:
        dx = dx + heads_first(residual, sizes, layout)
    return heads_last(dx, sizes, layout, grad.dtype)


@_without_autocast
def _grad_weight(grad, x, weight_size, weight_dtype, bias: bool, sizes: Sizes, pad, layout, fill, diag):
    """(dW of weight_size, zero outside the triangle; grad_bias, empty when not asked for)."""
    grad, x = heads_first(grad, sizes, layout), heads_first(x, sizes, layout)
    dw = torch.zeros(weight_size, dtype=weight_dtype, device=x.device)
    rows = dw.view(sizes.H, sizes.T, -1)[:, : sizes.n]
    mask = triangle(sizes.n, fill, diag, x.device)
    for tap in range(sizes.K):
        begin, end, shift = tap_range(tap, pad, sizes.D)
        if begin >= end:
            continue
        part = torch.einsum("bhtd,bhsd->hts", grad[..., begin:end], x[..., begin + shift : end + shift])
        if sizes.form == "dense":
            rows.unflatten(2, (sizes.T, sizes.K))[:, :, : sizes.n, tap] = part.masked_fill(~mask, 0)
        else:
            rows.copy_(of_form(part, sizes).view_as(rows))
    if not bias:
        return dw, dw.new_empty(0)
    db = torch.zeros((sizes.H, sizes.T), dtype=weight_dtype, device=x.device)
    db[:, : sizes.n] = grad.sum((0, 3))
    return dw, db.reshape(bias_size(weight_size, sizes.form))


# ---- the implementations --------------------------------------------------------------------------------------------------


def run_forward(x, weight, bias, gate, residual, options, want_pre):
    """(y, pre or None). options: arguments.Options."""
    pad, layout, fill, diag, activation, _, _ = options
    sizes = arguments.check_forward(x, weight, bias, gate, residual, *options)
    if recording.active is not None:
        problems.record(problems.forward(sizes, x, weight, bias, gate, residual, *options[:6], want_pre))
    y, pre = mixed(x, weight, bias, gate, residual, sizes, pad, layout, fill, diag, activation)
    if not want_pre:
        return y, None
    return y, pre.clone() if pre.data_ptr() == y.data_ptr() else pre


def forward(x, weight, bias=None, gate=None, residual=None, *options, **named):
    return run_forward(x, weight, bias, gate, residual, Options(*options, **named), False)[0]


def forward_pre(x, weight, bias=None, gate=None, residual=None, *options, **named):
    return run_forward(x, weight, bias, gate, residual, Options(*options, **named), True)


def grad_input(grad, weight, residual=None, pad=0, layout="btd", fill="lower", diag=0, math="default", form="dense"):
    sizes = arguments.check_grad_input(grad, weight, residual, pad, layout, fill, diag, math, form)
    if recording.active is not None:
        problems.record(problems.grad_input(sizes, grad, weight, residual, pad, layout, fill, diag, math))
    return _grad_input(grad, weight, residual, sizes, pad, layout, fill, diag)


def grad_weight(
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
    sizes = arguments.check_grad_weight(grad, x, weight_size, weight_dtype, pad, layout, fill, diag, math, form)
    if recording.active is not None:
        problems.record(problems.grad_weight(sizes, grad, x, weight_dtype, bias, pad, layout, fill, diag, math))
    return _grad_weight(grad, x, weight_size, weight_dtype, bias, sizes, pad, layout, fill, diag)


def grad_epilogue(grad, pre, gate, activation):
    if recording.active is not None:  # a GPU copies what its kernel cannot read, and then looks again
        given = (
            one if one is None or problems.activation_strides(one, one.shape[2], "btd") else one.contiguous()
            for one in (grad, pre, gate)
        )
        problems.record(problems.grad_epilogue(*given, activation))
    return epilogue_gradients(grad, pre, gate, activation)
