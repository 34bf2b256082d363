"""A mixer frozen for inference at one shape: the plan, the weights' addresses and the checks are settled once, so that a call is little
more than the kernel launch."""

from __future__ import annotations

import torch

from . import arguments, cuda, guards, launch
from .modules import TriangularConv1d
from .precision import resolve_math


class FrozenMixer:
    """y = frozen(x), for x of exactly the shape, strides, dtype and device of the example. No derivative. Made by freeze().

    Holds the module's weights as they were: call freeze again after replacing them (values changed in place are seen). On a device
    without kernels it calls the module. constant_weights: freeze()'s."""

    def __init__(self, module: TriangularConv1d, example: torch.Tensor, constant_weights: bool = False):
        self._module, self._constant = module, constant_weights
        self._like = (example.shape, example.stride(), example.dtype, example.get_device())
        self._low = example.data_ptr() & 15
        self._launch, self._generation = None, launch.generation
        self._prepared = None  # the workspace with W as the kernel wants it
        self._check = guards.guard(example.detach()) if guards.works() else lambda x: False
        with torch.no_grad():
            module(example)
            if example.is_cuda:
                self._bind(example)

    def __repr__(self) -> str:
        shape, _, dtype, device = self._like
        how = self._launch.text if self._launch is not None else "plain torch operations"
        return f"FrozenMixer({self._module!r}, x={list(shape)} {dtype} on {'the CPU' if device < 0 else f'GPU {device}'}: {how})"

    def _bind(self, example) -> None:
        module = self._module
        weight, bias = module.weight, module.bias
        if module.form == "band":
            weight = arguments.within(weight, example, module.layout)
        math = resolve_math(module.math, example.dtype, example.get_device())
        options = (
            module.pad,
            module.layout,
            module.fill,
            module.diagonal,
            module.activation or "none",
            math,
            module.form,
        )
        found = cuda.forward_launch(
            example, weight, bias, None, None, options, False, example.data_ptr(), weight.data_ptr()
        )
        if not found.handle:
            return
        if found.bias_tokens and bias is not None:
            bias = bias[:, : found.bias_tokens].contiguous()
        self._launch, self._weight, self._bias, self._generation = found, weight, bias, launch.generation
        self._low = example.data_ptr() & 15
        self._pointers = weight.data_ptr(), 0 if bias is None else bias.data_ptr()
        self._prepared = None
        # What a run writes beside it would be shared by calls on several streams.
        if self._constant and found.prepared:
            self._prepared, self._version = launch.empty_like(found.scratch), -1
            self._counted = not weight.is_inference()
            self._run_prepared(
                example.data_ptr(), launch.empty(example.shape, dtype=example.dtype, device=example.device)
            )

    def _run_prepared(self, x: int, y: torch.Tensor) -> None:
        version = self._weight._version if self._counted else 0
        if version == self._version:
            self._launch.run(x, y.data_ptr(), *self._pointers, b"", self._prepared.data_ptr(), launch.W_UNCHANGED)
        elif launch.is_capturing():  # nothing has run when it ends
            self._launch.run(x, y.data_ptr(), *self._pointers)
        else:
            self._launch.run(x, y.data_ptr(), *self._pointers, b"", self._prepared.data_ptr())
            launch.wait(y.device)  # calls on other streams find it made
            self._version = version

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self._check(x):
            self._refuse(x)
        if self._generation != launch.generation and self._launch is not None:
            self._launch = None
            self._bind(x)
        found, pointer = self._launch, x.data_ptr()
        if found is None or pointer & 15 != self._low:
            with torch.no_grad():
                return self._module(x)
        y = launch.empty_like(x) if found.like_x else launch.empty(x.shape, dtype=x.dtype, device=x.device)
        if self._prepared is None:
            found.run(pointer, y.data_ptr(), *self._pointers)
        else:
            self._run_prepared(pointer, y)
        return y

    def _refuse(self, x) -> None:
        """Raises, unless x is what the plan was made for after all (under autocast, say, which changes nothing here)."""
        if (x.shape, x.stride(), x.dtype, x.get_device()) != self._like:
            shape, stride, dtype, _ = self._like
            raise ValueError(
                f"x has shape {list(x.shape)}, strides {list(x.stride())}, {x.dtype} on {x.device}; allowed: what this plan was frozen for: "
                f"{list(shape)}, {list(stride)}, {dtype}, the same device; freeze the module again for another shape"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"x (shape {list(x.shape)}) requires grad; a frozen plan has no derivative; allowed: torch.no_grad(), x.detach(), "
                f"or the module itself"
            )


def freeze(module: TriangularConv1d, example: torch.Tensor, *, constant_weights: bool = False) -> FrozenMixer:
    """The module for inputs exactly like example, without gradients, at the least call cost. Makes the plan now.

    constant_weights: where a kernel wants the weight in another form than it lies in (of several taps, of float32 beside 16-bit data, of an odd
    number of tokens, on Hopper), that form is made now and kept, and not in each call. A weight that PyTorch changes in place is found changed by
    the next call outside of a capture, which makes it again and waits for it; what changes it unseen by PyTorch (through .data, by another
    library) is not."""
    if not isinstance(module, TriangularConv1d):
        raise TypeError(f"module is a {type(module).__name__}; allowed: TriangularConv1d, TriangularLinear")
    if example.dim() != 3:
        raise ValueError(f"example has shape {list(example.shape)}; allowed: rank 3")
    return FrozenMixer(module, example, constant_weights)
