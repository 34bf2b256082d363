"""Products with a W that is four vectors, in plain torch: the CPU implementation of scans.py, the fallback, and what is differentiated twice.

w [4, H, n]: source, target, decay and diagonal of each head. x, dy: [B, H, n, D], float32 or float64. Rows are recurrences, put together
from windows of 1, 2, 4 ... tokens: work of B n D log n, nothing of n x n elements. No decay is divided by, so zeros are as good as others.
"""

from __future__ import annotations

import torch

from . import plain
from .arguments import Sizes


def states(decay: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """S[t] = decay[t] S[t-1] + added[t], S before the first token being 0. decay [H, n] (that of the first token does not count), added
    [B, H, n, D]."""
    n, window = added.shape[2], 1
    decay = decay.unsqueeze(-1)
    while window < n:  # S: of each window's tokens alone; decay: the products over a window
        added = torch.cat((added[:, :, :window], added[:, :, window:] + decay[:, window:] * added[:, :, :-window]), 2)
        decay = torch.cat((decay[:, :window], decay[:, window:] * decay[:, :-window]), 1)
        window *= 2
    return added


def _before(states: torch.Tensor) -> torch.Tensor:
    """What each token finds: the state that the token before it left."""
    return torch.nn.functional.pad(states[:, :, :-1], (0, 0, 1, 0))


def _behind(decay: torch.Tensor) -> torch.Tensor:
    """The decay of the token behind each one; 0 behind the last."""
    return torch.nn.functional.pad(decay[:, 1:], (0, 1))


def _gains(w: torch.Tensor, dtype: torch.dtype):
    """source, target, decay and diagonal; the first token's decay, which does not count, is 0."""
    source, target, decay, diagonal = w.to(dtype).unbind()
    return source, target, torch.nn.functional.pad(decay[:, 1:], (1, 0)), diagonal


def multiply(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """W x."""
    source, target, decay, diagonal = _gains(w, x.dtype)
    found = _before(states(decay, source.unsqueeze(-1) * x))
    return (target * decay).unsqueeze(-1) * found + diagonal.unsqueeze(-1) * x


def _states_behind(target: torch.Tensor, decay: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """G[t] = target[t] dy[t] + decay[t+1] G[t+1]."""
    return states(_behind(decay).flip(1), (target.unsqueeze(-1) * dy).flip(2)).flip(2)


def _from_behind(decay: torch.Tensor, behind: torch.Tensor) -> torch.Tensor:
    """decay[t+1] G[t+1]: what reaches a token from those behind it."""
    return _behind(decay).unsqueeze(-1) * torch.nn.functional.pad(behind[:, :, 1:], (0, 0, 0, 1))


def multiply_transposed(w: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """W^T dy."""
    source, target, decay, diagonal = _gains(w, dy.dtype)
    behind = _from_behind(decay, _states_behind(target, decay, dy))
    return source.unsqueeze(-1) * behind + diagonal.unsqueeze(-1) * dy


def vector_gradients(w: torch.Tensor, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The derivatives of the sum of dy * (W x) by w, [4, H, n]; that by the first token's decay is 0."""
    source, target, decay, _ = _gains(w, x.dtype)
    found = _before(states(decay, source.unsqueeze(-1) * x))
    behind = _states_behind(target, decay, dy)
    parts = (
        x * _from_behind(decay, behind),
        dy * found * decay.unsqueeze(-1),
        behind * found,
        x * dy,
    )
    return torch.stack([part.sum((0, 3)) for part in parts])


def last_state(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """S of the last token, [B, H, D]: one weighted sum."""
    source, _, decay, _ = _gains(w, x.dtype)
    reaching = torch.nn.functional.pad(decay[:, 1:], (0, 1), value=1.0).flip(1).cumprod(1).flip(1)
    return torch.einsum("bhnd,hn->bhd", x, source * reaching)


# ---- by cuda's names: tensors as the operators have them -------------------------------------------------------------------


@plain._without_autocast
def run(x, w, bias, gate, residual, sizes: Sizes, layout: str, activation: str, pre: bool):
    """(y, the value before the activation or None), like x and contiguous."""
    z = multiply(w, plain.heads_first(x, sizes, layout))
    if bias is not None:
        z = z + bias.to(z.dtype).unsqueeze(-1)
    y = plain.activate(z, activation)
    if gate is not None:
        y = y * plain.heads_first(gate, sizes, layout)
    if residual is not None:
        y = y + plain.heads_first(residual, sizes, layout)
    kept = plain.heads_last(z, sizes, layout, x.dtype).clone() if pre else None
    return plain.heads_last(y, sizes, layout, x.dtype), kept


@plain._without_autocast
def grad_input(grad, w, sizes: Sizes, layout: str):
    return plain.heads_last(multiply_transposed(w, plain.heads_first(grad, sizes, layout)), sizes, layout, grad.dtype)


@plain._without_autocast
def grad_weight(grad, x, w, bias: bool, sizes: Sizes, layout: str):
    """(dw [4, H, n], dbias [H, n] or empty), of w's dtype."""
    dy = plain.heads_first(grad, sizes, layout)
    dw = vector_gradients(w, plain.heads_first(x, sizes, layout), dy).to(w.dtype)
    return dw, dy.sum((0, 3)).to(w.dtype) if bias else dw.new_empty(0)
