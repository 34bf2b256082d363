"""The functional form, and the operators as functions. One call of triangular_conv1d, any mode:

- In plain eager mode it goes to the derivative and the implementation without the dispatcher (ops.py), which costs more host time than the
  kernel launch.
- Under torch.compile, a dispatch mode, functorch or tracing, and for tensor subclasses, it is the operator torch.ops.trigen.forward; where
  forward mode or torch.func takes derivatives, it is transforms.py.
- A combination that ran before and that a GPU serves in the usual way is known (known.py): one check in C, then the launch.
"""

from __future__ import annotations

from typing import Optional, Sequence, Tuple, Union

import torch
from torch.autograd import forward_ad

from .. import recording, weights
from ..options import Activation, Fill, Form, Layout, Math, Padding
from . import arguments, known, ops, precision, transforms

_grad_enabled = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_autocast_dtype = torch.get_autocast_dtype
_calls, _tf32_is_allowed = known._calls, precision.tf32_is_allowed
_direct, _apply, _apply_known = ops.direct, ops.apply_direct, known.apply
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


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
    form: Form = "dense",
) -> torch.Tensor:
    """y[b,h,t,d] = act(bias[h,t] + sum over s in the triangle, j of W[h,t,s,j] x[b,h,s,d+j-pad]) * gate + residual

    x          [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T: a prefix uses W[:, :n, :n]
    weight     [T, T], [T, T, K] (nn.Conv1d(T, T, K).weight as it is) or [H, T, T, K]. What lies outside the triangle is never
               read; its gradient is exactly zero
    bias       [T], or [H, T] beside a weight with heads
    gate, residual   like x
    fill       "lower": s <= t + diagonal; "upper": s >= t + diagonal
    activation None, "gelu" (exact) or "silu"
    math       float32 only: "simt" (full precision), "f16x3" (the same on Hopper's tensor cores), "tf32", or "default":
               as PyTorch's switches for matrix products say
    form       what weight holds: "dense"; "toeplitz", [T] or [H, T], for W[h,t,s] = weight[h,t-s]; "band", [T, N] or [H, T, N], for
               W[h,t,s] = weight[h,t,s-t+N-1] where t - s < N, else 0. Lower triangle, one tap. No kernel makes anything of T x T

    dtypes: float16, bfloat16, float32 (x, gate, residual, y); weight and bias have x's dtype, or float32 beside 16-bit x. float64
    runs in plain torch. Returns y, contiguous, like x; of an x that lies transposed (x.mT) it lies so, too. Inputs need not be contiguous
    (docs/pytorch-reference.md says which are copied).
    Under autocast x, gate and residual are cast, weight and bias are not.
    Errors: ValueError, TypeError (arguments); trigen.TrigenError (libtrigen). Runs on the current stream of x's device and does not
    synchronise.
    """
    key = None
    if form == "band":
        weight = arguments.within(weight, x, layout)
    if gate is None and residual is None and not _compiling():
        try:
            key = (x.shape, padding, layout, fill, diagonal, activation, math, form, bias is None)
            calls = _calls.get(key, ())
        except (TypeError, AttributeError):  # no tensor, or an option that is no option: refused by name below
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
                    return _apply_known(x, weight, bias, x_pointer, weight_pointer, call)
                return call.forward(x, bias, x_pointer, weight_pointer)
    arguments.check_tensor(x, "x")
    lying = arguments.as_it_lies(x, gate, residual, layout) if layout in arguments.LAYOUTS else None
    if lying is not None:
        arguments.check_activations(x, weight.shape, layout, form)  # refuses in the words of this layout
        x, gate, residual, layout = lying
    given, autocast, eager = x, None, not _compiling() and _direct(x, weight)
    if eager and _any_autocast():
        device = "cuda" if x.is_cuda else "cpu"
        if torch.is_autocast_enabled(device):
            autocast = _autocast_dtype(device)
            x, weight, bias, gate, residual = ops.autocast_tensors(autocast, x, weight, bias, gate, residual)
    if lying is not None or (x is not given and key is not None):  # cast after a norm, say; what is left may be known
        y = triangular_conv1d(
            x,
            weight,
            bias,
            gate=gate,
            residual=residual,
            padding=padding,
            layout=layout,
            fill=fill,
            diagonal=diagonal,
            activation=activation,
            math=math,
            form=form,
        )
        return y if lying is None else y.mT
    pad = padding if type(padding) is int else resolve_padding(padding, weights.taps_of(weight.shape, form))
    options = (pad, layout, fill, diagonal, activation or "none", math, form)
    if not eager:
        return _dispatched(x, weight, bias, gate, residual, options)
    y = _eager(x, weight, bias, gate, residual, options)
    if key is not None and x.is_cuda and recording.active is None:
        known.learn(key, x, weight, bias, options, autocast)
    return y


def _eager(x, weight, bias, gate, residual, options):
    run = ops.kernels_of(x).run_forward
    if not ops.recorded(x, weight, bias, gate, residual):
        return run(x, weight, bias, gate, residual, options, False)[0]
    if gate is None and options[4] == "none":
        return _apply(x, weight, bias, gate, residual, (options, False, run))
    return _apply(x, weight, bias, gate, residual, (options, True, run))[0]


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


# ---- the operators as functions: for code that takes derivatives by hand. Shapes: arguments.py ----------------------------


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
    form: Form = "dense",
) -> torch.Tensor:
    """y = act(W x + bias) * gate + residual, contiguous, like x.

    x, gate, residual   [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T
    weight, bias        [T, T], [T, T, K] or [H, T, T, K]; [T], or [H, T] beside a weight with heads
    pad                 features of zero padding on the left, 0 to K-1 ((K-1)//2 is nn.Conv1d's "same")
    fill, diag          the triangle: lower is s <= t + diag, upper is s >= t + diag
    form                what weight holds, as triangular_conv1d says; a band is no wider than n

    Differentiable in all five tensors; the value before an activation is computed again for that (forward_pre keeps it)."""
    y: torch.Tensor = ops._forward(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math, form)
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
    form: Form = "dense",
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(y, pre): as forward, and pre = W x + bias, the value before the activation, which its derivative then reads."""
    y, pre = ops._forward_pre(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math, form)
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
    form: Form = "dense",
) -> torch.Tensor:
    """dx = W^T grad + residual, for grad = dL/dy; both like x. pad, layout, fill, diag and form as given to forward."""
    dx: torch.Tensor = ops._grad_input(grad, weight, residual, pad, layout, fill, diag, math, form)
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
    form: Form = "dense",
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(dW, dbias) for grad = dL/dy: dW of weight_size and weight_dtype, exactly zero outside the triangle and beyond a prefix; dbias is empty
    unless bias=True asks for it."""
    dw, db = ops._grad_weight(grad, x, weight_size, weight_dtype, bias, pad, layout, fill, diag, math, form)
    return dw, db
