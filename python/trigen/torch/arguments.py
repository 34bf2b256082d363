"""Checks of the operators' tensors, and the sizes they imply. Used by every implementation (fake, plain, CUDA), so that all refuse
alike. Errors: what was found, what is allowed.

Shapes (n <= T tokens are given; T is what the weight was made for):

    x, y, gate, residual, pre   [B, n, H*D] (btd)  or  [B, H*D, n] (bdt)
    weight                      [T, T] (H = K = 1), [T, T, K] (H = 1; nn.Conv1d's), or [H, T, T, K]
                                of form "toeplitz" [T] or [H, T], of form "band" [T, width] or [H, T, width]
    bias                        [T], or [H, T] beside a weight with heads
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import NamedTuple, Optional, Sequence

import torch

from .. import errors, library, weights

LAYOUTS = ("btd", "bdt")
FILLS = ("lower", "upper")
ACTIVATIONS = ("none", "gelu", "silu")
MATHS = tuple(library.MATHS)
SHORT_DTYPES = (torch.float16, torch.bfloat16)
DTYPES = SHORT_DTYPES + (torch.float32, torch.float64)
# The largest size or flattened coordinate that the kernels index: 2^31 less one tile.
MAX_COORDINATE = 2**31 - 2**16


class Options(NamedTuple):
    """The operators' options, as their schemas have them."""

    pad: int = 0
    layout: str = "btd"
    fill: str = "lower"
    diag: int = 0
    activation: str = "none"
    math: str = "default"
    form: str = "dense"


_prefix_is_meant = contextvars.ContextVar("prefix_is_meant", default=False)


class Sizes(NamedTuple):
    B: int  # batch
    H: int  # heads
    n: int  # tokens of x
    D: int  # features of one head
    K: int  # taps
    T: int  # tokens of the weight
    form: str = "dense"
    width: int = 0  # of a band

    @property
    def weight_rows(self):
        """Rows and their elements that one head's weight has in memory: generator/ops.h."""
        return (1, self.T) if self.form == "toeplitz" else (self.T, self.width or self.T * self.K)


def _shape(tensor) -> str:
    return str(list(tensor.shape))


def check_options(layout: str, fill: str, diag: int, activation: str, math: str, form: str) -> None:
    for name, value, allowed in (
        ("layout", layout, LAYOUTS),
        ("fill", fill, FILLS),
        ("activation", activation, ACTIVATIONS),
        ("math", math, MATHS),
        ("form", form, tuple(weights.SHAPES)),
    ):
        if value not in allowed:
            raise ValueError(f"{name}={value!r} is not known; allowed: {', '.join(allowed)}")
    weights.check_triangle(form, fill, diag)


def check_pad(pad: int, taps: int) -> None:
    if not 0 <= pad < taps:
        raise ValueError(f"pad={pad} is outside the taps; allowed: 0 to K-1 = {taps - 1} (K is weight's last size)")


def check_dtypes(name: str, dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        raise TypeError(
            f"{name} has dtype {dtype}; allowed: float16, bfloat16, float32 (and float64, without a kernel)"
        )
    if weight_dtype != dtype and not (weight_dtype == torch.float32 and dtype in SHORT_DTYPES):
        allowed = f"{dtype} or torch.float32" if dtype in SHORT_DTYPES else f"{dtype}"
        raise TypeError(
            f"weight has dtype {weight_dtype} while {name} has {dtype}; allowed beside it: {allowed}; "
            f"cast one of them, or call under torch.autocast"
        )


def within(weight, x, layout: str):
    """The part of a band that x's tokens meet: a row's last elements."""
    n = x.shape[1 if layout == "btd" else 2] if isinstance(x, torch.Tensor) and x.dim() == 3 else 0
    return weight[..., -n:] if weight.dim() > 1 and 0 < n < weight.shape[-1] <= weight.shape[-2] else weight


@contextlib.contextmanager
def prefix_is_meant():
    """Inside, fewer tokens than the weight's are no sign of a transposed tensor."""
    token = _prefix_is_meant.set(True)
    try:
        yield
    finally:
        _prefix_is_meant.reset(token)


def as_it_lies(x: torch.Tensor, gate: Optional[torch.Tensor], residual: Optional[torch.Tensor], layout: str):
    """(x.mT, gate.mT, residual.mT, the other layout) where each of them lies transposed, [B, n, D] as [B, D, n] or the other way round, such as
    a y.mT: that layout reads them without a copy, and what follows most likely transposes y back. Else None."""
    all_of_them = x, gate, residual
    if x.dim() != 3 or not all(
        one is None or (one.shape == x.shape and one.stride(1) == 1 and one.stride(2) != 1) for one in all_of_them
    ):
        return None
    return *(None if one is None else one.mT for one in all_of_them), "bdt" if layout == "btd" else "btd"


def check_tensor(x, name: str) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(
            f"{name} is a {type(x).__module__}.{type(x).__qualname__}; allowed: a torch.Tensor; torch.as_tensor({name}) makes one of arrays "
            f"and lists"
        )


def check_activations(x, weight_size: Sequence[int], layout: str, form: str, name: str = "x") -> Sizes:
    heads, tokens, taps, width = weights.check_size(weight_size, form)
    if x.dim() != 3:
        axes = "[batch, tokens, features]" if layout == "btd" else "[batch, features, tokens]"
        raise ValueError(f"{name} has shape {_shape(x)}; allowed: rank 3, {axes} (layout={layout})")
    if layout == "btd":
        batch, n, features = x.shape
    else:
        batch, features, n = x.shape
    if n > tokens:
        raise ValueError(
            f"{name} has {n} tokens (shape {_shape(x)}, layout={layout}) while weight has shape {list(weight_size)}; allowed: "
            f"at most {tokens} tokens"
        )
    # A symbolic size (a dynamic axis under torch.compile) is not compared with bounds here, which would bind the graph to them: the
    # implementation sees the real one.
    if any(isinstance(size, int) and size < 1 for size in (n, features)):
        raise ValueError(f"{name} has shape {_shape(x)}; every size but the batch's must be at least 1")
    if isinstance(n, int) and isinstance(features, int) and n < tokens == features and not _prefix_is_meant.get():
        errors.warn_of_transposed(x.shape, tokens, layout, name)
    if features % heads != 0:
        whole = form == "toeplitz" and heads == tokens  # T x T, as a full weight is
        raise ValueError(
            f"{name} has {features} features (shape {_shape(x)}) while weight {list(weight_size)} has {heads} heads; allowed: a multiple of "
            f"{heads}{', or of the Toeplitz matrix [T, T] its first column [T]' if whole else ''}"
        )
    for what, value in (("batch * features", batch * features), ("tokens * taps", tokens * taps), ("heads", heads)):
        if isinstance(value, int) and value > MAX_COORDINATE:
            raise ValueError(
                f"{name} has shape {_shape(x)} and weight {list(weight_size)}: {what} = {value}; allowed: at most {MAX_COORDINATE}"
            )
    if isinstance(n, int) and isinstance(width, int) and width > n:
        raise ValueError(
            f"weight has shape {list(weight_size)}: a band of {width} tokens while {name} has {n}; allowed: at most {n}, weight[..., -{n}:]"
        )
    return Sizes(batch, heads, n, features // heads, taps, tokens, form, width)


def heads_of_batch(x: Optional[torch.Tensor], heads: int) -> Optional[torch.Tensor]:
    """[B, heads * D, n] of [B * heads, D, n], as torch.bmm takes heads."""
    if x is None:
        return None
    if x.dim() != 3 or x.shape[0] % heads != 0:
        raise ValueError(f"x has shape {_shape(x)}; allowed: [batch * {heads}, features, tokens]")
    return x.reshape(x.shape[0] // heads, heads * x.shape[1], x.shape[2])


def check_like(name: str, tensor: Optional[torch.Tensor], x: torch.Tensor, reference: str = "x") -> None:
    """gate, residual and gradients have the shape, dtype and device of x."""
    if tensor is None:
        return
    if tensor.shape != x.shape:
        raise ValueError(f"{name} has shape {_shape(tensor)}; allowed: {reference}'s shape {_shape(x)}")
    if tensor.dtype != x.dtype:
        raise TypeError(f"{name} has dtype {tensor.dtype}; allowed: {reference}'s dtype {x.dtype}")
    check_device(name, tensor, x, reference)


def check_device(name: str, tensor, x, reference: str = "x") -> None:
    if tensor.device != x.device:
        raise ValueError(
            f"{name} (shape {_shape(tensor)}) is on {tensor.device} while {reference} is on {x.device}; allowed: one device; "
            f"move it with .to({str(x.device)!r})"
        )


def check_bias(
    bias: Optional[torch.Tensor], weight_size: Sequence[int], form: str, weight_dtype: torch.dtype, x
) -> None:
    if bias is None:
        return
    allowed = weights.bias_size(weight_size, form)
    if not weights.takes_bias(weight_size, form, bias.shape):
        raise ValueError(f"bias has shape {_shape(bias)} while weight has {list(weight_size)}; allowed: {allowed}")
    if bias.dtype != weight_dtype:
        raise TypeError(f"bias has dtype {bias.dtype}; allowed: weight's dtype {weight_dtype}")
    check_device("bias", bias, x)


def check_forward(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math, form) -> Sizes:
    check_options(layout, fill, diag, activation, math, form)
    sizes = check_activations(x, weight.shape, layout, form)
    check_pad(pad, sizes.K)
    check_dtypes("x", x.dtype, weight.dtype)
    check_device("weight", weight, x)
    check_bias(bias, weight.shape, form, weight.dtype, x)
    check_like("gate", gate, x)
    check_like("residual", residual, x)
    return sizes


def check_grad_input(grad, weight, residual, pad, layout, fill, diag, math, form) -> Sizes:
    check_options(layout, fill, diag, "none", math, form)
    sizes = check_activations(grad, weight.shape, layout, form, "grad")
    check_pad(pad, sizes.K)
    check_dtypes("grad", grad.dtype, weight.dtype)
    check_device("weight", weight, grad, "grad")
    check_like("residual", residual, grad, "grad")
    return sizes


def check_grad_weight(grad, x, weight_size, weight_dtype, pad, layout, fill, diag, math, form) -> Sizes:
    check_options(layout, fill, diag, "none", math, form)
    sizes = check_activations(x, weight_size, layout, form)
    check_pad(pad, sizes.K)
    check_dtypes("x", x.dtype, weight_dtype)
    check_like("grad", grad, x)
    return sizes
