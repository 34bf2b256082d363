"""Decoding of mixers whose W is a few vectors: one state a feature in place of a cache of tokens. Plain torch."""

from __future__ import annotations

from typing import Optional, Tuple

import torch

from ..options import Layout
from . import arguments, plain, recurrence, vectors
from .scans import check, check_features
from .vectors import Vector


@torch.no_grad()
def scan_state(
    x: torch.Tensor,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[torch.Tensor] = None,
    *,
    layout: Layout = "btd",
    decay_range: Optional[Tuple[float, float]] = None,
    decay_constant: float = 1.0,
) -> torch.Tensor:
    """The state that scan's tokens x leave, [B, H*D] of float32 (float64 beside float64), for scan_step: S[n-1] of

    S[t] = decay[t] S[t-1] + source[t] x[t],   S[-1] = 0

    x, the vectors, decay_range and decay_constant as scan's. target, diagonal and bias do not enter; they may be given, so that one set of
    arguments serves all three functions. Plain torch on the current stream; no gradients."""
    arguments.check_tensor(x, "x")
    arguments.check_options(layout, "lower", 0, "none", "default", "dense")
    given = vectors.tensors_of(x, (source, target, decay, diagonal, bias))
    w = vectors.placed(x, given, layout, decay_range, decay_constant).make(given)
    sizes = check(x, w, None, None, None, layout, "none")
    with torch._C._DisableAutocast():
        return recurrence.last_state(w, plain.heads_first(x, sizes, layout)).flatten(1)


@torch.no_grad()
def scan_step(
    x: torch.Tensor,
    t: int,
    state: torch.Tensor,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[torch.Tensor] = None,
    *,
    decay_range: Optional[Tuple[float, float]] = None,
    decay_constant: float = 1.0,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(y, the state after it): scan's output for token t, given the state after token t-1. Work and memory of one token, whatever t.

    y = bias[t] + target[t] decay[t] state + diagonal[t] x,   state' = decay[t] state + source[t] x

    x       [B, H*D], token t of each sequence
    t       0 <= t < T
    state   [B, H*D] of float32 (float64 beside float64), scan_state's or the last step's; zeros before the first token. Not changed
    vectors, decay_range, decay_constant as scan's

    y has x's dtype, rounded once. Plain torch on the current stream, so a CUDA graph or torch.compile can take it; no gradients."""
    arguments.check_tensor(x, "x")
    if x.dim() != 2:
        raise ValueError(f"x has shape {list(x.shape)}; allowed: [batch, features], one token of each sequence")
    arguments.check_dtypes("x", x.dtype, x.dtype)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    if state.shape != x.shape or state.dtype != wide or state.device != x.device:
        raise ValueError(
            f"state is {state.dtype} {list(state.shape)} on {state.device}; allowed: {wide} {list(x.shape)} on {x.device}"
        )
    given = vectors.tensors_of(x, (source, target, decay, diagonal, bias))
    these = vectors.Vectors(x, given, decay_range, decay_constant)
    heads, tokens = these.heads, these.tokens
    if isinstance(t, bool) or not isinstance(t, int) or t < 0 or (tokens > 1 and t >= tokens):
        raise ValueError(f"t={t!r}; allowed: an integer from 0 {f'to {tokens - 1}' if tokens > 1 else 'on'}")
    check_features(x.shape[1], heads, x)
    with torch._C._DisableAutocast():
        these.place(given, t, 1)
        w, offset = these.make(given), these.bias(given)
        write, read, keep, diag = w.unbind()  # [H, 1]
        if t == 0:
            keep = torch.zeros_like(keep)  # decay[0] does not count, whatever it holds
        token, before = (one.to(wide).unflatten(1, (heads, -1)) for one in (x, state))
        y = read * keep * before + diag * token
        after = keep * before + write * token
        y = y if offset is None else y + offset
    return y.flatten(1).to(x.dtype), after.flatten(1)
