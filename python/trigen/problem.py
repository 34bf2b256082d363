"""The canonical text of a problem (generator/problem.h), built from sizes. Needs no library: a run on a CPU can write a problem list
for another machine. Equal to what libtrigen prints for the same problem; a test compares them.
"""

from __future__ import annotations

from typing import Iterable, Optional

from . import fields

ELEMENT = {"f16": 2, "bf16": 2, "f32": 4}  # bytes


def dividing_power(value: int, limit: int = 16) -> int:
    """The largest power of two, at most limit, that divides value."""
    power = 1
    while power < limit and value % (2 * power) == 0:
        power *= 2
    return power


def contiguous_alignment(element: int, layout: str, T: int, D: int) -> int:
    """Bytes that every pointer and stride of a contiguous tensor is a multiple of, pointers being multiples of 16."""
    return dividing_power((D if layout == "btd" else T) * element)


def contiguous_weight_alignment(element: int, T: int, K: int) -> int:
    """The same of a contiguous weight's pointer and rows; T of a band: its width."""
    return min(16, dividing_power(T) * dividing_power(K) * element)


def effective_diagonal(fill: str, diag: int, T: int) -> Optional[int]:
    """The diagonal offset that problems accept for the same triangle: beyond the corners everything is inside (the corner's offset), or
    nothing is (None: there is no problem to solve). A prefix of few tokens meets both."""
    corner = T - 1
    if fill == "lower":
        return None if diag < -corner else min(diag, corner)
    return None if diag > corner else max(diag, -corner)


def text(
    op: str,
    dtype: str,
    B: int,
    H: int,
    T: int,
    D: int,
    K: int,
    pad: int,
    *,
    layout: str = "btd",
    fill: str = "lower",
    diag: int = 0,
    wdtype: str = "",
    math: str = "",
    align: int = 0,
    walign: int = 0,
    epilogue: Iterable[str] = (),
    rows: int = 1,
    form: str = "dense",
    width: int = 0,
    pointers: int = 0,
) -> str:
    """One problem. wdtype "" or dtype, math "" or "simt", and alignments of 0 or of contiguous tensors are defaults and not printed."""
    usual = dict(
        rows=1,
        layout="btd",
        fill="lower",
        diag=0,
        w="dense",
        width=0,
        wdtype=dtype,
        math="simt" if dtype == "f32" else "default",
        align=contiguous_alignment(ELEMENT[dtype], layout, T, D),
        walign=contiguous_weight_alignment(ELEMENT[wdtype or dtype], width or T, K),
        pointers=0,
    )
    given = dict(
        dtype=dtype,
        B=B,
        H=H,
        T=T,
        D=D,
        K=K,
        pad=pad,
        rows=rows,
        layout=layout,
        fill=fill,
        diag=diag,
        w=form,
        width=width,
        wdtype=wdtype or dtype,
        math=math if math in ("tf32", "f16x3") else usual["math"],
        align=align or usual["align"],
        walign=walign or usual["walign"],
        pointers=pointers,
    )
    parts = [op] + [
        f"{key}={given[key]}" for key in fields.KEYS if fields.BY_NAME[key].always or given[key] != usual[key]
    ]
    epilogue = [part for part in epilogue if part]
    if epilogue:
        parts.append("epilogue=" + "+".join(epilogue))
    return ",".join(parts)
