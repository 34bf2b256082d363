"""Products with a W that is four vectors, in lax operations: scan on every platform without kernels, in float64, and what is differentiated
twice. By plain.py's names.

w [H, 4, n]: source, target, decay and diagonal of each head; activations as plain.py's. States are put together in a tree
(lax.associative_scan) in float32, of float64 data in that: work of B H n D, nothing of n x n elements. No decay is divided by, so zeros are
as good as others.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .plain import finish, heads_first, heads_last


def _behind(decay):
    """The decay of the token behind each one; 0 behind the last. [H, n]"""
    return jnp.pad(decay[:, 1:], ((0, 0), (0, 1)))


def gains(w, dtype):
    """source, target, decay and diagonal, [H, n]; the first token's decay, which does not count, is 0."""
    source, target, decay, diagonal = (w[:, row].astype(dtype) for row in range(4))
    return source, target, jnp.pad(decay[:, 1:], ((0, 0), (1, 0))), diagonal


def _states(decay, added, reverse=False):
    """S[t] = decay[t] S[t-1] + added[t], S before the first token being 0; reverse: S[t+1] in place of S[t-1]. decay [H, n], added [B, H, n, D]."""

    def join(one, two):
        return two[0] * one[0], two[0] * one[1] + two[1]

    return jax.lax.associative_scan(join, (decay[None, :, :, None], added), reverse=reverse, axis=2)[1]


def _states_ahead(source, decay, x):
    """What each token finds: the state that the token before it left."""
    states = _states(decay, source[..., None] * x)
    return jnp.pad(states[:, :, :-1], ((0, 0), (0, 0), (1, 0), (0, 0)))


def _states_behind(target, decay, dy):
    """G[t] = target[t] dy[t] + decay[t+1] G[t+1]."""
    return _states(_behind(decay), target[..., None] * dy, reverse=True)


def _from_behind(decay, behind):
    """decay[t+1] G[t+1]: what reaches a token from those behind it."""
    return _behind(decay)[..., None] * jnp.pad(behind[:, :, 1:], ((0, 0), (0, 0), (0, 1), (0, 0)))


def forward(x, w, bias, gate, residual, *, layout, activation):
    """(y, the value before the activation)."""
    seen = heads_first(x, w.shape[0], layout)
    source, target, decay, diagonal = gains(w, seen.dtype)
    q = (target * decay)[..., None] * _states_ahead(source, decay, seen) + diagonal[..., None] * seen
    return finish(q, bias, gate, residual, layout, activation, x.dtype)


def grad_input(grad, w, *, layout):
    dy = heads_first(grad, w.shape[0], layout)
    source, target, decay, diagonal = gains(w, dy.dtype)
    behind = _from_behind(decay, _states_behind(target, decay, dy))
    return heads_last(source[..., None] * behind + diagonal[..., None] * dy, layout, grad.dtype)


def grad_weight(grad, x, w, *, layout):
    """(dw [H, 4, n], that of the first token's decay being 0; grad_bias [H, n]), of w's dtype."""
    dy, seen = heads_first(grad, w.shape[0], layout), heads_first(x, w.shape[0], layout)
    source, target, decay, _ = gains(w, dy.dtype)
    found = _states_ahead(source, decay, seen)
    behind = _states_behind(target, decay, dy)
    parts = seen * _from_behind(decay, behind), dy * found * decay[..., None], behind * found, seen * dy
    return jnp.stack([part.sum((0, 3)) for part in parts], 1).astype(w.dtype), dy.sum((0, 3)).astype(w.dtype)


def last_state(x, w, *, layout):
    """S of the last token, [B, H, D]: one weighted sum."""
    seen = heads_first(x, w.shape[0], layout)
    source, _, decay, _ = gains(w, seen.dtype)
    reaching = jax.lax.cumprod(jnp.pad(decay[:, 1:], ((0, 0), (0, 1)), constant_values=1), axis=1, reverse=True)
    return jnp.einsum("bhnd,hn->bhd", seen, source * reaching, precision="highest")
