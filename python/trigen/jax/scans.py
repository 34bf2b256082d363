"""Token mixers whose W is a few vectors, in JAX: scan, and decoding with one state in place of a cache of tokens.

The vectors become one array w [H, 4, n] (source, target, decay, diagonal) by differentiable operations of JAX's, so that broadcasting,
clipping and powers have their gradients."""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import errors
from ..decays import check_decay
from ..options import Activation, Layout
from . import recurrence
from .derivatives import mix
from .functional import _check_dtype, _check_extras, _one_of, _same_axes
from .primitive import Spec

Vector = Optional[jax.typing.ArrayLike]

Given = Sequence[Vector]  # source, target, decay, diagonal, bias

_NAMES = ("source", "target", "decay", "diagonal")


def scan(
    x: jax.typing.ArrayLike,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[jax.typing.ArrayLike] = None,
    *,
    gate: Optional[jax.typing.ArrayLike] = None,
    residual: Optional[jax.typing.ArrayLike] = None,
    layout: Layout = "btd",
    activation: Optional[Activation] = None,
    decay_range: Optional[Tuple[float, float]] = None,
    decay_constant: float = 1.0,
) -> jax.Array:
    """y[b,h,t,d] = act(bias[h,t] + sum over s <= t of W[h,t,s] x[b,h,s,d]) * gate + residual, for a W that is vectors:

    W[h,t,s] = target[h,t] decay[h,t] decay[h,t-1] ... decay[h,s+1] source[h,s] for s < t,   W[h,t,t] = diagonal[h,t]

    x          [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T: a prefix uses the vectors' first n elements
    source, target, decay, diagonal   [T], [H, T], or what broadcasts to that: a number, [H, 1]; decay also [H], beside others that have H
               rows. Left out, the first three are ones and diagonal is source * target. decay[0] does not count
    decay_range, decay_constant   the decay is clip(decay, *decay_range) ** (1 / decay_constant), in the recurrence's dtype; a decay at a
               bound has the derivative of one inside, as torch.clip's
    bias       [T] or [H, T]
    gate, residual   like x
    activation None, "gelu" (exact) or "silu"

    dtypes: float16, bfloat16, float32 (x, gate, residual, y), float64 in lax operations; vectors and bias of any floating dtype: they are
    computed with in float32 (float64 beside float64), as the recurrence is, and rounded to nothing shorter. Returns y, like x.
    Gradients in reverse mode, those of an order above the first in lax operations; jax.vmap, jax.jit and jax.shard_map, as
    triangular_conv1d. Without a kernel lax operations compute all of it, without a matrix of T x T.
    Errors: ValueError, TypeError (arguments); trigen.TrigenError (libtrigen). On a GPU the kernel runs on XLA's stream and does not
    synchronise."""
    _one_of("activation", activation or "none", ("none", "gelu", "silu"))
    x = jnp.asarray(x)
    given = source, target, decay, diagonal, bias
    w, bias = _operands(x, layout, given, decay_range, decay_constant)
    gate, residual = (None if one is None else jnp.asarray(one) for one in (gate, residual))
    _check_extras(x, (("gate", gate), ("residual", residual)))
    spec = Spec(
        "scan",
        heads=w.shape[0],
        taps=1,
        pad=0,
        layout=layout,
        fill="lower",
        diag=0,
        math="default",
        weight_dtype=w.dtype.name,
        activation=activation or "none",
        bias=bias is not None,
        gate=gate is not None,
        residual=residual is not None,
    )
    return mix(spec, *_same_axes([x, w, bias, gate, residual]))


# ---- the vectors ---------------------------------------------------------------------------------------------------------


def _wide(x):
    """The dtype of vectors and states beside x."""
    return jnp.float64 if x.dtype == jnp.float64 else jnp.float32


def _decay(raw, clip: Optional[Tuple[float, float]], constant: float):
    """clip(raw) ** (1 / constant). jnp.clip's derivative is a half at the bounds, where decays begin."""
    if clip is not None:
        lowest, highest = clip
        raw = jnp.where((raw >= lowest) & (raw <= highest), raw, jax.lax.stop_gradient(jnp.clip(raw, lowest, highest)))
    return raw if constant == 1 else raw ** (1 / constant)


def _rows(x, given: Given, decay_range, decay_constant) -> Tuple[Dict[str, jax.Array], int, int]:
    """(each vector that is there as [H or 1, T or 1] of the dtype of recurrences, H, T). T is 1 where none has more."""
    shaped: Dict[str, jax.Array] = {}
    heads = tokens = 1
    of_heads: Optional[jax.Array] = None  # a decay of one axis, which the others' shapes name
    clip = check_decay(decay_range, decay_constant)
    for name, value in zip((*_NAMES, "bias"), given):
        if value is None:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = jnp.full((), value, _wide(x))
        value = jnp.asarray(value)
        if value.ndim > 2 or not jnp.issubdtype(value.dtype, jnp.floating):
            raise ValueError(
                f"{name} is {value.dtype.name} {list(value.shape)}; allowed: a number, or a floating array [T], [heads, T] or [heads, 1]"
            )
        value = value.astype(_wide(x))
        if name == "decay":
            value = _decay(value, clip, decay_constant)
        if name == "decay" and value.ndim == 1 and value.shape[0] > 1:
            of_heads = value
            continue
        shaped[name] = value = value.reshape(1, -1) if value.ndim < 2 else value
        heads = _agree(name, value, 0, heads, "heads")
        tokens = _agree(name, value, 1, tokens, "tokens")
    if of_heads is not None:
        size = of_heads.shape[0]
        if size == heads and size == tokens:
            raise ValueError(
                f"decay has shape [{size}], and there are {heads} heads of {tokens} tokens; allowed: [{heads}, 1] for one of each head, "
                f"[1, {tokens}] for one of each token"
            )
        shaped["decay"] = value = jnp.expand_dims(of_heads, 1 if size == heads else 0)
        tokens = _agree("decay", value, 1, tokens, "tokens")
    return shaped, heads, tokens


def _agree(name: str, value, axis: int, size: int, what: str) -> int:
    found = value.shape[axis]
    if found < 1 or (found > 1 and size > 1 and found != size):
        raise ValueError(
            f"{name} has shape {list(value.shape)}: {found} {what}; allowed beside the other vectors: {size} or 1"
        )
    return max(size, found)


def _stacked(x, shaped: Dict[str, jax.Array], heads: int, n: int) -> Tuple[jax.Array, Optional[jax.Array]]:
    """(w [H, 4, n], bias [H, n] or None), of vectors of n or 1 elements."""
    one = jnp.ones((1, 1), _wide(x))
    source, target, decay = (shaped.get(name, one) for name in _NAMES[:3])
    parts = source, target, decay, shaped.get("diagonal", source * target)
    bias = shaped.get("bias")
    w = jnp.stack([jnp.broadcast_to(part, (heads, n)) for part in parts], 1)
    return w, None if bias is None else jnp.broadcast_to(bias, (heads, n))


def _check_features(x, features: int, heads: int) -> None:
    if features == 0 or features % heads:
        raise ValueError(
            f"x has {features} features (shape {list(x.shape)}) while the vectors have {heads} heads; allowed: a multiple of {heads} "
            f"(vectors are [T], or [heads, T])"
        )


def _operands(x, layout, given: Given, decay_range, decay_constant) -> Tuple[jax.Array, Optional[jax.Array]]:
    """w and bias, as long as x."""
    _one_of("layout", layout, ("btd", "bdt"))
    if x.ndim != 3:
        axes = "[batch, tokens, features]" if layout == "btd" else "[batch, features, tokens]"
        raise ValueError(f"x has shape {list(x.shape)}; allowed: rank 3, {axes} (layout={layout}); jax.vmap adds axes")
    _check_dtype("x", x)
    shaped, heads, tokens = _rows(x, given, decay_range, decay_constant)
    n, features = (x.shape[1], x.shape[2]) if layout == "btd" else (x.shape[2], x.shape[1])
    if n < 1 or n > tokens > 1:
        raise ValueError(
            f"x has {n} tokens (shape {list(x.shape)}, layout={layout}) while the vectors have {tokens}; allowed: 1 to {tokens}"
            if tokens > 1
            else f"x has {n} tokens (shape {list(x.shape)}, layout={layout}); allowed: at least 1"
        )
    if n < tokens == features:
        errors.warn_of_transposed(x.shape, tokens, layout)
    _check_features(x, features, heads)
    return _stacked(x, {name: value[:, :n] for name, value in shaped.items()}, heads, n)


# ---- decoding ------------------------------------------------------------------------------------------------------------


def scan_state(
    x: jax.typing.ArrayLike,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[jax.typing.ArrayLike] = None,
    *,
    layout: Layout = "btd",
    decay_range: Optional[Tuple[float, float]] = None,
    decay_constant: float = 1.0,
) -> jax.Array:
    """The state that scan's tokens x leave, [B, H*D] of float32 (float64 beside float64), for scan_step: S[n-1] of

    S[t] = decay[t] S[t-1] + source[t] x[t],   S[-1] = 0

    x, the vectors, decay_range and decay_constant as scan's. target, diagonal and bias do not enter; they may be given, so that one set of
    arguments serves all three functions. Operations of jax.numpy, with all of its transforms."""
    x = jnp.asarray(x)
    w, _ = _operands(x, layout, (source, target, decay, diagonal, bias), decay_range, decay_constant)
    return recurrence.last_state(x, w, layout=layout).reshape(x.shape[0], -1)


def scan_step(
    x: jax.typing.ArrayLike,
    t: jax.typing.ArrayLike,
    state: jax.typing.ArrayLike,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[jax.typing.ArrayLike] = None,
    *,
    decay_range: Optional[Tuple[float, float]] = None,
    decay_constant: float = 1.0,
) -> Tuple[jax.Array, jax.Array]:
    """(y, the state after it): scan's output for token t, given the state after token t-1. Work and memory of one token, whatever t.

    y = bias[t] + target[t] decay[t] state + diagonal[t] x,   state' = decay[t] state + source[t] x

    x       [B, H*D], token t of each sequence
    t       0 <= t < T, a number or a traced scalar, as lax.scan and lax.fori_loop have it, whose range is not checked
    state   [B, H*D] of float32 (float64 beside float64), scan_state's or the last step's; zeros before the first token
    vectors, decay_range, decay_constant as scan's

    y has x's dtype, rounded once. Operations of jax.numpy, with all of its transforms."""
    x, state = jnp.asarray(x), jnp.asarray(state)
    if x.ndim != 2:
        raise ValueError(f"x has shape {list(x.shape)}; allowed: [batch, features], one token of each sequence")
    _check_dtype("x", x)
    wide = jnp.dtype(_wide(x))
    if (state.shape, state.dtype) != (x.shape, wide):
        raise ValueError(f"state is {state.dtype.name} {list(state.shape)}; allowed: {wide.name} {list(x.shape)}")
    shaped, heads, tokens = _rows(x, (source, target, decay, diagonal, bias), decay_range, decay_constant)
    index = _token(t, tokens)
    shaped = {
        name: jax.lax.dynamic_slice_in_dim(value, index, 1, 1) if value.shape[1] > 1 else value
        for name, value in shaped.items()
    }
    _check_features(x, x.shape[1], heads)
    w, offset = _stacked(x, shaped, heads, 1)
    write, read, keep, diag = (w[:, row] for row in range(4))  # [H, 1]
    keep = jnp.where(jnp.equal(index, 0), 0, keep)
    token, before = (one.astype(wide).reshape(x.shape[0], heads, -1) for one in (x, state))
    y = read * keep * before + diag * token
    after = keep * before + write * token
    y = y if offset is None else y + offset
    return y.reshape(x.shape).astype(x.dtype), after.reshape(x.shape)


def _token(t, tokens: int):
    """t, where it names a token; a traced one may be any."""
    traced = isinstance(t, jax.core.Tracer)
    found = t if traced else np.asarray(t)
    right = found.shape == () and jnp.issubdtype(found.dtype, jnp.integer)
    if not right or (not traced and (found < 0 or (tokens > 1 and found >= tokens))):
        raise ValueError(f"t={t!r}; allowed: an integer from 0 {f'to {tokens - 1}' if tokens > 1 else 'on'}")
    return t
