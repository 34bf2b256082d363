"""Calls of the functional form whose combination of shapes, strides, dtypes and modes was met before: one check in C (guards.py), then the launch.

What it saves: 9 to 24 % of an eager step (bf16 autocast, forward and both gradients of one mixer; one H200, torch 2.11, 2026-11-26, medians of
interleaved runs): 122 : 134 us at B,T,D = 1,128,64, 147 : 167 at 128,256,512, 136 : 154 at 32,512,1024, 146 : 193 at 16,1024,1024.
The launch and the derivative are the others' (launch.py, ops.Mixer).

Only the usual calls are learned: contiguous bias and outputs, aligned pointers, no copies, no gate, no residual, no activation whose input
has to be kept, a kernel for all of it.

scan's calls are known by the same check (scans.Call), and their backward passes by the same Backward.
"""

from __future__ import annotations

import torch

from .. import recording
from . import cuda, guards, launch, ops
from .precision import resolve_math, tf32_is_allowed

_grad_enabled = torch.is_grad_enabled
_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
_calls = guards.Known()


class Backward:
    """The launches that the backward passes of one combination met. bias: what grad_bias looks like, or None."""

    __slots__ = ("bias", "backward", "generation")

    def __init__(self, bias):
        self.bias = None if bias is None else launch.empty_like(bias.detach())
        self.backward, self.generation = (), launch.generation

    def run_of(self, grad, x, weight, needs_bias: bool):
        """What makes dx, dW and dbias of this backward pass, as launch.Pair.run does, or None where it is no usual one."""
        raise NotImplementedError

    def gradients(self, tensors, weight, needs_bias: bool, *kept):
        """(dx, dW, dbias or None), or None where this backward pass is a new one. tensors: grad, x and those that weight is made of. kept: of
        the forward pass, for run."""
        for check, with_bias, run in self.backward:
            if with_bias is needs_bias and check(*tensors):
                grad, x = tensors[:2]
                grad_pointer, x_pointer = grad.data_ptr(), x.data_ptr()
                if (
                    (grad_pointer | x_pointer) & 15
                    or recording.active is not None
                    or self.generation != launch.generation
                ):
                    return None
                return run(grad, x_pointer, grad_pointer, weight, self.bias if needs_bias else None, *kept)
        return None

    def learn_gradients(self, tensors, weight, needs_bias: bool) -> None:
        """Remembers a backward pass that has just run, when it is a usual one."""
        grad, x = tensors[:2]
        if (
            self.generation != launch.generation
            or recording.active is not None
            or len(self.backward) == guards._VARIANTS
            or (grad.data_ptr() | x.data_ptr()) & 15
        ):
            return
        run = self.run_of(grad, x, weight, needs_bias)
        if run is not None:
            self.backward = (*self.backward, (guards.guard(*tensors), needs_bias, run))


class Call(Backward):
    """One combination: what forward launches. tf32: what the process's switches must allow for float32 of math="default", else None; options
    hold what they came to. keeps: like the workspace in which forward leaves the weight as a backward pass wants it, too, or None."""

    __slots__ = ("check", "grad_mode", "autocast", "tf32", "wants", "options", "found", "launch", "keeps")

    def __init__(self, tensors, options, found: launch.Launch, autocast, tf32):
        self.check, self.grad_mode, self.autocast, self.tf32 = guards.guard(*tensors), _grad_enabled(), autocast, tf32
        self.wants = self.grad_mode and any(tensor.requires_grad for tensor in tensors)
        self.options, self.found, self.launch, self.keeps = options, found, found.run, None
        super().__init__(tensors[2] if len(tensors) == 3 else None)

    def run_of(self, grad, x, weight, needs_bias):
        if weight.data_ptr() & 15:
            return None
        pair = cuda.pair_of(grad, x, weight, needs_bias, self.options)
        if type(pair) is not launch.Pair:
            return None
        if self.found.prepared and pair.first.prepared == self.found.prepared:
            self.keeps = self.found.scratch
            return pair.run
        return lambda *given: pair.run(*given[:5])

    def forward(self, x, bias, x_pointer: int, weight_pointer: int):
        y = launch.empty_like(x)
        self.launch(x_pointer, y.data_ptr(), weight_pointer, 0 if bias is None else bias.data_ptr())
        return y


def _saved_elsewhere() -> bool:
    """Whether hooks take what is saved for backward passes away (activation checkpointing, offloading): what is kept beside it would stay."""
    return _hooks is None or _hooks(True) is not None


class Recorded(ops.Mixer):
    """The derivative of a known call."""

    @staticmethod
    def forward(ctx, x, weight, bias, x_pointer: int, weight_pointer: int, call: Call):
        ctx.save_for_backward(x, weight)
        ctx.call = call
        y = launch.empty_like(x)
        bias_pointer = 0 if bias is None else bias.data_ptr()
        if call.keeps is None or not ctx.needs_input_grad[0] or _saved_elsewhere():
            ctx.kept = ()
            call.launch(x_pointer, y.data_ptr(), weight_pointer, bias_pointer)
        else:
            ctx.kept = (launch.empty_like(call.keeps),)
            call.launch(x_pointer, y.data_ptr(), weight_pointer, bias_pointer, b"", ctx.kept[0].data_ptr())
        return y

    @staticmethod
    def backward(ctx, grad):
        call, (x, weight) = ctx.call, ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _, _, _ = ctx.needs_input_grad
        usual = needs_x and needs_weight and not _grad_enabled()
        if usual:
            got = call.gradients((grad, x, weight), weight, needs_bias, *ctx.kept)
            if got is not None:
                return (*got, None, None, None)
        ctx.options, ctx.bias = call.options, call.bias
        got = ops.derivative(ctx, (x, weight), grad)
        if usual and ops.direct(grad, weight):
            call.learn_gradients((grad, x, weight), weight, needs_bias)
        return got


apply = super(torch.autograd.Function, Recorded).apply  # as ops.apply_direct


def forget() -> None:
    _calls.clear()


launch.forgetters.append(forget)


def learn(key, x, weight, bias, options, autocast) -> None:
    """Remembers a call that has just run on a GPU, when it is a usual one. autocast: its dtype, or None where it is off."""
    if not guards.works() or not _calls.has_room(key):
        return
    tf32 = None
    if x.dtype is torch.float32 and options[5] == "default":
        tf32 = tf32_is_allowed()
        options = (*options[:5], resolve_math("default", x.dtype, x.get_device()), options[6])
    pointers = x.data_ptr() | weight.data_ptr()
    if pointers & 15 or (bias is not None and not bias.is_contiguous()):
        return
    found = cuda.forward_launch(x, weight, bias, None, None, options, False, x.data_ptr(), weight.data_ptr())
    if not found.handle or found.bias_tokens or not found.like_x:
        return
    call = Call((x, weight) if bias is None else (x, weight, bias), options, found, autocast, tf32)
    if not call.wants or options[4] == "none":
        _calls.learn(key, call)
