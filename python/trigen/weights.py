"""Shapes of a weight, by its form: one number for each (t, s, tap), or fewer that stand for them (generator/problem.h)."""

from __future__ import annotations

from typing import List, Sequence, Tuple

SHAPES = {  # the last one with heads
    "dense": ("[T, T]", "[T, T, K]", "[heads, T, T, K]"),
    "toeplitz": ("[T]", "[heads, T]"),
    "band": ("[T, width]", "[heads, T, width]"),
}
_RANKS = {"dense": (2, 3), "toeplitz": (1,), "band": (2,)}  # without heads


def has_heads(size: Sequence[int], form: str) -> bool:
    """Whether the first axis is the heads'."""
    return len(size) == max(_RANKS[form]) + 1


def taps_of(size: Sequence[int], form: str) -> int:
    return size[-1] if form == "dense" and len(size) > 2 else 1


def bias_size(size: Sequence[int], form: str) -> List[int]:
    return list(size[: 2 if has_heads(size, form) else 1])


def takes_bias(size: Sequence[int], form: str, bias: Sequence[int]) -> bool:
    """Whether a bias of this shape goes with it. Beside one head it may leave that axis out."""
    allowed = bias_size(size, form)
    return list(bias) in (allowed, allowed[1:] if allowed[:-1] == [1] else allowed)


def check_size(size: Sequence[int], form: str) -> Tuple[int, int, int, int]:
    """(H, T, K, width) of a weight's shape; width is 0 but of a band."""
    shapes = SHAPES[form]
    allowed = f"{', '.join(shapes[:-1])} or {shapes[-1]}"
    heads = has_heads(size, form)
    if len(size) - heads not in _RANKS[form]:
        beside = "" if form == "dense" else f" with form={form!r}"
        raise ValueError(f"weight has shape {list(size)}{beside}; allowed: {allowed}")
    tokens, *others = size[1:] if heads else size
    if form == "dense" and tokens != others[0]:
        raise ValueError(
            f"weight has shape {list(size)}: {tokens} output tokens and {others[0]} input tokens; allowed: a square {allowed}"
        )
    if any(one < 1 for one in size):
        raise ValueError(f"weight has shape {list(size)}; every size must be at least 1")
    width = others[0] if form == "band" else 0
    if width > tokens:
        raise ValueError(
            f"weight has shape {list(size)}: a band of {width} tokens while there are {tokens}; allowed: a width of at most {tokens}"
        )
    return size[0] if heads else 1, tokens, taps_of(size, form), width


def check_triangle(form: str, fill: str, diag: int) -> None:
    if form != "dense" and (fill, diag) != ("lower", 0):
        raise ValueError(
            f"fill={fill!r} and diagonal={diag} with form={form!r}; allowed: fill='lower' and diagonal=0; form='dense' takes the others"
        )
