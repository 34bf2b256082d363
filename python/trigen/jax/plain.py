"""The products in lax operations: every platform without kernels, float64, and the definition that kernels are tested against.

Activations [B, n, H*D] (btd) or [B, H*D, n] (bdt), weight [H, n, n, K], or of form "toeplitz" [H, n], of "band" [H, n, width]; bias [H, n]. As the
kernels do: the weight is masked by index (its other triangle may hold anything, NaN included) and rounded to x's dtype; 16-bit data is summed in
float32 and rounded once."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def compute_dtype(dtype):
    return jnp.float32 if jnp.dtype(dtype).itemsize == 2 else dtype


def activate(q, activation: str):
    if activation == "gelu":
        return jax.nn.gelu(q, approximate=False)
    return jax.nn.silu(q) if activation == "silu" else q


def triangle(n: int, fill: str, diag: int):
    t, s = jnp.arange(n)[:, None], jnp.arange(n)[None, :]
    return s <= t + diag if fill == "lower" else s >= t + diag


def heads_first(x, heads: int, layout: str):
    """[B, H, n, D] in the dtype of sums."""
    if layout == "btd":
        x = x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)
    else:
        x = x.reshape(x.shape[0], heads, x.shape[1] // heads, x.shape[2]).transpose(0, 1, 3, 2)
    return x.astype(compute_dtype(x.dtype))


def heads_last(y, layout: str, dtype):
    batch, heads, n, features = y.shape
    if layout == "btd":
        return y.transpose(0, 2, 1, 3).reshape(batch, n, heads * features).astype(dtype)
    return y.transpose(0, 1, 3, 2).reshape(batch, heads * features, n).astype(dtype)


def _in_full(weight, form: str):
    """[H, n, n, K]."""
    if form == "dense":
        return weight
    n = weight.shape[1]
    distance = jnp.arange(n)[:, None] - jnp.arange(n)
    if form == "toeplitz":
        return weight[:, distance.clip(0)][..., None]
    width = weight.shape[2]
    full = jnp.take_along_axis(weight, (width - 1 - distance).clip(0, width - 1)[None], 2)
    return jnp.where(distance < width, full, 0)[..., None]


def _of_form(dw, form: str, width: int):
    """The gradient of the numbers that stand for W, [H, n] or [H, n, width], of dW [H, n, n, 1]."""
    if form == "dense":
        return dw
    n = dw.shape[1]
    distance = jnp.arange(n) if form == "toeplitz" else jnp.arange(width)[::-1]
    s = jnp.arange(n)[:, None] - distance
    rows = jnp.where(s >= 0, jnp.take_along_axis(dw[..., 0], s.clip(0)[None], 2), 0)
    return rows.sum(1) if form == "toeplitz" else rows


def _masked(weight, dtype, fill: str, diag: int):
    weight = weight.astype(dtype).astype(compute_dtype(dtype))
    return jnp.where(triangle(weight.shape[1], fill, diag)[None, :, :, None], weight, 0)


def _padded(x, left: int, right: int):
    return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (left, right)))


def _sum(parts):
    return sum(parts[1:], parts[0])


def forward(x, weight, bias, gate, residual, *, pad, layout, fill, diag, activation, form="dense"):
    """(y, the value before the activation)."""
    weight = _in_full(weight, form)
    heads, _, _, taps = weight.shape
    masked, seen = _masked(weight, x.dtype, fill, diag), heads_first(x, heads, layout)
    features = seen.shape[-1]
    seen = _padded(seen, pad, taps - 1 - pad)
    q = _sum(
        [
            jnp.einsum("hts,bhsd->bhtd", masked[..., j], seen[..., j : j + features], precision="highest")
            for j in range(taps)
        ]
    )
    return finish(q, bias, gate, residual, layout, activation, x.dtype)


def finish(q, bias, gate, residual, layout: str, activation: str, dtype):
    """(y, the value before the activation) of the sums q [B, H, n, D]."""
    heads = q.shape[1]
    if bias is not None:
        q = q + bias.astype(q.dtype)[None, :, :, None]
    y = activate(q, activation)
    if gate is not None:
        y = y * heads_first(gate, heads, layout)
    if residual is not None:
        y = y + heads_first(residual, heads, layout)
    return heads_last(y, layout, dtype), heads_last(q, layout, dtype)


def grad_input(grad, weight, *, pad, layout, fill, diag, form="dense"):
    weight = _in_full(weight, form)
    heads, _, _, taps = weight.shape
    masked, seen = _masked(weight, grad.dtype, fill, diag), heads_first(grad, heads, layout)
    features = seen.shape[-1]
    seen = _padded(seen, taps - 1 - pad, pad)
    dx = _sum(
        [
            jnp.einsum(
                "hts,bhtd->bhsd", masked[..., j], seen[..., taps - 1 - j : taps - 1 - j + features], precision="highest"
            )
            for j in range(taps)
        ]
    )
    return heads_last(dx, layout, grad.dtype)


def grad_weight(grad, x, *, heads, taps, weight_dtype, pad, layout, fill, diag, form="dense", width=0):
    """(dW, zero outside the triangle; grad_bias)."""
    grad, seen = heads_first(grad, heads, layout), heads_first(x, heads, layout)
    features = seen.shape[-1]
    seen = _padded(seen, pad, taps - 1 - pad)
    dw = jnp.stack(
        [jnp.einsum("bhtd,bhsd->hts", grad, seen[..., j : j + features], precision="highest") for j in range(taps)], -1
    )
    dw = jnp.where(triangle(dw.shape[1], fill, diag)[None, :, :, None], dw, 0)
    return _of_form(dw, form, width).astype(weight_dtype), grad.sum((0, 3)).astype(weight_dtype)


def gram(a, b, c, *, alpha, beta, gamma, fill, dtype):
    """[n, m, m]; of fill "lower" and "upper" zeros in the other triangle."""
    wide = compute_dtype(a.dtype)
    d = alpha * jnp.einsum("nmk,nlk->nml", a.astype(wide), b.astype(wide), precision="highest")
    if c is not None and beta != 0:
        d = d + beta * c.astype(wide)
    d = d + gamma * jnp.eye(d.shape[1], dtype=wide)
    inside = triangle(d.shape[1], "lower" if fill == "both" else fill, 0)
    return jnp.where(inside, d, d.mT if fill == "both" else 0).astype(dtype)
