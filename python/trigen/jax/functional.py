"""triangular_conv1d in JAX: checks of what it is given. Its derivatives: derivatives.py."""

from __future__ import annotations

from typing import Optional, Union

import jax
import jax.numpy as jnp

from .. import errors, weights
from ..library import MATHS
from ..options import Activation, Fill, Form, Layout, Math, Padding
from .derivatives import mix
from .primitive import Spec, vary, varying

_SHORT = ("float16", "bfloat16")
_DTYPES = (*_SHORT, "float32", "float64")


# ---- the public form -----------------------------------------------------------------------------------------------------


def _one_of(name: str, value, allowed) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not known; allowed: {', '.join(allowed)}")


def _check_dtype(name: str, array) -> None:
    if array.dtype.name not in _DTYPES:
        raise TypeError(
            f"{name} has dtype {array.dtype.name}; allowed: float16, bfloat16, float32 (and float64, without a kernel)"
        )


def _check(x, weight, bias, extras, layout: str, form: str):
    """(H, T, K, width) of the weight. Refuses shapes and dtypes that no kernel takes: found, allowed."""
    if x.ndim != 3:
        axes = "[batch, tokens, features]" if layout == "btd" else "[batch, features, tokens]"
        raise ValueError(f"x has shape {list(x.shape)}; allowed: rank 3, {axes} (layout={layout}); jax.vmap adds axes")
    heads, tokens, taps, width = weights.check_size(weight.shape, form)
    n, features = (x.shape[1], x.shape[2]) if layout == "btd" else (x.shape[2], x.shape[1])
    if not 1 <= n <= tokens:
        raise ValueError(
            f"x has {n} tokens (shape {list(x.shape)}, layout={layout}) while weight has shape {list(weight.shape)}; allowed: 1 to {tokens}"
        )
    if n < tokens == features:
        errors.warn_of_transposed(x.shape, tokens, layout)
    if features == 0 or features % heads:
        raise ValueError(
            f"x has {features} features (shape {list(x.shape)}) while weight has {heads} heads; allowed: a multiple of {heads}"
        )
    _check_dtype("x", x)
    name = x.dtype.name
    if weight.dtype != x.dtype and not (weight.dtype == jnp.float32 and name in _SHORT):
        raise TypeError(
            f"weight has dtype {weight.dtype.name} while x has {name}; allowed beside it: {name}{' or float32' if name in _SHORT else ''}"
        )
    if bias is not None:
        if not weights.takes_bias(weight.shape, form, bias.shape) or bias.dtype != weight.dtype:
            raise ValueError(
                f"bias has shape {list(bias.shape)} and dtype {bias.dtype.name}; allowed: "
                f"{weights.bias_size(weight.shape, form)} of weight's dtype {weight.dtype.name}"
            )
    _check_extras(x, extras)
    return heads, tokens, taps, width


def _check_extras(x, extras) -> None:
    for what, extra in extras:
        if extra is not None and (extra.shape, extra.dtype) != (x.shape, x.dtype):
            raise ValueError(
                f"{what} has shape {list(extra.shape)} and dtype {extra.dtype.name}; allowed: x's {list(x.shape)} and {x.dtype.name}"
            )


def _resolve_math(math: str, dtype) -> str:
    """float32 follows JAX's own switch, jax_default_matmul_precision, unless the caller says otherwise."""
    if dtype != jnp.float32:
        return "default"
    if math != "default":
        return math
    return (
        "simt"
        if jax.config.jax_default_matmul_precision in ("highest", "float32", "F32_F32_F32")
        else "tf32 where it is"
    )


def _same_axes(arrays):
    """Under shard_map an array that all shards share is made one of each shard's own, so that its gradient is summed over them."""
    axes = frozenset().union(*(varying(one) for one in arrays if one is not None))
    return [None if one is None else vary(one, axes) for one in arrays]


def triangular_conv1d(
    x: jax.typing.ArrayLike,
    weight: jax.typing.ArrayLike,
    bias: Optional[jax.typing.ArrayLike] = None,
    *,
    gate: Optional[jax.typing.ArrayLike] = None,
    residual: Optional[jax.typing.ArrayLike] = None,
    padding: Padding = "same",
    layout: Layout = "btd",
    fill: Fill = "lower",
    diagonal: int = 0,
    activation: Optional[Activation] = None,
    math: Math = "default",
    form: Form = "dense",
) -> jax.Array:
    """y[b,h,t,d] = act(bias[h,t] + sum over s in the triangle, j of W[h,t,s,j] x[b,h,s,d+j-pad]) * gate + residual

    x          [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T: a prefix uses W[:, :n, :n]
    weight     [T, T], [T, T, K] or [H, T, T, K]. What lies outside the triangle is never read; its gradient is exactly zero
    bias       [T], or [H, T] beside a weight with heads
    gate, residual   like x
    padding    "same" ((K-1)//2 features on the left), "causal" (K-1) or that number
    fill       "lower": s <= t + diagonal; "upper": s >= t + diagonal
    activation None, "gelu" (exact) or "silu"
    math       float32 only: "simt" (full precision), "f16x3" (the same on Hopper's tensor cores), "tf32", or "default":
               as jax_default_matmul_precision says
    form       what weight holds: "dense"; "toeplitz", [T] or [H, T], for W[h,t,s] = weight[h,t-s]; "band", [T, N] or [H, T, N], for
               W[h,t,s] = weight[h,t,s-t+N-1] where t - s < N, else 0. Lower triangle, one tap. No kernel makes anything of T x T

    dtypes: float16, bfloat16, float32; weight and bias have x's dtype, or float32 beside 16-bit x. float64 runs in lax operations. Gradients of
    any order in reverse mode; jax.vmap, jax.jit and jax.shard_map. Under jit with sharded arrays and no shard_map XLA gathers the
    operands on every device, as for any foreign call. On a GPU the kernel runs on XLA's stream and does not synchronise."""
    for name, value, allowed in (
        ("layout", layout, ("btd", "bdt")),
        ("fill", fill, ("lower", "upper")),
        ("activation", activation or "none", ("none", "gelu", "silu")),
        ("math", math, tuple(MATHS)),
        ("form", form, tuple(weights.SHAPES)),
    ):
        _one_of(name, value, allowed)
    weights.check_triangle(form, fill, diagonal)
    x, weight = jnp.asarray(x), jnp.asarray(weight)
    bias, gate, residual = (None if one is None else jnp.asarray(one) for one in (bias, gate, residual))
    heads, tokens, taps, width = _check(x, weight, bias, (("gate", gate), ("residual", residual)), layout, form)
    pad = resolve_padding(padding, taps)
    n = x.shape[1 if layout == "btd" else 2]
    if form == "dense":
        weight = weight.reshape(heads, tokens, tokens, taps)[:, :n, :n]
    elif form == "toeplitz":
        weight = weight.reshape(heads, tokens)[:, :n]
    else:  # of a band wider than x has tokens a row's last ones
        weight = weight.reshape(heads, tokens, width)[:, :n, max(0, width - n) :]
    if bias is not None:
        bias = bias.reshape(heads, tokens)[:, :n]
    spec = Spec(
        "forward",
        heads,
        taps,
        pad,
        layout,
        fill,
        int(diagonal),
        _resolve_math(math, x.dtype),
        weight.dtype.name,
        activation or "none",
        bias is not None,
        gate is not None,
        residual is not None,
        form=form,
        width=min(width, n),
    )
    return mix(spec, *_same_axes([x, weight, bias, gate, residual]))


def resolve_padding(padding: Union[int, str], taps: int) -> int:
    pad = {"same": (taps - 1) // 2, "causal": taps - 1}.get(padding, padding) if not isinstance(padding, bool) else None
    if not isinstance(pad, int) or not 0 <= pad < taps:
        raise ValueError(f"padding={padding!r}; allowed: 'same', 'causal' or 0 to K-1 = {taps - 1}")
    return pad
