"""What the operators report to trigen.record() where plain torch serves them, on a CPU above all: the problem that a GPU's plan has for tensors
of these shapes, strides and addresses, so that a list recorded on one machine tunes what another one runs."""

from __future__ import annotations

from .. import problem, recording
from . import arguments, cuda, decoding


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


def decode(inputs, weight, bias, gate, residual, heads: int, taps: int, rows: int, pad: int, diagonal: int, activation: str) -> None:
    """Of decoding.rows: as many problems as it runs for so many rows."""
    batch, tokens, features = inputs.shape
    sizes = arguments.Sizes(batch, heads, tokens, features // heads, taps, tokens)
    diagonal = problem.effective_diagonal("lower", diagonal, tokens)
    strides, wstrides = cuda.activation_strides(inputs, sizes, "btd"), cuda.weight_strides(weight, sizes)
    if diagonal is None or strides is None or wstrides is None or recording.active is None:
        return
    epilogue = ("bias" if bias is not None else "", activation if activation != "none" else "", "gate" if gate is not None else "",
                "residual" if residual is not None else "")
    for first in range(0, rows, decoding.MOST_ROWS):
        count = min(decoding.MOST_ROWS, rows - first)
        if not decoding.serves(inputs, weight, bias, *(None if one is None else one[:, first : first + count] for one in (gate, residual)), count):
            return
        low = inputs.data_ptr()
        for tensor in (gate, residual):
            if tensor is not None:
                tensor, few = tensor[:, first : first + count], sizes._replace(n=count, T=count)
                apart = cuda.activation_strides(tensor, few, "btd") or cuda.activation_strides(tensor.contiguous(), few, "btd")
                low |= (0 if cuda.activation_strides(tensor, few, "btd") is None else tensor.data_ptr()) | (apart[0] | apart[1] | apart[2]) * tensor.element_size()
        recording.active.add(problem.text(
            "decode", cuda._NAME[inputs.dtype], batch, heads, tokens, sizes.D, taps, pad, rows=decoding._capacity(count, tokens), diag=diagonal,
            wdtype=cuda._NAME[weight.dtype], align=cuda._alignment(cuda._ELEMENT[inputs.dtype], low & 15, [features, sizes.D, *strides]),
            walign=cuda._alignment(cuda._ELEMENT[weight.dtype], weight.data_ptr() & 15, wstrides), epilogue=epilogue))
