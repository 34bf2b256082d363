"""The operators on NVIDIA GPUs: a plan for each combination of shapes, strides and dtypes, found by a tuple in a dict, run on the
current stream of x's device.

A call on a known combination builds no string, takes no lock, synchronises nothing and checks nothing twice: everything that the
checks depend on is in the key. Outputs and workspace come from PyTorch's caching allocator (so also from a graph's pool).

Strides: x, gradients, gate and residual are read where they lie when their innermost axis has stride 1 and no other stride is 0
or negative; the weight when [s, j] are contiguous. Anything else is copied first (Tensor.contiguous).

A combination met for the first time makes its plan: a lookup in the cache files, or one compile. Under stream capture that is
refused before anything reaches the driver: run the model once before the capture, as PyTorch asks anyway.
"""

from __future__ import annotations

import os
import struct
import warnings
from typing import Dict, NamedTuple, Optional, Tuple

import torch

from .. import errors, library, problem as problem_text, recording
from . import arguments, plain
from .precision import tf32_is_allowed

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
    lambda device: torch.cuda.current_stream(device).cuda_stream
)
# Where outputs and workspace come from. Names of their own: the tests on the emulated device put its memory behind them.
_empty, _zeros, _contiguous = torch.empty, torch.zeros, torch.Tensor.contiguous
_empty_like = torch.empty_like
_is_capturing = torch.cuda.is_current_stream_capturing
_pack = library.ARGS_PREPARED.pack
_ARGS_SIZE = library.ARGS_PREPARED.size
_FLOAT32 = torch.float32
_ELEMENT = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 4}
_NAME = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


class Launch(NamedTuple):
    """What a known combination runs. handle 0: plain torch serves it (float64, an empty triangle, or the fallback)."""

    handle: int = 0
    workspace: int = 0
    copies: Tuple[int, ...] = ()  # tensors, by position, to make contiguous first
    # Strides in elements as they stand in the argument block: batch, head and row; of the weight head and row.
    x: bytes = bytes(24)
    gate: bytes = bytes(24)
    residual: bytes = bytes(24)
    y: bytes = bytes(24)
    weight: bytes = bytes(16)
    like_x: bool = False  # the first operand is contiguous: outputs are made by empty_like
    bias_tokens: int = 0  # > 0: bias is [H, T] and only so many tokens of each head are used
    text: str = ""
    plan: Optional[library.Plan] = None  # keeps the handle alive


_PLAIN = Launch()
_UNUSED = bytes(24)
_launches: Dict[tuple, Launch] = {}
_both: Dict[tuple, Tuple[Launch, ...]] = {}  # grad_input and grad_weight of one backward pass; () where each goes its own way
_run = None  # trigen_plan_run, once the library is loaded
_warned = set()
_forget = []  # what else holds launches: called before plans are destroyed
generation = 0  # how often plans were destroyed: handles of an earlier one are not to be run
_fallback = os.environ.get("TRIGEN_FALLBACK", "error")


def set_fallback(policy: str) -> str:
    """What a GPU tensor does that no kernel can serve (no libtrigen.so, no compiler for a missing kernel, an unsupported device):
    "error" raises (the default, or TRIGEN_FALLBACK), "plain" uses plain torch operations and warns once. Returns the policy
    before. Combinations met already keep what they got."""
    global _fallback
    if policy not in ("error", "plain"):
        raise ValueError(f"policy={policy!r} is not known; allowed: error, plain")
    before, _fallback = _fallback, policy
    return before


def forget_plans() -> None:
    """Drops every plan, after waiting for its device: the next call of each combination looks into the cache again (after tuning)."""
    global generation
    made = [launch.plan for launch in list(_launches.values()) if launch.plan is not None]
    generation += 1
    for forget in _forget:
        forget()
    _both.clear()
    _launches.clear()
    for index in {plan.describe().device_ordinal for plan in made}:
        torch.cuda.synchronize(index)
    for plan in made:
        plan.destroy()
    library.close_shared_runtime()


def plans():
    """PlanInfo of every plan made so far."""
    return [launch.plan.describe() for launch in list(_launches.values()) if launch.plan is not None]


def _warn_once(cause: str, text: str) -> None:
    if cause not in _warned:
        _warned.add(cause)
        warnings.warn(text, errors.TrigenWarning, stacklevel=4)


# ---- strides ------------------------------------------------------------------------------------------------------------


def activation_strides(tensor, sizes: arguments.Sizes, layout: str):
    """(batch, head, row) strides in elements, or None when the tensor has to be copied first. Axes of size 1 count as contiguous."""
    batch, outer, inner = tensor.shape
    stride_batch, stride_row, stride_inner = tensor.stride()
    if inner > 1 and stride_inner != 1:
        return None
    row = stride_row if outer > 1 else inner
    if batch == 1:
        stride_batch = row * outer
    if row < inner or stride_batch < 1:
        return None
    return stride_batch, sizes.D * (1 if layout == "btd" else row), row


def weight_strides(weight, sizes: arguments.Sizes):
    """(head, row) strides of W[h,t,s,j] in elements, or None when the weight has to be copied first."""
    strides, shape = list(weight.stride()), list(weight.shape)
    if weight.dim() == 2:
        strides, shape = strides + [1], shape + [1]
    if len(shape) == 3:
        strides, shape = [0] + strides, [1] + shape
    head, row, column, tap = strides
    if (shape[3] > 1 and tap != 1) or (shape[2] > 1 and column != shape[3]):
        return None
    if shape[1] == 1:
        row = shape[2] * shape[3]
    if shape[0] == 1:
        head = row * shape[1]
    return (head, row) if row >= shape[2] * shape[3] and head >= 1 else None


def _alignment(element: int, pointers: int, strides) -> int:
    value = pointers | 16
    for stride in strides:
        value |= stride * element
    return value & -value


# ---- making a launch ----------------------------------------------------------------------------------------------------


def resolve_math(math: str, dtype: torch.dtype) -> str:
    """float32 follows PyTorch's own switch for matrix products unless the caller says simt, f16x3 or tf32."""
    if dtype != torch.float32:
        return "default"
    if math != "default":
        return math
    return "tf32" if tf32_is_allowed() else "simt"


def make_problem(op, dtype, wdtype, sizes, pad, layout, fill, diag, math, align, walign, **epilogue) -> library.CProblem:
    import ctypes

    return library.CProblem(
        struct_size=ctypes.sizeof(library.CProblem), op=library.OPS[op], dtype=library.DTYPES[_NAME[dtype]],
        wdtype=library.DTYPES[_NAME[wdtype]], math=library.MATHS[math], layout=library.LAYOUTS[layout], fill=library.FILLS[fill],
        B=sizes.B, H=sizes.H, T=sizes.n, D=sizes.D, K=sizes.K, pad=pad, diag=diag, align=align, walign=walign, **epilogue,
    )


def _plan(problem, device: int) -> Optional[library.Plan]:
    """The plan, or None where plain torch shall serve."""
    global _run
    if _is_capturing():
        raise RuntimeError(
            "the stream is capturing a graph and this combination of shapes has no plan yet; allowed: combinations that ran before; "
            "run the model once on the same shapes before the capture"
        )
    try:
        plan = library.shared_runtime().plan(problem, device)
    except (errors.LibraryMissing, errors.Unsupported, errors.BuildError, errors.CacheMiss) as error:
        if _fallback != "plain":
            raise
        _warn_once(type(error).__name__, f"plain torch operations run instead of a trigen kernel: {error}")
        return None
    _run = library.load().trigen_plan_run
    if plan.describe().match == "none":
        _warn_once(
            "untuned",
            "the cache has no tuned kernel for a problem of this run; the model's first choice runs instead "
            "(trigen.tune(model, inputs) tunes them; this is said once)",
        )
    return plan


def _make(op, operands, sizes, weight, wdtype, pad, layout, fill, diag, math, epilogue, device, pointers, weight_pointer,
          bias_tokens=0) -> Launch:
    """operands: (position, name, tensor or None) of what is read and has x's shape; outputs are contiguous."""
    dtype = operands[0][2].dtype
    diag = problem_text.effective_diagonal(fill, diag, sizes.n)
    if dtype == torch.float64 or diag is None:
        return _PLAIN
    strides, copies = {}, []
    for position, name, tensor in operands:
        if tensor is not None:
            strides[name] = activation_strides(tensor, sizes, layout)
            if strides[name] is None:
                copies.append(position)
    if weight is not None:
        wstrides = weight_strides(weight, sizes)
        if wstrides is None:
            copies.append(1)
    else:
        wstrides = (sizes.T * sizes.T * sizes.K, sizes.T * sizes.K)
    if copies:
        return Launch(copies=tuple(copies))
    inner, outer = (sizes.H * sizes.D, sizes.n) if layout == "btd" else (sizes.n, sizes.H * sizes.D)
    out = (inner * outer, sizes.D * (1 if layout == "btd" else inner), inner)
    element, welement = _ELEMENT[dtype], _ELEMENT[wdtype]
    align = _alignment(element, pointers, [stride for triple in [out, *strides.values()] for stride in triple])
    walign = _alignment(welement, weight_pointer, wstrides)
    made = make_problem(op, dtype, wdtype, sizes, pad, layout, fill, diag, resolve_math(math, dtype), align, walign, **epilogue)
    plan = _plan(made, device)
    if plan is None:
        return _PLAIN
    blocks = {name: struct.pack("3q", *triple) for name, triple in strides.items()}
    return Launch(plan.handle, plan.workspace_size, (), blocks.get("x", _UNUSED), blocks.get("gate", _UNUSED),
                  blocks.get("residual", _UNUSED), struct.pack("3q", *out), struct.pack("2q", *wstrides),
                  operands[0][2].is_contiguous(), bias_tokens, library.format_problem(made), plan)


def _launch_error(status: int, launch: Launch) -> None:
    try:
        library.check(status)
    except errors.TrigenError as error:
        text = str(error)
        raise type(error)(text if launch.text in text else f"{launch.text}: {text}") from None


def _key_of(tensor):
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device())


# ---- operators ----------------------------------------------------------------------------------------------------------


def forward_launch(x, weight, bias, gate, residual, options, want_pre, x_pointer, weight_pointer) -> Launch:
    """The launch of this combination, made when it is new. options: (pad, layout, fill, diag, activation, math); math is resolved
    already."""
    low = x_pointer
    rest = None
    if gate is not None or residual is not None:
        rest = _key_of(gate), _key_of(residual)
        low |= (0 if gate is None else gate.data_ptr()) | (0 if residual is None else residual.data_ptr())
    key = (x.shape, x.stride(), x.dtype, x.get_device(), weight.shape, weight.stride(), weight.dtype, weight.get_device(), options, want_pre,
           None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.get_device()), rest, low & 15, weight_pointer & 15)
    launch = _launches.get(key)
    if launch is None:
        pad, layout, fill, diag, activation, math = options
        sizes = arguments.check_forward(x, weight, bias, gate, residual, *options[:3], activation, math)
        launch = _launches[key] = _make(
            "forward", ((0, "x", x), (3, "gate", gate), (4, "residual", residual)), sizes, weight, weight.dtype, pad, layout, fill,
            diag, math, dict(bias=bias is not None, activation=library.ACTIVATIONS[activation], gate=gate is not None,
                             pre=want_pre, residual=residual is not None),
            x.get_device(), low & 15, weight_pointer & 15, sizes.n if sizes.H > 1 and sizes.n < sizes.T else 0,
        )
    return launch


def run_forward(x, weight, bias, gate, residual, options, want_pre):
    """(y, pre or None). options: (pad, layout, fill, diag, activation, math)."""
    if want_pre and options[4] == "none" and gate is None:  # the sum itself; nothing that a kernel stores twice
        pre = run_forward(x, weight, bias, None, None, options, False)[0]
        if residual is not None:
            arguments.check_like("residual", residual, x)
        return (pre.clone() if residual is None else pre + residual), pre
    dtype = x.dtype
    if dtype is _FLOAT32:
        options = (*options[:5], resolve_math(options[5], dtype))
    x_pointer, weight_pointer = x.data_ptr(), weight.data_ptr()
    launch = forward_launch(x, weight, bias, gate, residual, options, want_pre, x_pointer, weight_pointer)
    if launch.copies:
        tensors = [x, weight, bias, gate, residual]
        for position in launch.copies:
            tensors[position] = _contiguous(tensors[position])
        return run_forward(*tensors, options, want_pre)
    if recording.active is not None:
        _record("forward", launch, x, weight, bias, gate, residual, *options, want_pre)
    if not launch.handle:
        sizes = arguments.check_activations(x, weight.shape, options[1])
        return plain.forward(x, weight, bias, gate, residual, sizes, *options[:5])
    bias_pointer = 0
    if bias is not None:
        if launch.bias_tokens:
            bias = bias[:, : launch.bias_tokens]
        if not bias.is_contiguous():
            bias = _contiguous(bias)
        bias_pointer = bias.data_ptr()
    y = _empty_like(x) if launch.like_x else _empty(x.shape, dtype=dtype, device=x.device)
    pre, pre_pointer, pre_strides = None, 0, _UNUSED
    if want_pre:
        pre = _empty_like(y)
        pre_pointer, pre_strides = pre.data_ptr(), launch.y
    workspace, size = 0, launch.workspace
    if size:
        scratch = _empty(size, dtype=torch.uint8, device=x.device)
        workspace = scratch.data_ptr()
    status = _run(
        launch.handle,
        _pack(_ARGS_SIZE, x_pointer, launch.x, y.data_ptr(), launch.y, pre_pointer, pre_strides,
              0 if gate is None else gate.data_ptr(), launch.gate, 0 if residual is None else residual.data_ptr(), launch.residual,
              weight_pointer, launch.weight, bias_pointer, workspace, size),
        _raw_stream(x.get_device()),
    )
    if status:
        _launch_error(status, launch)
    return y, pre


def forward(x, weight, bias=None, gate=None, residual=None, pad=0, layout="btd", fill="lower", diag=0, activation="none",
            math="default"):
    return run_forward(x, weight, bias, gate, residual, (pad, layout, fill, diag, activation, math), False)[0]


def forward_pre(x, weight, bias=None, gate=None, residual=None, pad=0, layout="btd", fill="lower", diag=0, activation="none",
                math="default"):
    return run_forward(x, weight, bias, gate, residual, (pad, layout, fill, diag, activation, math), True)


def grad_input_launch(grad, weight, residual, pad, layout, fill, diag, math) -> Launch:
    """The launch of this combination, made when it is new. math is resolved already."""
    weight_low = weight.data_ptr() & 15
    low = (grad.data_ptr() | (0 if residual is None else residual.data_ptr())) & 15
    key = ("grad_input", _key_of(grad), _key_of(weight), _key_of(residual), pad, layout, fill, diag, math, low, weight_low)
    launch = _launches.get(key)
    if launch is None:
        sizes = arguments.check_grad_input(grad, weight, residual, pad, layout, fill, math)
        launch = _launches[key] = _make(
            "grad_input", ((0, "x", grad), (2, "residual", residual)), sizes, weight, weight.dtype, pad, layout, fill, diag, math,
            dict(residual=residual is not None), grad.get_device(), low, weight_low,
        )
    return launch


def grad_input(grad, weight, residual=None, pad=0, layout="btd", fill="lower", diag=0, math="default"):
    math = resolve_math(math, grad.dtype)
    launch = grad_input_launch(grad, weight, residual, pad, layout, fill, diag, math)
    if launch.copies:
        tensors = [grad, weight, residual]
        for position in launch.copies:
            tensors[position] = _contiguous(tensors[position])
        return grad_input(*tensors, pad, layout, fill, diag, math)
    if recording.active is not None:
        _record("grad_input", launch, grad, weight, residual, pad, layout, fill, diag, math)
    if not launch.handle:
        sizes = arguments.check_activations(grad, weight.shape, layout, "grad")
        return plain.grad_input(grad, weight, residual, sizes, pad, layout, fill, diag)
    dx = _empty_like(grad) if launch.like_x else _empty(grad.shape, dtype=grad.dtype, device=grad.device)
    workspace, size = 0, launch.workspace
    if size:
        scratch = _empty(size, dtype=torch.uint8, device=grad.device)
        workspace = scratch.data_ptr()
    status = _run(
        launch.handle,
        _pack(_ARGS_SIZE, dx.data_ptr(), launch.y, grad.data_ptr(), launch.x, 0, _UNUSED, 0, _UNUSED,
              0 if residual is None else residual.data_ptr(), launch.residual, weight.data_ptr(), launch.weight, 0, workspace, size),
        _raw_stream(grad.get_device()),
    )
    if status:
        _launch_error(status, launch)
    return dx


def grad_weight_launch(grad, x, weight_size, weight_dtype, bias, pad, layout, fill, diag, math) -> Launch:
    """The launch of this combination, made when it is new. math is resolved already, weight_size a tuple."""
    low = (grad.data_ptr() | x.data_ptr()) & 15
    key = ("grad_weight", _key_of(grad), _key_of(x), weight_size, weight_dtype, bias, pad, layout, fill, diag, math, low)
    launch = _launches.get(key)
    if launch is None:
        sizes = arguments.check_grad_weight(grad, x, weight_size, weight_dtype, pad, layout, fill, math)
        launch = _launches[key] = _make(
            "grad_weight", ((1, "x", x), (0, "residual", grad)), sizes, None, weight_dtype, pad, layout, fill, diag, math,
            dict(bias=bool(bias), zero_outside=sizes.n == sizes.T), x.get_device(), low, 0, sizes.n if sizes.n < sizes.T else 0,
        )
    return launch


def grad_weight(grad, x, weight_size, weight_dtype, bias=False, pad=0, layout="btd", fill="lower", diag=0, math="default"):
    math = resolve_math(math, x.dtype)
    weight_size = tuple(weight_size)
    launch = grad_weight_launch(grad, x, weight_size, weight_dtype, bias, pad, layout, fill, diag, math)
    if launch.copies:
        tensors = [grad, x]
        for position in launch.copies:
            tensors[position] = _contiguous(tensors[position])
        return grad_weight(*tensors, weight_size, weight_dtype, bias, pad, layout, fill, diag, math)
    if recording.active is not None:
        _record("grad_weight", launch, grad, x, weight_size, weight_dtype, bias, pad, layout, fill, diag, math)
    if not launch.handle:
        sizes = arguments.check_activations(x, weight_size, layout)
        return plain.grad_weight(grad, x, weight_size, weight_dtype, bias, sizes, pad, layout, fill, diag)
    device, prefix = x.device, launch.bias_tokens
    make = _zeros if prefix else _empty
    dw = make(weight_size, dtype=weight_dtype, device=device)
    size = arguments.bias_size(weight_size) if bias else (0,)
    db = _empty(size, dtype=weight_dtype, device=device)
    db_kernel = db
    if bias and prefix:
        db_kernel = _empty((*size[:-1], prefix), dtype=weight_dtype, device=device)
    workspace, size = 0, launch.workspace
    if size:
        scratch = _empty(size, dtype=torch.uint8, device=device)
        workspace = scratch.data_ptr()
    status = _run(
        launch.handle,
        _pack(_ARGS_SIZE, x.data_ptr(), launch.x, grad.data_ptr(), launch.residual, 0, _UNUSED, 0, _UNUSED, 0, _UNUSED, dw.data_ptr(),
              launch.weight, db_kernel.data_ptr() if bias else 0, workspace, size),
        _raw_stream(x.get_device()),
    )
    if status:
        _launch_error(status, launch)
    if bias and prefix:
        db.zero_()
        db[..., :prefix] = db_kernel
    return dw, db


def gradients(grad, x, weight, bias, options):
    """(dx, dW, dbias or None): grad_input and grad_weight of one backward pass by one lookup, and one copy of what needs one. bias: the
    forward's, for its shape, or None. options as run_forward's. Prefixes, plain torch and recording go through the two functions
    above."""
    if x.dtype is _FLOAT32:
        options = (*options[:5], resolve_math(options[5], _FLOAT32))
    grad_pointer, x_pointer, weight_pointer = grad.data_ptr(), x.data_ptr(), weight.data_ptr()
    key = (grad.shape, grad.stride(), grad.dtype, grad.get_device(), x.shape, x.stride(), x.dtype, x.get_device(), weight.shape, weight.stride(),
           weight.dtype, weight.get_device(), options, bias is None, grad_pointer & 15, x_pointer & 15, weight_pointer & 15)
    both = _both.get(key)
    if both is None:
        pad, layout, fill, diag, _, math = options
        first = grad_input_launch(grad, weight, None, pad, layout, fill, diag, math)
        second = grad_weight_launch(grad, x, tuple(weight.shape), weight.dtype, bias is not None, pad, layout, fill, diag, math)
        usual = first.handle and second.handle and first.like_x and weight.is_contiguous() and not second.bias_tokens
        both = _both[key] = (first, second) if usual or first.copies or second.copies else ()
    if not both or recording.active is not None or (bias is not None and not bias.is_contiguous()):
        pad, layout, fill, diag, _, math = options
        dx = grad_input(grad, weight, None, pad, layout, fill, diag, math)
        dw, db = grad_weight(grad, x, weight.shape, weight.dtype, bias is not None, pad, layout, fill, diag, math)
        return dx, dw, None if bias is None else db
    first, second = both
    if not first.handle or not second.handle:
        return gradients(_contiguous(grad) if 0 in first.copies or 0 in second.copies else grad, _contiguous(x) if 1 in second.copies else x,
                         _contiguous(weight) if 1 in first.copies else weight, bias, options)
    stream = _raw_stream(x.get_device())
    dx = _empty_like(grad)
    workspace, size = 0, first.workspace
    if size:
        scratch = _empty(size, dtype=torch.uint8, device=x.device)
        workspace = scratch.data_ptr()
    status = _run(first.handle, _pack(_ARGS_SIZE, dx.data_ptr(), first.y, grad_pointer, first.x, 0, _UNUSED, 0, _UNUSED, 0, _UNUSED,
                                      weight_pointer, first.weight, 0, workspace, size), stream)
    if status:
        _launch_error(status, first)
    dw = _empty_like(weight)
    db, db_pointer = None, 0
    if bias is not None:
        db = _empty_like(bias)
        db_pointer = db.data_ptr()
    workspace, size = 0, second.workspace
    if size:
        scratch = _empty(size, dtype=torch.uint8, device=x.device)
        workspace = scratch.data_ptr()
    status = _run(second.handle, _pack(_ARGS_SIZE, x_pointer, second.x, grad_pointer, second.residual, 0, _UNUSED, 0, _UNUSED, 0, _UNUSED,
                                       dw.data_ptr(), second.weight, db_pointer, workspace, size), stream)
    if status:
        _launch_error(status, second)
    return dx, dw, db


# ---- recording ----------------------------------------------------------------------------------------------------------


def _record(op, launch: Launch, *inputs) -> None:
    """The problem of this call, as its plan has it, or as a plan would where plain torch serves it."""
    from . import recorded

    if launch.text:
        recording.active.add(launch.text)
    else:
        getattr(recorded, op)(*inputs)
