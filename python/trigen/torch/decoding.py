"""Decoding on NVIDIA GPUs: rows [begin, end) of a mixer over the tokens that its cache holds so far, by the op `decode`. One plan for
each shape of the cache, whatever the rows: they are arguments of a run.

A plan is made for 1, 2, 4 ... 64 rows and takes fewer; more rows run as several.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch

from .. import library, problem as problem_text, recording
from . import arguments, cuda

MOST_ROWS = 64  # of one run: kMaxDecodeRows of generator/problem.h


class Launch(NamedTuple):
    """What a known combination runs. handle 0: plain torch serves it."""

    handle: int = 0
    workspace: int = 0
    x: tuple = ()  # (batch, head, row) strides in elements
    w: tuple = ()  # (head, row)
    text: str = ""
    plan: Optional[library.Plan] = None  # keeps the handle alive


_PLAIN = Launch()
_pack = library.ARGS.pack
_NONE = (0, 0, 0, 0)


def serves(inputs, weight, bias, gate, residual, rows: int) -> bool:
    """Are these dtypes and shapes ones that kernels take? Everything else is plain torch's."""
    dtype = inputs.dtype
    if dtype not in cuda._ELEMENT or weight.dtype not in (dtype, torch.float32) or (bias is not None and bias.dtype != weight.dtype):
        return False
    shape = (inputs.shape[0], rows, inputs.shape[2])
    return all(tensor is None or (tensor.dtype == dtype and tensor.shape == shape and tensor.device == inputs.device)
               for tensor in (gate, residual)) and weight.device == inputs.device


def _capacity(rows: int, tokens: int) -> int:
    most = 1
    while most < rows:
        most *= 2
    return min(most, tokens)


def _make(inputs, weight, bias, gate, residual, sizes, rows, pad, diagonal, activation, low) -> Launch:
    diagonal = problem_text.effective_diagonal("lower", diagonal, sizes.T)
    strides, wstrides = cuda.activation_strides(inputs, sizes, "btd"), cuda.weight_strides(weight, sizes)
    if diagonal is None or strides is None or wstrides is None:
        return _PLAIN
    features = sizes.H * sizes.D
    align = cuda._alignment(cuda._ELEMENT[inputs.dtype], low[0], [features, sizes.D, *strides])
    walign = cuda._alignment(cuda._ELEMENT[weight.dtype], low[1], wstrides)
    made = cuda.make_problem("decode", inputs.dtype, weight.dtype, sizes, pad, "btd", "lower", diagonal,
                             "simt" if inputs.dtype == torch.float32 else "default", align, walign, rows=rows,
                             bias=bias is not None, activation=library.ACTIVATIONS[activation], gate=gate is not None,
                             residual=residual is not None)
    plan = cuda._plan(made, inputs.get_device())
    if plan is None:
        return _PLAIN
    return Launch(plan.handle, plan.workspace_size, strides, wstrides, library.format_problem(made), plan)


def rows(inputs, weight, bias, gate, residual, heads: int, taps: int, begin: int, end: int, pad: int, diagonal: int,
         activation: str) -> Optional[torch.Tensor]:
    """y[B, end-begin, H*D] = rows [begin, end) of act(W x + bias) * gate + residual over inputs[B, T, H*D], of which the tokens up to
    end are there. weight [T, T, K] or [H, T, T, K]; gate and residual like y. None where plain torch has to do it."""
    count = end - begin
    if count > MOST_ROWS:
        parts = []
        for first in range(begin, end, MOST_ROWS):
            last = min(first + MOST_ROWS, end)
            part = [None if tensor is None else tensor[:, first - begin : last - begin] for tensor in (gate, residual)]
            parts.append(rows(inputs, weight, bias, *part, heads, taps, first, last, pad, diagonal, activation))
            if parts[-1] is None:
                return None
        return torch.cat(parts, 1)
    if not serves(inputs, weight, bias, gate, residual, count):
        return None
    batch, tokens, features = inputs.shape
    sizes = arguments.Sizes(batch, heads, tokens, features // heads, taps, tokens)
    views = {}
    for name, tensor in (("gate", gate), ("residual", residual)):
        if tensor is not None:
            few = sizes._replace(n=count, T=count)
            if cuda.activation_strides(tensor, few, "btd") is None:
                tensor = cuda._contiguous(tensor)
            views[name] = (tensor, cuda.activation_strides(tensor, few, "btd"))
    bytes_apart = inputs.data_ptr()  # whose low bits are what all addresses and strides of gate and residual are multiples of
    for tensor, triple in views.values():
        bytes_apart |= tensor.data_ptr() | (triple[0] | triple[1] | triple[2]) * tensor.element_size()
    low = bytes_apart & 15, weight.data_ptr() & 15
    capacity = _capacity(count, tokens)
    key = ("decode", inputs.shape, inputs.stride(), inputs.dtype, inputs.get_device(), weight.shape, weight.stride(), weight.dtype,
           bias is None, gate is None, residual is None, low, capacity, heads, taps, pad, diagonal, activation)
    launch = cuda._launches.get(key)
    if launch is None:
        launch = cuda._launches[key] = _make(inputs, weight, bias, gate, residual, sizes, capacity, pad, diagonal, activation, low)
    if not launch.handle:
        return None
    if recording.active is not None:
        recording.active.add(launch.text)
    if bias is not None and not bias.is_contiguous():
        bias = cuda._contiguous(bias)
    y = cuda._empty((batch, count, features), dtype=inputs.dtype, device=inputs.device)
    workspace = 0
    if launch.workspace:
        scratch = cuda._empty(launch.workspace, dtype=torch.uint8, device=inputs.device)
        workspace = scratch.data_ptr()
    block = {name: (tensor.data_ptr(), *triple) for name, (tensor, triple) in views.items()}
    status = cuda._run(
        launch.handle,
        _pack(library.ARGS.size, inputs.data_ptr(), *launch.x, y.data_ptr(), 0, 0, 0, *_NONE, *block.get("gate", _NONE),
              *block.get("residual", _NONE), weight.data_ptr(), *launch.w, 0 if bias is None else bias.data_ptr(), workspace,
              launch.workspace, begin, count),
        cuda._raw_stream(inputs.get_device()),
    )
    if status:
        cuda._launch_error(status, launch)
    return y
