"""Calls of the functional form whose combination of shapes, strides, dtypes and modes was met before: one check in C, then the launch.

The check is torch._dynamo's TensorGuards, which compares type, dispatch keys with everything that watches them (autocast, dispatch modes,
functorch, tracing, inference mode), dtype, device, requires_grad, sizes and strides of several tensors in a quarter of a microsecond; reading the
same from Python takes a few. It is no public interface: works() tries each of those differences once, and where one goes unnoticed, or the class is
not there, nothing is ever known and every call takes the way of functional.py.

Only the usual calls are learned: contiguous bias and outputs, aligned pointers, no copies, no gate, no residual, no activation whose input
has to be kept, a kernel for all of it. Any thread may look up; entries are immutable and lists are replaced, never changed.
"""

from __future__ import annotations

import warnings
from typing import Dict, Optional, Tuple

import torch

from .. import library, recording
from . import arguments, cuda
from .precision import tf32_is_allowed

_grad_enabled = torch.is_grad_enabled
_SHAPES, _VARIANTS = 4096, 8  # how many shapes are remembered, and how many calls that differ otherwise for each
_REST = bytes(96)  # no pre, gate or residual
_pack, _ARGS_SIZE = library.ARGS_USUAL.pack, cuda._ARGS_SIZE
_calls: Dict[tuple, Tuple["Call", ...]] = {}


def guard(*tensors):
    """The check of these tensors under the modes of now."""
    return torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def works() -> bool:
    """Whether the check tells apart all that a call depends on."""
    global _works
    if _works is None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _works = _try_guard()
        except Exception:  # a private interface: whatever it does instead, the usual way remains
            _works = False
    return _works


_works: Optional[bool] = None


def _try_guard() -> bool:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Other(torch.Tensor):
        pass

    one, two = torch.zeros(2, 3, 3), torch.zeros(2, 3, 3)  # two: one tensor given twice never passes
    check = guard(one, two)
    if not (check(one, two) and check(torch.ones(2, 3, 3), one)):
        return False
    differ = (torch.zeros(3, 3, 3), torch.zeros(2, 3), one.transpose(1, 2), one.double(), one.to("meta"), one.clone().requires_grad_(),
              one.as_subclass(Other), torch.nn.Parameter(one, requires_grad=False))
    if any(check(two, other) or check(other, two) for other in differ):
        return False
    passed = []  # in each of these modes, the check made outside
    with torch.autocast("cpu", torch.bfloat16):
        passed.append(check(one, two))
        inside = guard(one, two)
        if not inside(one, two):
            return False
    passed.append(inside(one, two))
    with torch.inference_mode():
        passed.append(check(one, two))
    with Watch():
        passed.append(check(one, two))
    torch.func.vmap(lambda row: (passed.append(check(one, two)), row)[1])(one)
    if hasattr(torch.jit, "trace"):
        torch.jit.trace(lambda value: (passed.append(check(one, two)), value + 1)[1], (one,), check_trace=False)
    return len(passed) >= 5 and not any(passed)


def scratch(size: int, device):
    """What torch.empty_like makes a workspace from in half the time of torch.empty: a byte that looks like that many."""
    return torch.empty(1, dtype=torch.uint8, device=device).expand(size) if size else None


class Call:
    """One combination: what forward launches, and the pairs of launches that its backward passes met. tf32: what the process's switches must
    allow for float32 of math="default", else None; options hold what they came to."""

    __slots__ = ("check", "grad_mode", "autocast", "tf32", "wants", "options", "dtype", "index", "launch", "run", "handle", "workspace", "scratch", "x", "y",
                 "weight", "bias", "backward", "generation")

    def __init__(self, tensors, options, launch, autocast, tf32):
        x = tensors[0]
        self.check, self.grad_mode, self.autocast, self.tf32 = guard(*tensors), _grad_enabled(), autocast, tf32
        self.wants = self.grad_mode and any(tensor.requires_grad for tensor in tensors)
        self.options, self.dtype, self.index, self.launch = options, x.dtype, x.get_device(), launch
        self.run, self.handle, self.workspace = cuda._run, launch.handle, launch.workspace
        self.scratch = scratch(self.workspace, x.device)
        self.x, self.y, self.weight = launch.x, launch.y + _REST, launch.weight
        self.bias = cuda._empty_like(tensors[2].detach()) if len(tensors) == 3 else None  # what grad_bias looks like
        self.backward, self.generation = (), cuda.generation


def forget() -> None:
    _calls.clear()


cuda._forget.append(forget)


def learn(key, x, weight, bias, options, autocast) -> None:
    """Remembers a call that has just run on a GPU, when it is a usual one. autocast: its dtype, or None where it is off."""
    if not works():
        return
    tf32 = None
    if x.dtype is torch.float32 and options[5] == "default":
        tf32 = tf32_is_allowed()
        options = (*options[:5], cuda.resolve_math("default", x.dtype))
    before = _calls.get(key, ())
    pointers = x.data_ptr() | weight.data_ptr()
    if len(before) == _VARIANTS or pointers & 15 or (bias is not None and not bias.is_contiguous()):
        return
    launch = cuda.forward_launch(x, weight, bias, None, None, options, False, x.data_ptr(), weight.data_ptr())
    if not launch.handle or launch.copies or launch.bias_tokens or not launch.like_x:
        return
    if len(_calls) >= _SHAPES:
        _calls.clear()
    call = Call((x, weight) if bias is None else (x, weight, bias), options, launch, autocast, tf32)
    if not call.wants or options[4] == "none":
        _calls[key] = (*before, call)


def forward(ctx, x, weight, bias, call: Call, x_pointer: int, weight_pointer: int):
    """y of a known call. ctx: that of the autograd.Function that calls this, which keeps what gradients() needs, or None."""
    bias_pointer = workspace = 0
    if ctx is not None:
        ctx.save_for_backward(x, weight)
        ctx.call = call
    if bias is not None:
        bias_pointer = bias.data_ptr()
    y = cuda._empty_like(x)
    size = call.workspace
    if size:
        scratch = cuda._empty_like(call.scratch)
        workspace = scratch.data_ptr()
    status = call.run(call.handle, _pack(_ARGS_SIZE, x_pointer, call.x, y.data_ptr(), call.y, weight_pointer, call.weight, bias_pointer, workspace,
                                         size), cuda._raw_stream(call.index))
    if status:
        cuda._launch_error(status, call.launch)
    return y


class _Pair:
    """grad_input and grad_weight of one backward pass."""

    __slots__ = ("check", "needs_bias", "first", "second", "workspace", "scratch", "grad", "second_grad")

    def __init__(self, tensors, needs_bias, first, second):
        self.check, self.needs_bias, self.first, self.second = guard(*tensors), needs_bias, first, second
        self.workspace = max(first.workspace, second.workspace)  # one after the other on one stream, so in one memory
        self.scratch = scratch(self.workspace, tensors[0].device)
        self.grad, self.second_grad = first.x + _REST, second.residual + _REST


def learn_gradients(call: Call, grad, x, weight, needs_bias) -> None:
    """Remembers the pair of a backward pass that has just run, when it is a usual one."""
    before = call.backward
    if call.generation != cuda.generation or len(before) == _VARIANTS or (grad.data_ptr() | x.data_ptr() | weight.data_ptr()) & 15 or not weight.is_contiguous():
        return
    pad, layout, fill, diag, _, math = call.options
    first = cuda.grad_input_launch(grad, weight, None, pad, layout, fill, diag, math)
    second = cuda.grad_weight_launch(grad, x, tuple(weight.shape), weight.dtype, needs_bias, pad, layout, fill, diag, math)
    if first.handle and second.handle and not (first.copies or second.copies or second.bias_tokens) and first.like_x:
        call.backward = (*before, _Pair((grad, x, weight), needs_bias, first, second))


def gradients(call: Call, grad, x, weight, needs_bias: bool):
    """(dx, dW, dbias or None), or None where this backward pass is a new one."""
    for pair in call.backward:
        if pair.needs_bias is needs_bias and pair.check(grad, x, weight):
            break
    else:
        return None
    grad_pointer, x_pointer = grad.data_ptr(), x.data_ptr()
    if (grad_pointer | x_pointer) & 15 or recording.active is not None or call.generation != cuda.generation:
        return None
    run, first, second, size, workspace = call.run, pair.first, pair.second, pair.workspace, 0
    stream = cuda._raw_stream(call.index)
    dx = cuda._empty_like(grad)
    if size:
        scratch = cuda._empty_like(pair.scratch)
        workspace = scratch.data_ptr()
    status = run(first.handle, _pack(_ARGS_SIZE, dx.data_ptr(), first.y, grad_pointer, pair.grad, weight.data_ptr(), first.weight, 0, workspace,
                                     size), stream)
    if status:
        cuda._launch_error(status, first)
    dw, db, db_pointer = cuda._empty_like(weight), None, 0
    if needs_bias:
        db = cuda._empty_like(call.bias)
        db_pointer = db.data_ptr()
    status = run(second.handle, _pack(_ARGS_SIZE, x_pointer, second.x, grad_pointer, pair.second_grad, dw.data_ptr(), second.weight, db_pointer,
                                      workspace, size), stream)
    if status:
        cuda._launch_error(status, second)
    return dx, dw, db
