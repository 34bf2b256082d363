"""What the operators report to trigen.record() where plain torch serves them, on a CPU above all: the problem that a GPU's plan has for tensors
of these shapes, strides and addresses, so that a list recorded on one machine tunes what another one runs."""

from __future__ import annotations

from .. import problem, recording
from . import arguments, cuda


def _contiguous_first(tensors, sizes, layout):
    """The tensors as kernels read them: copies of those that a GPU copies first."""
    return [tensor if cuda.activation_strides(tensor, sizes, layout) is not None else tensor.contiguous() for tensor in tensors if tensor is not None]


def _add(op, tensors, sizes, weight, wdtype, pad, layout, fill, diag, math, epilogue) -> None:
    """tensors: activations that are read, the first one not None. weight: what is read of it, or None for grad_weight."""
    dtype, recorder = tensors[0].dtype, recording.active
    diag = problem.effective_diagonal(fill, diag, sizes.n)
    if dtype not in cuda._NAME or wdtype not in cuda._NAME or diag is None or recorder is None:
        return  # no kernel serves it: plain torch does
    tensors = _contiguous_first(tensors, sizes, layout)
    inner, outer = (sizes.H * sizes.D, sizes.n) if layout == "btd" else (sizes.n, sizes.H * sizes.D)
    strides = [inner * outer, sizes.D * (1 if layout == "btd" else inner), inner]
    pointers = 0
    for tensor in tensors:
        strides += cuda.activation_strides(tensor, sizes, layout)
        pointers |= tensor.data_ptr()
    wstrides, weight_pointer = (sizes.T * sizes.T * sizes.K, sizes.T * sizes.K), 0
    if weight is not None:
        read = weight if cuda.weight_strides(weight, sizes) is not None else weight.contiguous()
        wstrides, weight_pointer = cuda.weight_strides(read, sizes), read.data_ptr()
    recorder.add(problem.text(
        op, cuda._NAME[dtype], sizes.B, sizes.H, sizes.n, sizes.D, sizes.K, pad, layout=layout, fill=fill, diag=diag, wdtype=cuda._NAME[wdtype],
        math=cuda.resolve_math(math, dtype), align=cuda._alignment(cuda._ELEMENT[dtype], pointers & 15, strides),
        walign=cuda._alignment(cuda._ELEMENT[wdtype], weight_pointer & 15, wstrides), epilogue=epilogue))


def forward(x, weight, bias, gate, residual, pad, layout, fill, diag, activation, math, pre) -> None:
    sizes = arguments.check_activations(x, weight.shape, layout)
    if pre and activation == "none" and gate is None:  # the sum itself: nothing that a kernel stores twice; the residual is added outside
        pre, residual = False, None
    epilogue = ("bias" if bias is not None else "", activation if activation != "none" else "", "pre" if pre else "",
                "gate" if gate is not None else "", "residual" if residual is not None else "")
    _add("forward", (x, gate, residual), sizes, weight, weight.dtype, pad, layout, fill, diag, math, epilogue)


def grad_input(grad, weight, residual, pad, layout, fill, diag, math) -> None:
    sizes = arguments.check_activations(grad, weight.shape, layout, "grad")
    _add("grad_input", (grad, residual), sizes, weight, weight.dtype, pad, layout, fill, diag, math, ("residual" if residual is not None else "",))


def grad_weight(grad, x, weight_size, weight_dtype, bias, pad, layout, fill, diag, math) -> None:
    sizes = arguments.check_activations(x, weight_size, layout)
    _add("grad_weight", (x, grad), sizes, None, weight_dtype, pad, layout, fill, diag, math,
         ("bias" if bias else "", "zero_outside" if sizes.n == sizes.T else ""))
