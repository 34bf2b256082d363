"""The problem of one call, from its tensors: plans are made of it, and trigen.record() lists it, by one way for both. So a list recorded on
a CPU tunes what a GPU runs: the same alignments, precision, diagonals and epilogues.

Strides: x, gradients, gate and residual are read where they lie when their innermost axis has stride 1 and no other stride is 0
or negative; the weight when [s, j] are contiguous. Anything else is copied first (Tensor.contiguous).
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

import torch

from .. import problem as problem_text
from .. import recording, weights
from . import arguments
from .precision import resolve_math

NAME = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
ELEMENT = {dtype: problem_text.ELEMENT[name] for dtype, name in NAME.items()}


class Call(NamedTuple):
    """One call of an operator."""

    op: str
    # Activations that are read, as (position among the operator's tensors, name in trigen_args, tensor or None); the first one is given.
    reads: Tuple[tuple, ...]
    sizes: arguments.Sizes
    weight: Optional[torch.Tensor]  # None: it is the output
    weight_dtype: torch.dtype
    pad: int
    layout: str
    fill: str
    diag: int
    math: str
    epilogue: Tuple[str, ...]  # parts of the problem's; "" counts as none
    rows: int = 1


class Problem(NamedTuple):
    """The problem that a kernel solves for a call. Strides in elements: batch, head and row; of the weight head and row."""

    text: str = ""  # canonical; "": no kernel takes it (float64, a triangle without an entry, an empty batch)
    copies: Tuple[
        int, ...
    ] = ()  # positions of the tensors that are copied first; text and strides are those of the copies
    strides: Dict[str, Tuple[int, int, int]] = {}  # of each tensor that is read
    out: Tuple[int, int, int] = (0, 0, 0)  # of what has x's shape and is written
    weight: Tuple[int, int] = (0, 0)


def activation_strides(tensor, features: int, layout: str):
    """(batch, head, row) strides in elements, or None when the tensor has to be copied first. features: of one head. Axes of size 1 count
    as contiguous."""
    batch, outer, inner = tensor.shape
    stride_batch, stride_row, stride_inner = tensor.stride()
    if inner > 1 and stride_inner != 1:
        return None
    row = stride_row if outer > 1 else inner
    if batch == 1:
        stride_batch = row * outer
    if row < inner or stride_batch < 1:
        return None
    return stride_batch, features * (1 if layout == "btd" else row), row


def contiguous_strides(sizes: arguments.Sizes, layout: str):
    """activation_strides of a contiguous tensor."""
    inner, outer = (sizes.H * sizes.D, sizes.n) if layout == "btd" else (sizes.n, sizes.H * sizes.D)
    return inner * outer, sizes.D * (1 if layout == "btd" else inner), inner


def weight_strides(weight, form: str):
    """(head, row) strides of W[h,t,s,j], or of the rows that stand for it, in elements; None when the weight has to be copied first."""
    strides, shape = list(weight.stride()), list(weight.shape)
    if not weights.has_heads(shape, form):
        strides, shape = [0] + strides, [1] + shape
    if form == "toeplitz":  # one row
        strides.insert(1, 0)
        shape.insert(1, 1)
    if len(shape) == 3:
        strides, shape = strides + [1], shape + [1]
    head, row, column, tap = strides
    if (shape[3] > 1 and tap != 1) or (shape[2] > 1 and column != shape[3]):
        return None
    if shape[1] == 1:
        row = shape[2] * shape[3]
    if shape[0] == 1:
        head = row * shape[1]
    return (head, row) if row >= shape[2] * shape[3] and head >= 1 else None


def alignment(element: int, pointers: int, strides) -> int:
    """Bytes, at most 16, that all addresses and strides are multiples of. pointers: the addresses, or-ed."""
    value = pointers | 16
    for stride in strides:
        value |= stride * element
    return value & -value


def problem_of(call: Call) -> Problem:
    """The problem of these tensors. A tensor to be copied counts with its copy's strides and an aligned address."""
    sizes, dtype = call.sizes, call.reads[0][2].dtype
    diag = problem_text.effective_diagonal(call.fill, call.diag, sizes.n)
    if dtype not in ELEMENT or call.weight_dtype not in ELEMENT or diag is None or sizes.B == 0:
        return Problem()
    out = contiguous_strides(sizes, call.layout)
    strides, copies, pointers = {}, [], 0
    for position, name, tensor in call.reads:
        if tensor is not None:
            strides[name] = activation_strides(tensor, sizes.D, call.layout)
            if strides[name] is None:
                strides[name] = out
                copies.append(position)
            else:
                pointers |= tensor.data_ptr()
    rows, elements = sizes.weight_rows
    wstrides, weight_pointer = (rows * elements, elements), 0
    if call.op.startswith("scan"):  # the gradients of w [4, H, n], contiguous; vectors are read singly
        wstrides = sizes.n, sizes.H * sizes.n
    elif call.weight is not None:
        own = weight_strides(call.weight, sizes.form)
        if own is None:
            copies.append(1)
        else:
            wstrides, weight_pointer = own, call.weight.data_ptr()
    align = alignment(
        ELEMENT[dtype], pointers & 15, [stride for triple in (out, *strides.values()) for stride in triple]
    )
    text = problem_text.text(
        call.op,
        NAME[dtype],
        sizes.B,
        sizes.H,
        sizes.n,
        sizes.D,
        sizes.K,
        call.pad,
        layout=call.layout,
        fill=call.fill,
        diag=diag,
        wdtype=NAME[call.weight_dtype],
        math=resolve_math(call.math, dtype, call.reads[0][2].get_device()),
        align=align,
        walign=alignment(ELEMENT[call.weight_dtype], weight_pointer & 15, wstrides),
        epilogue=call.epilogue,
        rows=call.rows,
        form=sizes.form,
        width=sizes.width,
    )
    if call.op == "scan_grad_weight":
        strides["residual"] = (0, *wstrides)  # dw
    return Problem(text, tuple(copies), strides, out, wstrides)


def record(call: Call) -> None:
    """Reports the problem of a call that plain torch serves to the active recorder."""
    recorder = recording.active
    text = problem_of(call).text
    if text and recorder is not None:
        recorder.add(text)


# ---- the operators' calls ------------------------------------------------------------------------------------------------


def _epilogue(bias, activation, pre, gate, residual) -> Tuple[str, ...]:
    return (
        "bias" if bias is not None else "",
        activation if activation != "none" else "",
        "pre" if pre else "",
        "gate" if gate is not None else "",
        "residual" if residual is not None else "",
    )


def forward(sizes, x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math, pre) -> Call:
    if (
        pre and activation == "none" and gate is None
    ):  # the sum itself: nothing that a kernel stores twice; the residual is added outside
        pre, residual = False, None
    return Call(
        "forward",
        ((0, "x", x), (3, "gate", gate), (4, "residual", residual)),
        sizes,
        weight,
        weight.dtype,
        pad,
        layout,
        fill,
        diag,
        math,
        _epilogue(bias, activation, pre, gate, residual),
    )


def grad_input(sizes, grad, weight, residual, pad, layout, fill, diag, math) -> Call:
    return Call(
        "grad_input",
        ((0, "y", grad), (2, "residual", residual)),
        sizes,
        weight,
        weight.dtype,
        pad,
        layout,
        fill,
        diag,
        math,
        _epilogue(None, "none", False, None, residual),
    )


def grad_weight(sizes, grad, x, weight_dtype, bias, pad, layout, fill, diag, math) -> Call:
    return Call(
        "grad_weight",
        ((1, "x", x), (0, "y", grad)),
        sizes,
        None,
        weight_dtype,
        pad,
        layout,
        fill,
        diag,
        math,
        ("bias" if bias else "", "zero_outside" if sizes.n == sizes.T and sizes.form != "toeplitz" else ""),
    )


def grad_epilogue(grad, pre, gate, activation) -> Call:
    """Of any layout: rows of what is contiguous. Rows that 16-byte accesses do not divide count as one, where all tensors are contiguous."""
    batch, rows, inner = grad.shape
    if (
        inner * grad.element_size() % 16
        and batch * rows * inner < arguments.MAX_COORDINATE
        and all(tensor is None or tensor.is_contiguous() for tensor in (grad, pre, gate))
    ):
        grad, pre, gate = (
            None if tensor is None else tensor.view(batch, 1, rows * inner) for tensor in (grad, pre, gate)
        )
        rows, inner = 1, rows * inner
    sizes = arguments.Sizes(batch, 1, rows, inner, 1, rows)
    return Call(
        "grad_epilogue",
        ((0, "y", grad), (1, "pre", pre), (2, "gate", gate)),
        sizes,
        None,
        grad.dtype,
        0,
        "btd",
        "lower",
        0,
        "simt",
        _epilogue(None, activation, False, gate, None),
    )


def _scan(op, reads, sizes, w, layout, epilogue) -> Call:
    return Call(op, reads, sizes, w, w.dtype, 0, layout, "lower", 0, "simt", epilogue)


def scan(sizes, x, w, bias, gate, residual, layout, activation, pre) -> Call:
    reads = (0, "x", x), (3, "gate", gate), (4, "residual", residual)
    return _scan("scan", reads, sizes, w, layout, _epilogue(bias, activation, pre, gate, residual))


def scan_grad_input(sizes, grad, w, layout) -> Call:
    return _scan("scan_grad_input", ((0, "y", grad),), sizes, w, layout, ())


def scan_grad_weight(sizes, grad, x, w, bias, layout, dx=False) -> Call:
    """dx: the gradient of x beside the vectors'."""
    reads = (1, "x", x), (0, "y", grad)
    return _scan("scan_grad_weight", reads, sizes, w, layout, ("bias" if bias else "", "grad_input" if dx else ""))


def decode(sizes, inputs, weight, bias, gate, residual, pad, diag, activation, rows: int) -> Call:
    """rows: how many the plan makes at most."""
    return Call(
        "decode",
        ((0, "x", inputs), (3, "gate", gate), (4, "residual", residual)),
        sizes,
        weight,
        weight.dtype,
        pad,
        "btd",
        "lower",
        diag,
        "simt",
        _epilogue(bias, activation, False, gate, residual),
        rows,
    )
