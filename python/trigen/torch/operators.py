"""The operators torch.ops.trigen.* as functions: no derivative of their own is lost, no option is resolved. triangular_conv1d and the modules
are what models use; these are for code that takes derivatives by hand. Shapes: arguments.py."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import torch

from ..options import Activation, Fill, Layout, Math
from . import ops


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    gate: Optional[torch.Tensor] = None,
    residual: Optional[torch.Tensor] = None,
    pad: int = 0,
    layout: Layout = "btd",
    fill: Fill = "lower",
    diag: int = 0,
    activation: Activation = "none",
    math: Math = "default",
) -> torch.Tensor:
    """y = act(W x + bias) * gate + residual, contiguous, like x.

    x, gate, residual   [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T
    weight, bias        [T, T], [T, T, K] or [H, T, T, K]; [T], or [H, T] beside rank 4
    pad                 features of zero padding on the left, 0 to K-1 ((K-1)//2 is nn.Conv1d's "same")
    fill, diag          the triangle: lower is s <= t + diag, upper is s >= t + diag

    Differentiable in all five tensors; the value before an activation is computed again for that (forward_pre keeps it)."""
    y: torch.Tensor = ops._forward(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math)
    return y


def forward_pre(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    gate: Optional[torch.Tensor] = None,
    residual: Optional[torch.Tensor] = None,
    pad: int = 0,
    layout: Layout = "btd",
    fill: Fill = "lower",
    diag: int = 0,
    activation: Activation = "none",
    math: Math = "default",
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(y, pre): as forward, and pre = W x + bias, the value before the activation, which its derivative then reads."""
    y, pre = ops._forward_pre(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math)
    return y, pre


def grad_input(
    grad: torch.Tensor,
    weight: torch.Tensor,
    residual: Optional[torch.Tensor] = None,
    pad: int = 0,
    layout: Layout = "btd",
    fill: Fill = "lower",
    diag: int = 0,
    math: Math = "default",
) -> torch.Tensor:
    """dx = W^T grad + residual, for grad = dL/dy; both like x. pad, layout, fill and diag as given to forward."""
    dx: torch.Tensor = ops._grad_input(grad, weight, residual, pad, layout, fill, diag, math)
    return dx


def grad_weight(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight_size: Sequence[int],
    weight_dtype: torch.dtype,
    bias: bool = False,
    pad: int = 0,
    layout: Layout = "btd",
    fill: Fill = "lower",
    diag: int = 0,
    math: Math = "default",
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(dW, dbias) for grad = dL/dy: dW of weight_size and weight_dtype, exactly zero outside the triangle and beyond a prefix; dbias is empty
    unless bias=True asks for it."""
    dw, db = ops._grad_weight(grad, x, weight_size, weight_dtype, bias, pad, layout, fill, diag, math)
    return dw, db
