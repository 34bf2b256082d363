"""gram of lists of matrices that lie anywhere: one launch for all of a list, by arrays of pointers."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import torch

from .. import problem as problem_text
from .. import recording
from . import launch, matrices, problems
from .precision import resolve_math


class _Size(NamedTuple):
    """As matrices.places_of asks for it."""

    m: int
    k: int
    layout: str


def gram_of_lists(a, b, c, alpha, beta, gamma, fill, math, dtype, out) -> List[torch.Tensor]:
    """gram's, whose arguments are checked here but for alpha and beta."""
    a = list(a)
    b, c, out = (_as_long(name, given, a) for name, given in (("b", b), ("c", c), ("out", out)))
    for one, other, addend, result in zip(a, b or a, c or [None] * len(a), out or [None] * len(a)):
        matrices._check(one, other, addend, fill, dtype, result)
        if one.dim() != 2 or one.shape != a[0].shape or one.dtype != a[0].dtype or one.device != a[0].device:
            raise ValueError(
                f"a has a {one.dtype} {list(one.shape)} on {one.device} beside a {a[0].dtype} {list(a[0].shape)} on {a[0].device}; "
                "allowed: matrices [m, k] of one shape, dtype and device"
            )
    if not a:
        return []
    if out is not None:
        _refuse_overlaps(a, b, c, out)
    dtype = dtype or a[0].dtype
    m, k = a[0].shape
    by_kernels = a[0].dtype in problems.ELEMENT and k > 0 and m > 0
    given = (
        a,
        b,
        c,
        out,
        alpha,
        1.0 if c is None else beta,
        gamma,
        fill,
        resolve_math(math, a[0].dtype, a[0].get_device()),
        dtype,
    )
    if by_kernels and matrices.on_gpu(a[0]):
        results = _run(*given)
        if results is not None:
            return results
    elif by_kernels and recording.active is not None:
        recording.active.add(_text(len(a), m, k, a[0].dtype, _layout(a), fill, given[-2], dtype, c is not None, 1))
    if out is None:
        out = [launch.empty((m, m), dtype=dtype, device=a[0].device) for _ in a]
    for one, other, addend, result in zip(a, b or a, c or [None] * len(a), out):
        if result.numel() > 0:
            matrices._plain(one, other, addend, alpha, beta, gamma, fill, result)
    return out


def _as_long(name: str, given, a: Sequence) -> Optional[list]:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or len(given) != len(a):
        found = f"a list of {len(given)}" if isinstance(given, (list, tuple)) else f"a {type(given).__name__}"
        raise TypeError(f"{name} is {found} beside a list of {len(a)} matrices; allowed: a list as long, or none")
    return list(given)


def _refuse_overlaps(a, b, c, out) -> None:
    """Whether a matrix of `out` has memory in common with any other one; but its own of c, of the same view."""
    spans = []
    for name, tensors in (("out", out), ("a", a), ("b", b), ("c", c)):
        for index, tensor in enumerate(tensors or ()):
            if tensor.numel() > 0:
                last = sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride()))
                begin = tensor.data_ptr()
                spans.append((begin, begin + (last + 1) * tensor.element_size(), name, index, tensor))
    reach: list = []  # of those that end behind the one looked at
    for span in sorted(spans, key=lambda span: span[:2]):
        begin, _, name, index, tensor = span
        reach = [other for other in reach if other[1] > begin]
        for _, _, others, at, other in reach:
            in_place = {name, others} == {"out", "c"} and index == at and tensor.stride() == other.stride()
            in_place = in_place and tensor.data_ptr() == other.data_ptr()
            if "out" in (name, others) and not in_place and matrices.overlap(tensor, other):
                (name, index), (others, at) = sorted(((name, index), (others, at)), key=lambda one: one[0] != "out")
                raise ValueError(
                    f"out[{index}] overlaps {others}[{at}] in memory; allowed: memory of its own, or exactly c[{index}]'s view"
                )
        reach.append(span)


def _layout(a) -> str:
    """That of the first matrix: the others are copied where they lie otherwise."""
    (m, k), (row, column) = a[0].shape, a[0].stride()
    return "bdt" if column != 1 and k > 1 and (row == 1 or m == 1) and column >= m else "btd"


class _Batch(NamedTuple):
    """Where the matrices of a list lie, what holds a copy of them, and whether pointers say where but for a capture."""

    places: matrices.Places
    copy: Optional[torch.Tensor] = None
    anywhere: bool = False


def _lie(views, size: _Size, copies: bool = True) -> _Batch:
    """`views` as they lie, or (contiguous tensors in the layout) a copy; or memory for one."""
    places = matrices.places_of(views, views[0].dtype, size)
    anywhere = places is not None and places.batch == matrices.POINTERS
    if places is not None and not (
        anywhere and launch.is_capturing()
    ):  # a graph would read pointers from memory that is given back
        return _Batch(places, None, anywhere)
    rows, columns = (size.m, size.k) if size.layout == "btd" else (size.k, size.m)
    copy = launch.empty((len(views), rows, columns), dtype=views[0].dtype, device=views[0].device)
    whole = copy if size.layout == "btd" else copy.mT
    if copies:
        torch._foreach_copy_(list(whole.unbind()), list(views))
    return _Batch(matrices.places_of([whole], copy.dtype, size), copy, anywhere)


def _apart(written: _Batch, others) -> _Batch:
    """`written`, by pointers where strides would have it reach over one of `others` in turn: the library takes that for an overlap."""
    for other in others:
        if matrices.interleave(written.places, other.places) and written.places != other.places:
            if not launch.is_capturing():
                return _Batch(written.places._replace(batch=matrices.POINTERS), written.copy, True)
            raise ValueError(
                "out lies between the matrices of another list while a graph is captured; allowed: memory of its own, or exactly c's"
            )
    return written


def _text(n, m, k, dtype, layout, fill, math, wdtype, adds, pointers) -> str:
    return problem_text.text(
        "gram",
        problems.NAME[dtype],
        1,
        n,
        m,
        k,
        1,
        0,
        layout=layout,
        fill="upper" if fill == "upper" else "lower",
        wdtype=problems.NAME[wdtype],
        math=math,
        pointers=pointers,
        epilogue=("residual" if adds else "", "mirror" if fill == "both" else ""),
    )


def _run(a, b, c, out, alpha, beta, gamma, fill, math, dtype) -> Optional[List[torch.Tensor]]:
    """The results, or None: no kernel serves."""
    n, (m, k), layout = len(a), a[0].shape, _layout(a)
    operand, square = _Size(m, k, layout), _Size(m, m, "btd")
    fresh = launch.empty((n, m, m), dtype=dtype, device=a[0].device) if out is None else None
    lists = {"y": _lie(a, operand)}
    lists["x"] = lists["y"] if b is None else _lie(b, operand)
    lists["w"] = _lie([fresh], square) if out is None else _lie(out, square, copies=fill != "both")
    if c is not None:
        lists["residual"] = _lie(c, square)
    lists["w"] = _apart(lists["w"], [one for role, one in lists.items() if role != "w"])
    pointers = int(any(one.anywhere for one in lists.values()))
    strides = {role: _strides(one.places, n) for role, one in lists.items()}
    of = (n, m, k, a[0], dtype, layout, fill, math, pointers)
    found = _launch_of(*of, strides)
    if pointers and not launch.is_capturing():  # what a capture takes
        sizes = {"y": (m, k), "x": (m, k), "w": (m, m), "residual": (m, m)}
        _launch_of(
            *of,
            {
                role: _copied(*sizes[role], layout if role in "xy" else "btd", n) if one.anywhere else strides[role]
                for role, one in lists.items()
            },
        )
    if not found.handle:
        return None
    if recording.active is not None:
        launch.record(found)
    anywhere: List[int] = []
    at = {}
    for role, one in lists.items():
        if one.places.batch != matrices.POINTERS:
            at[role] = one.places.addresses[0]
        elif role == "x" and b is None:
            at[role] = at["y"]
        else:
            at[role] = len(anywhere)
            anywhere += one.places.addresses
    if anywhere:
        array = launch.pointers_on(anywhere, a[0].device)
        for role, one in lists.items():
            if one.places.batch == matrices.POINTERS:
                at[role] = array.data_ptr() + 8 * at[role]
    middle = found.with_residual(at.get("residual", 0))
    found.run(at["x"], at["y"], at["w"], 0, middle, 0, launch.pack_factors(alpha, beta, gamma))
    if fresh is not None:
        return list(fresh.unbind())
    if lists["w"].copy is not None:
        torch._foreach_copy_(out, list(lists["w"].copy.unbind()))
    return out


def _launch_of(n, m, k, like, wdtype, layout, fill, math, pointers, strides) -> launch.Launch:
    device = like.get_device()
    key = ("gram of a list", n, m, k, like.dtype, wdtype, layout, fill, math, pointers, device, tuple(strides.items()))
    found = launch.launches.get(key)
    if found is None:
        (batch, head, row), own = strides["w"], {role: one for role, one in strides.items() if role != "w"}
        text = _text(n, m, k, like.dtype, layout, fill, math, wdtype, "residual" in own, pointers)
        problem = problems.Problem(text, (), own, own["y"], (batch if batch == matrices.POINTERS else head, row))
        call = problems.Call("gram", ((0, "y", like),), None, None, wdtype, 0, layout, fill, 0, math, ())
        found = launch.Launch(problem, launch.plan_of(text, device), call)
        launch.launches[key] = found
    return found


def _copied(m: int, k: int, layout: str, n: int):
    """_strides of _lie's copies."""
    outer, row = (m, k) if layout == "btd" else (k, m)
    return n * outer * row, outer * row, row


def _strides(places: matrices.Places, n: int):
    """(batch, head, row): a matrix is a head, or what a pointer names."""
    if places.batch == matrices.POINTERS:
        return matrices.POINTERS, 0, places.row
    return places.batch * n, places.batch, places.row
