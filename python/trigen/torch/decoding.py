"""Decoding on NVIDIA GPUs: rows [begin, end) of a mixer over the tokens that its cache holds so far, by the op `decode`. One plan for
each shape of the cache, whatever the rows: they are arguments of a run.

A plan is made for 1, 2, 4 ... 64 rows and takes fewer; more rows run as several.
"""

from __future__ import annotations

from typing import Optional

import torch

from .. import recording
from . import arguments, launch, problems

MOST_ROWS = 64  # of one run: kMaxDecodeRows of generator/problem.h


def serves(inputs, weight, bias, gate, residual, rows: int) -> bool:
    """Are these dtypes and shapes ones that kernels take? Everything else is plain torch's."""
    dtype = inputs.dtype
    if (
        dtype not in problems.ELEMENT
        or weight.dtype not in (dtype, torch.float32)
        or (bias is not None and bias.dtype != weight.dtype)
    ):
        return False
    shape = (inputs.shape[0], rows, inputs.shape[2])
    return (
        all(
            tensor is None or (tensor.dtype == dtype and tensor.shape == shape and tensor.device == inputs.device)
            for tensor in (gate, residual)
        )
        and weight.device == inputs.device
    )


def _capacity(rows: int, tokens: int) -> int:
    most = 1
    while most < rows:
        most *= 2
    return min(most, tokens)


def _parts(gate, residual, rows: int):
    """(first row, rows, gate, residual) of each run."""
    for first in range(0, rows, MOST_ROWS):
        last = min(first + MOST_ROWS, rows)
        yield (first, last - first, *(None if tensor is None else tensor[:, first:last] for tensor in (gate, residual)))


def _call(inputs, weight, bias, gate, residual, heads, taps, rows, pad, diagonal, activation) -> problems.Call:
    batch, tokens, features = inputs.shape
    sizes = arguments.Sizes(batch, heads, tokens, features // heads, taps, tokens)
    return problems.decode(
        sizes, inputs, weight, bias, gate, residual, pad, diagonal, activation, _capacity(rows, tokens)
    )


def rows(
    inputs,
    weight,
    bias,
    gate,
    residual,
    heads: int,
    taps: int,
    begin: int,
    end: int,
    pad: int,
    diagonal: int,
    activation: str,
) -> Optional[torch.Tensor]:
    """y[B, end-begin, H*D] = rows [begin, end) of act(W x + bias) * gate + residual over inputs[B, T, H*D], of which the tokens up to
    end are there. weight [T, T, K] or [H, T, T, K], of form "dense"; gate and residual like y. None where plain torch has to do it."""
    parts = []
    for first, count, *extras in _parts(gate, residual, end - begin):
        parts.append(_run(inputs, weight, bias, *extras, heads, taps, begin + first, count, pad, diagonal, activation))
        if parts[-1] is None:
            return None
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _run(inputs, weight, bias, gate, residual, heads, taps, begin, count, pad, diagonal, activation):
    if not serves(inputs, weight, bias, gate, residual, count):
        return None
    features = inputs.shape[2] // heads
    gate, gate_strides = _readable(gate, features)
    residual, residual_strides = _readable(residual, features)
    low = (
        inputs.data_ptr()
    )  # whose low bits are what all addresses and the strides of gate and residual are multiples of
    for tensor, strides in ((gate, gate_strides), (residual, residual_strides)):
        if tensor is not None:
            low |= tensor.data_ptr() | (strides[0] | strides[1] | strides[2]) * tensor.element_size()
    key = (
        "decode",
        inputs.shape,
        inputs.stride(),
        inputs.dtype,
        inputs.get_device(),
        weight.shape,
        weight.stride(),
        weight.dtype,
        bias is None,
        gate is None,
        residual is None,
        low & 15,
        weight.data_ptr() & 15,
        _capacity(count, inputs.shape[1]),
        heads,
        taps,
        pad,
        diagonal,
        activation,
    )
    found = launch.launches.get(key)
    if found is None:
        found = launch.launches[key] = launch.make(
            _call(inputs, weight, bias, gate, residual, heads, taps, count, pad, diagonal, activation)
        )
    if not found.handle:
        return None
    if recording.active is not None:
        launch.record(found)
    if bias is not None and not bias.is_contiguous():
        bias = launch.contiguous(bias)
    y = launch.empty((inputs.shape[0], count, inputs.shape[2]), dtype=inputs.dtype, device=inputs.device)
    # y is contiguous: strides of zero say so, whatever the rows.
    found.run(
        inputs.data_ptr(),
        y.data_ptr(),
        weight.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        launch.middle_of(bytes(24), gate, gate_strides, residual, residual_strides),
        end=launch.pack_rows(begin, count),
    )
    return y


def _readable(tensor, features: int):
    """(the tensor or a copy that kernels can read, its strides)."""
    if tensor is None:
        return None, None
    strides = problems.activation_strides(tensor, features, "btd")
    if strides is None:
        tensor = launch.contiguous(tensor)
        strides = problems.activation_strides(tensor, features, "btd")
    return tensor, strides


def record(
    inputs, weight, bias, gate, residual, heads: int, taps: int, count: int, pad: int, diagonal: int, activation: str
) -> None:
    """Reports the problems that rows() has for so many rows, on a device without kernels."""
    for _, part, *extras in _parts(gate, residual, count):
        if not serves(inputs, weight, bias, *extras, part):
            return
        call = _call(inputs, weight, bias, *extras, heads, taps, part, pad, diagonal, activation)
        if {0, 1}.isdisjoint(
            problems.problem_of(call).copies
        ):  # a cache or a weight that kernels cannot read is plain torch's
            problems.record(call)
