"""Symmetric products: D = alpha A B^T + beta C + gamma I, of which one triangle is computed."""

from __future__ import annotations

import functools
import operator
from typing import List, NamedTuple, Optional

import torch

from .. import problem as problem_text
from .. import recording
from ..newton_schulz import numbers_of
from . import arguments, launch, problems
from .precision import resolve_math

_FILLS = ("both", "lower", "upper")


def gram_of_tensors(a, b, c, alpha, beta, gamma, fill, math, dtype, out) -> torch.Tensor:
    first, second = a, a if b is None else b
    _check(first, second, c, fill, dtype, out)
    dtype = dtype or a.dtype
    m = a.shape[-2]
    shape = (*a.shape[:-2], m, m)
    made_by_kernels = a.dtype in problems.ELEMENT and a.shape[-1] > 0
    runs_here = not (made_by_kernels and on_gpu(a))
    if out is None:
        out = launch.empty(shape, dtype=dtype, device=a.device)
    elif runs_here:  # the library refuses a kernel's
        _refuse_overlap(first, second, c, out)
    if out.numel() == 0:
        return out
    if runs_here:
        if made_by_kernels and recording.active is not None:
            recording.active.add(problem_text_of(first, second, c, fill, math, out))
        return _plain(first, second, c, alpha, beta, gamma, fill, out)
    return _run(first, second, c, alpha, beta, gamma, fill, math, out)


def on_gpu(tensor) -> bool:
    return tensor.is_cuda


def problem_text_of(a, b, c, fill, math, out) -> str:
    """The problem that a GPU is asked for such tensors; of their shapes, strides and addresses alone, so that "meta" tensors do."""
    return _problem_of(*_given(a, b, c, fill, out), fill, resolve_math(math, a.dtype, a.get_device())).text


def _run(a, b, c, alpha, beta, gamma, fill, math, out):
    found, (a3, b3, c3, out3) = _launch_of(a, b, c, fill, resolve_math(math, a.dtype, a.get_device()), out)
    if not found.handle:
        return _plain(a, b, c, alpha, beta, gamma, fill, out)
    if recording.active is not None:
        launch.record(found)
    found.run(
        b3.data_ptr(),
        a3.data_ptr(),
        out3.data_ptr(),
        0,
        found.with_extras(None, None, c3),
        0,
        launch.pack_factors(alpha, 1.0 if c3 is None else beta, gamma),
    )
    if out3.data_ptr() != out.data_ptr():
        out.copy_(out3.view(out.shape))
    return out


def _check(a, b, c, fill, dtype, out) -> None:
    arguments.check_tensor(a, "a")
    if a.dim() < 2:
        raise ValueError(f"a has shape {list(a.shape)}; allowed: [..., m, k], two axes at least")
    if not a.is_floating_point():
        raise TypeError(f"a has dtype {a.dtype}; allowed: float16, bfloat16, float32 (and float64, without a kernel)")
    if b.shape != a.shape or b.dtype != a.dtype or b.device != a.device:
        raise ValueError(
            f"b is {b.dtype} {list(b.shape)} on {b.device}; allowed: a's {a.dtype} {list(a.shape)} on {a.device}, D is square"
        )
    if fill not in _FILLS:
        raise ValueError(f"fill={fill!r} is not known; allowed: {', '.join(_FILLS)}")
    if dtype not in (None, a.dtype, torch.float32) or (dtype is torch.float32 and a.dtype is torch.float64):
        raise ValueError(f"dtype={dtype} with {a.dtype}; allowed: {a.dtype}, or torch.float32 for 16-bit data")
    square = (*a.shape[:-2], a.shape[-2], a.shape[-2])
    for name, tensor in (("c", c), ("out", out)):
        if tensor is not None and (
            tuple(tensor.shape) != square or tensor.dtype != (dtype or a.dtype) or tensor.device != a.device
        ):
            raise ValueError(
                f"{name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}; allowed: {dtype or a.dtype} {list(square)} on {a.device}"
            )
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (a, b, c, out)):
        raise ValueError(
            "gram has no derivative, and autograd records; call it under torch.no_grad(), or detach the tensors"
        )


def _plain(a, b, c, alpha, beta, gamma, fill, out):
    wide = torch.float64 if a.dtype is torch.float64 else torch.float32
    d = alpha * (a.to(wide) @ b.to(wide).mT)
    if c is not None and beta != 0:
        d += beta * c
    d.diagonal(dim1=-2, dim2=-1).add_(gamma)
    half = d.triu() if fill == "upper" else d.tril()
    if fill == "both":
        return out.copy_(half + d.tril(-1).mT)
    inside = torch.ones(d.shape[-2:], dtype=torch.bool, device=d.device)
    return out.copy_(torch.where(inside.triu() if fill == "upper" else inside.tril(), half, out))


def _refuse_overlap(a, b, c, out) -> None:
    for name, tensor, also in (("a", a, ""), ("b", b, ""), ("c", c, ", or exactly c's view")):
        in_place = (
            also and tensor is not None and (tensor.data_ptr(), tensor.stride()) == (out.data_ptr(), out.stride())
        )
        if tensor is not None and not in_place and overlap(tensor, out):
            raise ValueError(f"out overlaps {name} in memory; allowed: memory of its own{also}")


def overlap(one, other) -> bool:
    """Whether they have an element's memory in common; of different dtypes, whether their ranges have."""
    storage = one.untyped_storage().data_ptr()
    if storage == 0 or storage != other.untyped_storage().data_ptr():  # 0: no memory ("meta")
        return False
    low, high = [], []
    for tensor in (one, other):
        low.append(tensor.data_ptr() - storage)
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        high.append(low[-1] + (last + 1) * tensor.element_size())
    if one.numel() == 0 or max(low) >= min(high):
        return False
    if one.dtype != other.dtype:
        return True
    taken = torch.zeros(max(high) // one.element_size(), dtype=torch.bool)
    taken.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def matrices_of(tensor):
    """[n, rows, columns] of the same memory, or None."""
    if tensor.dim() == 2:
        return tensor.unsqueeze(0)
    try:
        return tensor.view(-1, *tensor.shape[-2:])
    except RuntimeError:
        return None


def _operand(tensor):
    """([n, m, k], its layout): features or rows contiguous; a copy where neither is."""
    three = matrices_of(tensor)
    if three is not None:
        (_, m, k), (_, row, column) = three.shape, three.stride()
        if (column == 1 or k == 1) and (row >= k or m == 1):
            return three, "btd"
        if (row == 1 or m == 1) and column >= m:
            return three, "bdt"
    return launch.contiguous(tensor).view(-1, *tensor.shape[-2:]), "btd"


def _strides(tensor, layout):
    """(batch, head, row) in elements: a matrix is a head."""
    n, m, k = tensor.shape
    inner, outer = (k, m) if layout == "btd" else (m, k)
    row = tensor.stride(1 if layout == "btd" else 2) if outer > 1 else inner
    head = tensor.stride(0) if n > 1 else row * outer
    return head * n, head, row


def _square(tensor):
    """[n, m, m] with contiguous rows, or None."""
    three = matrices_of(tensor)
    if three is None or (three.shape[2] > 1 and three.stride(2) != 1):
        return None
    n, m, _ = three.shape
    if (m > 1 and three.stride(1) < m) or (n > 1 and three.stride(0) < 1):
        return None
    return three


def _given(a, b, c, fill, out):
    """(a, b, c, out) as the kernel takes them, their layout."""
    a3, layout = _operand(a)
    b3, other = (a3, layout) if b is a else _operand(b)
    if other != layout:
        a3, b3, layout = launch.contiguous(a3), launch.contiguous(b3), "btd"
    out3 = _square(out)
    if out3 is None:
        out3 = launch.empty((a3.shape[0], a3.shape[1], a3.shape[1]), dtype=out.dtype, device=out.device)
        if fill != "both":
            out3.copy_(out.reshape(out3.shape))
    c3 = None
    if c is not None:
        c3 = _square(c)
        if c3 is None:
            c3 = launch.contiguous(c).view(out3.shape)
    return a3, b3, c3, out3, layout


def _pointers(*tensors) -> int:
    """The addresses' lowest bits, or-ed."""
    low = 0
    for tensor in tensors:
        if tensor is not None:
            low |= tensor.data_ptr()
    return low & 15


def _launch_of(a, b, c, fill, math, out):
    """(the launch of this combination, (a, b, c, out) as the kernel takes them)."""
    *tensors, layout = _given(a, b, c, fill, out)
    a3, b3, c3, out3 = tensors
    key = (
        "gram",
        a3.shape,
        a3.stride(),
        b3.stride(),
        a3.dtype,
        a3.get_device(),
        out3.stride(),
        out3.dtype,
        None if c3 is None else c3.stride(),
        fill,
        math,
        _pointers(a3, b3),
        _pointers(out3, c3),
    )
    found = launch.launches.get(key)
    if found is None:
        problem = _problem_of(*tensors, layout, fill, math)
        call = problems.Call("gram", ((0, "y", a3),), None, None, out3.dtype, 0, layout, fill, 0, math, ())
        found = launch.Launch(problem, launch.plan_of(problem.text, a3.get_device()), call)
        launch.launches[key] = found
    return found, tensors


def _problem_of(a, b, c, out, layout, fill, math) -> problems.Problem:
    n, m, k = a.shape
    strides = {"y": _strides(a, layout), "x": _strides(b, layout)}
    weight = _strides(out, "btd")[1:]
    matrices = [weight]
    if c is not None:
        strides["residual"] = _strides(c, "btd")
        matrices.append(strides["residual"][1:])
    element, welement = problems.ELEMENT[a.dtype], problems.ELEMENT[out.dtype]
    text = problem_text.text(
        "gram",
        problems.NAME[a.dtype],
        1,
        n,
        m,
        k,
        1,
        0,
        layout=layout,
        fill="upper" if fill == "upper" else "lower",
        wdtype=problems.NAME[out.dtype],
        math=math,
        align=problems.alignment(element, _pointers(a, b), [stride for one in ("x", "y") for stride in strides[one]]),
        walign=problems.alignment(welement, _pointers(out, c), [stride for pair in matrices for stride in pair]),
        epilogue=("residual" if c is not None else "", "mirror" if fill == "both" else ""),
    )
    return problems.Problem(text, (), strides, strides["y"], weight)


def plain_gram(a, b=None, c=None, *, alpha=1.0, beta=1.0, gamma=0.0):
    """gram by plain torch, which nobody records."""
    d = launch.empty((*a.shape[:-1], a.shape[-2]), dtype=a.dtype, device=a.device)
    return _plain(a, a if b is None else b, c, alpha, beta, gamma, "both", d)


# ---- all steps in one launch -----------------------------------------------------------------------------------------------

_steps: dict = {}  # coefficients that are on a device


def steps_on(triples, eps, device):
    """newton_schulz's w: the triples, then eps."""
    key = (tuple(triples), eps, device)
    found = _steps.get(key)
    if found is None:
        if launch.is_capturing():
            raise RuntimeError(
                "the stream is capturing a graph and these coefficients have not run yet; allowed: steps, coefficients and eps of a call "
                "before the capture"
            )
        numbers = torch.tensor(numbers_of(triples, eps), dtype=torch.float32)
        found = _steps[key] = launch.empty(numbers.shape, dtype=numbers.dtype, device=device)
        found.copy_(numbers)
    return found


def newton_schulz_text(n, m, k, dtype, layout, steps) -> str:
    """The problem of contiguous batches."""
    return problem_text.text("newton_schulz", problems.NAME[dtype], n, 1, m, k, steps, 0, layout=layout)


POINTERS = -1  # trigen.h's TRIGEN_POINTER_ARRAY


class Places(NamedTuple):
    """Where n matrices lie, strides in elements: as far from each other as `batch` says, or anywhere (POINTERS)."""

    addresses: List[int]
    batch: int
    row: int


def places_of(views, dtype, size) -> Optional[Places]:
    """Of the matrices of `views`, [m, k] or [n, m, k] of any n; None where not all are as contiguous ones of `dtype`: one dtype, one order, one
    distance from row to row, and as aligned. size: muon.Size."""
    if size.layout == "btd":
        outer_axis, inner_axis, outer, inner = -2, -1, size.m, size.k
    else:
        outer_axis, inner_axis, outer, inner = -1, -2, size.k, size.m
    element = dtype.itemsize
    addresses: List[int] = []
    row, known = 0, None
    for one in views:
        strides = one.stride()
        if strides[-2:] != known:
            own = strides[outer_axis] if outer > 1 else inner
            if (strides[inner_axis] != 1 and inner > 1) or own < inner or row not in (0, own):
                return None
            row, known = own, strides[-2:]
        if one.dtype is not dtype:
            return None
        at = one.data_ptr()
        addresses.append(at)
        if len(strides) > 2:
            addresses += [at + index * strides[0] * element for index in range(1, one.size(0))]
    low = functools.reduce(operator.or_, addresses)
    if problems.alignment(element, low, (row,)) < problems.alignment(element, 0, (inner,)):
        return None
    first, batch = addresses[0], row * outer
    if len(addresses) > 1:
        distance = addresses[1] - first
        regular = distance > 0 and addresses == list(range(first, first + distance * len(addresses), distance))
        # One address with strides is memory of one tensor.
        if regular and views[0].untyped_storage().data_ptr() == views[-1].untyped_storage().data_ptr():
            batch = distance // element
        else:
            batch = POINTERS
    return Places(addresses, batch, row)


def are_apart(size, x: Optional[Places], y: Places) -> bool:
    """Whether no matrix of y reaches into another one, or into one of x."""
    outer, inner = (size.m, size.k) if size.layout == "btd" else (size.k, size.m)
    spans = []
    for places, written in ((x, False), (y, True)):
        if places is not None:
            extent = ((outer - 1) * places.row + inner) * size.dtype.itemsize
            spans += [(at, at + extent, written) for at in places.addresses]
    end = end_of_y = 0
    for begin, stop, written in sorted(spans):
        if begin < (end if written else end_of_y):
            return False
        end = max(end, stop)
        if written:
            end_of_y = max(end_of_y, stop)
    return True


def interleave(x: Places, y: Places) -> bool:
    """Whether both are tensors with strides, in memory that meets."""
    if POINTERS in (x.batch, y.batch):
        return False
    return x.addresses[0] <= y.addresses[-1] and y.addresses[0] <= x.addresses[-1]


def newton_schulz(like, size, x: Places, y: Places, steps) -> bool:
    """y: the iterations of x, matrices of size.dtype on `like`'s device, by steps_on's numbers. False: no kernel serves."""
    device = like.get_device()
    key = ("newton_schulz", size, device, steps.numel())
    found = launch.launches.get(key)
    if found is None:
        text = newton_schulz_text(*size[:3], size.dtype, size.layout, steps.numel() // 3)
        call = problems.Call(
            "newton_schulz", ((0, "x", like),), None, None, size.dtype, 0, size.layout, "lower", 0, "default", ()
        )
        found = launch.Launch(problems.Problem(text), launch.plan_of(text, device), call)
        launch.launches[key] = found
    if not found.handle:
        return False
    if recording.active is not None:
        launch.record(found)
    anywhere = [address for places in (x, y) if places.batch == POINTERS for address in places.addresses]
    array = launch.pointers_on(anywhere, like.device) if anywhere else None
    at = 0 if array is None else array.data_ptr()
    of_x = at if x.batch == POINTERS else x.addresses[0]
    of_y = y.addresses[0] if y.batch != POINTERS else at + 8 * (len(anywhere) - len(y.addresses))
    strides = [launch.pack_strides(places.batch, 0, places.row) for places in (x, y)]  # of heads there is one
    found.run(of_x, of_y, steps.data_ptr(), middle=launch.middle_of(strides[1]), strides=strides[0])
    return True
