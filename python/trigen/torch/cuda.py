"""The operators on NVIDIA GPUs: a launch for each combination of shapes, strides and dtypes, found by one check in C (guards.py; launch.py has
what follows, problems.py which tensors are copied first).

A call on a known combination checks nothing twice: everything that the checks depend on is compared.
"""

from __future__ import annotations

import torch

from .. import recording, weights
from . import arguments, guards, launch, plain, problems
from .arguments import Options
from .launch import Launch
from .precision import resolve_math

_FLOAT32 = torch.float32
_launches = launch.launches
_both = guards.Made()  # of one backward pass: what pair_of made
launch.forgetters.append(_both.clear)


def _copied(tensors, positions):
    return [launch.contiguous(tensor) if position in positions else tensor for position, tensor in enumerate(tensors)]


# ---- forward -------------------------------------------------------------------------------------------------------------


def forward_launch(x, weight, bias, gate, residual, options, want_pre, x_pointer, weight_pointer) -> Launch:
    """The launch of this combination, made when it is new. options: (pad, layout, fill, diag, activation, math, form); math is resolved
    already."""
    low, tensors = x_pointer, [x, weight]
    if bias is not None:
        tensors.append(bias)
    for one in (gate, residual):
        if one is not None:
            low |= one.data_ptr()
            tensors.append(one)

    def make():
        sizes = arguments.check_forward(x, weight, bias, gate, residual, *options)
        call = problems.forward(sizes, x, weight, bias, gate, residual, *options[:6], want_pre)
        return launch.make(call, sizes.n if sizes.H > 1 and sizes.n < sizes.T else 0)

    given = bias is None, gate is None, residual is None
    return _launches.find((x.shape, options, want_pre, given, low & 15, weight_pointer & 15), tensors, make)


def run_forward(x, weight, bias, gate, residual, options, want_pre):
    """(y, pre or None). options: (pad, layout, fill, diag, activation, math, form)."""
    if want_pre and options[4] == "none" and gate is None:  # the sum itself; nothing that a kernel stores twice
        pre = run_forward(x, weight, bias, None, None, options, False)[0]
        if residual is not None:
            arguments.check_like("residual", residual, x)
        return (pre.clone() if residual is None else pre + residual), pre
    dtype = x.dtype
    if dtype is _FLOAT32:
        options = (*options[:5], resolve_math(options[5], dtype, x.get_device()), options[6])
    x_pointer, weight_pointer = x.data_ptr(), weight.data_ptr()
    found = forward_launch(x, weight, bias, gate, residual, options, want_pre, x_pointer, weight_pointer)
    if found.copies:
        return run_forward(*_copied((x, weight, bias, gate, residual), found.copies), options, want_pre)
    if not found.handle:
        return plain.run_forward(x, weight, bias, gate, residual, options, want_pre)
    if recording.active is not None:
        launch.record(found)
    bias_pointer = 0
    if bias is not None:
        if found.bias_tokens:
            bias = bias[:, : found.bias_tokens]
        if not bias.is_contiguous():
            bias = launch.contiguous(bias)
        bias_pointer = bias.data_ptr()
    y = launch.empty_like(x) if found.like_x else launch.empty(x.shape, dtype=dtype, device=x.device)
    pre = launch.empty_like(y) if want_pre else None
    extras = b"" if pre is None and gate is None and residual is None else found.with_extras(pre, gate, residual)
    found.run(x_pointer, y.data_ptr(), weight_pointer, bias_pointer, extras)
    return y, pre


def forward(x, weight, bias=None, gate=None, residual=None, *options, **named):
    return run_forward(x, weight, bias, gate, residual, Options(*options, **named), False)[0]


def forward_pre(x, weight, bias=None, gate=None, residual=None, *options, **named):
    return run_forward(x, weight, bias, gate, residual, Options(*options, **named), True)


# ---- gradients -----------------------------------------------------------------------------------------------------------


def grad_input_launch(grad, weight, residual, pad, layout, fill, diag, math, form) -> Launch:
    """The launch of this combination, made when it is new. math is resolved already."""
    low, tensors = grad.data_ptr(), (grad, weight)
    if residual is not None:
        low |= residual.data_ptr()
        tensors = grad, weight, residual

    def make():
        sizes = arguments.check_grad_input(grad, weight, residual, pad, layout, fill, diag, math, form)
        return launch.make(problems.grad_input(sizes, grad, weight, residual, pad, layout, fill, diag, math))

    options = pad, layout, fill, diag, math, form, residual is None
    return _launches.find(("grad_input", grad.shape, options, low & 15, weight.data_ptr() & 15), tensors, make)


def grad_input(grad, weight, residual=None, pad=0, layout="btd", fill="lower", diag=0, math="default", form="dense"):
    math = resolve_math(math, grad.dtype, grad.get_device())
    options = pad, layout, fill, diag, math, form
    found = grad_input_launch(grad, weight, residual, *options)
    if found.copies:
        return grad_input(*_copied((grad, weight, residual), found.copies), *options)
    if not found.handle:
        return plain.grad_input(grad, weight, residual, *options)
    if recording.active is not None:
        launch.record(found)
    dx = launch.empty_like(grad) if found.like_x else launch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    found.run(
        dx.data_ptr(),
        grad.data_ptr(),
        weight.data_ptr(),
        0,
        b"" if residual is None else found.with_extras(None, None, residual),
    )
    return dx


def grad_weight_launch(grad, x, weight_size, weight_dtype, bias, pad, layout, fill, diag, math, form) -> Launch:
    """The launch of this combination, made when it is new. math is resolved already, weight_size a tuple."""

    def make():
        sizes = arguments.check_grad_weight(grad, x, weight_size, weight_dtype, pad, layout, fill, diag, math, form)
        call = problems.grad_weight(sizes, grad, x, weight_dtype, bias, pad, layout, fill, diag, math)
        found = launch.make(call, sizes.n if sizes.n < sizes.T else 0)
        shapes = weight_size, weights.bias_size(weight_size, form) if bias else (0,)
        found.outputs = tuple(launch.like(shape, weight_dtype, x.device) for shape in shapes)
        return found

    options = weight_size, weight_dtype, bias, pad, layout, fill, diag, math, form
    low = grad.data_ptr() | x.data_ptr()
    return _launches.find(("grad_weight", x.shape, options, low & 15), (grad, x), make)


def grad_weight(
    grad,
    x,
    weight_size,
    weight_dtype,
    bias=False,
    pad=0,
    layout="btd",
    fill="lower",
    diag=0,
    math="default",
    form="dense",
):
    math = resolve_math(math, x.dtype, x.get_device())
    weight_size = tuple(weight_size)
    options = pad, layout, fill, diag, math, form
    found = grad_weight_launch(grad, x, weight_size, weight_dtype, bias, *options)
    if found.copies:
        return grad_weight(*_copied((grad, x), found.copies), weight_size, weight_dtype, bias, *options)
    if not found.handle:
        return plain.grad_weight(grad, x, weight_size, weight_dtype, bias, *options)
    if recording.active is not None:
        launch.record(found)
    prefix, (dw, db) = found.bias_tokens, map(launch.empty_like, found.outputs)
    db_kernel = db
    if prefix:
        dw.zero_()
        db_kernel = launch.empty((*db.shape[:-1], prefix), dtype=weight_dtype, device=x.device) if bias else db
    found.run(x.data_ptr(), grad.data_ptr(), dw.data_ptr(), db_kernel.data_ptr() if bias else 0)
    if bias and prefix:
        db.zero_()
        db[..., :prefix] = db_kernel
    return dw, db


def grad_epilogue(grad, pre, gate, activation):
    """(dz, grad_gate or None), contiguous: grad times the derivatives of act(z) * gate, pre being z. By one kernel, which reads and writes
    everything once."""
    low, tensors = grad.data_ptr() | pre.data_ptr(), (grad, pre)
    if gate is not None:
        low |= gate.data_ptr()
        tensors = grad, pre, gate
    found = _launches.find(
        ("grad_epilogue", grad.shape, activation, gate is None, low & 15),
        tensors,
        lambda: launch.make(problems.grad_epilogue(grad, pre, gate, activation)),
    )
    if found.copies:
        return grad_epilogue(*_copied((grad, pre, gate), found.copies), activation)
    if not found.handle:
        return plain.grad_epilogue(grad, pre, gate, activation)
    if recording.active is not None:
        launch.record(found)
    dz = launch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    dgate = None if gate is None else launch.empty_like(dz)
    found.run(dz.data_ptr(), grad.data_ptr(), 0, 0, found.with_extras(pre, gate, dgate))
    return dz, dgate


def gradients(grad, x, weight, bias, options):
    """(dx, dW, dbias or None): grad_input and grad_weight of one backward pass by one lookup, and one copy of what needs one. bias: the
    forward's, for its shape, or None. options as run_forward's. Prefixes, plain torch and recording go through the two functions
    above."""
    if x.dtype is _FLOAT32:
        options = (*options[:5], resolve_math(options[5], _FLOAT32, x.get_device()), options[6])
    grad_pointer, x_pointer, weight_pointer = grad.data_ptr(), x.data_ptr(), weight.data_ptr()
    both = _both.find(
        (x.shape, options, bias is None, grad_pointer & 15, x_pointer & 15, weight_pointer & 15),
        (grad, x, weight),
        lambda: pair_of(grad, x, weight, bias is not None, options),
    )
    if not both or recording.active is not None or (bias is not None and not bias.is_contiguous()):
        options = (*options[:4], *options[5:])
        dx = grad_input(grad, weight, None, *options)
        dw, db = grad_weight(grad, x, weight.shape, weight.dtype, bias is not None, *options)
        return dx, dw, None if bias is None else db
    if type(both) is tuple:
        copied = [launch.contiguous(tensor) if copy else tensor for tensor, copy in zip((grad, x, weight), both)]
        return gradients(*copied, bias, options)
    return both.run(grad, x_pointer, grad_pointer, weight, bias)


def pair_of(grad, x, weight, needs_bias, options):
    """A Pair; whether each of the three tensors has to be copied first; or () where the two operators go their own ways."""
    options = (*options[:4], *options[5:])
    first = grad_input_launch(grad, weight, None, *options)
    second = grad_weight_launch(grad, x, tuple(weight.shape), weight.dtype, needs_bias, *options)
    if first.copies or second.copies:
        return 0 in first.copies or 0 in second.copies, 1 in second.copies, 1 in first.copies
    # Kernels, outputs like their tensors, no prefix:
    usual = first.handle and second.handle and first.like_x and weight.is_contiguous() and not second.bias_tokens
    return launch.Pair(first, second) if usual else ()
