"""Tuning what a PyTorch model meets: one recorded run of it, then tuning.tune_problems."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from . import recording, tuning


def tune(
    model: Callable[..., Any],
    example_inputs: Any,
    *,
    backward: bool = True,
    arch: Optional[str] = None,
    budget: Optional[str] = None,
    options: Sequence[str] = (),
    quiet: bool = False,
) -> tuning.TuneResult:
    """Runs model(*example_inputs) once (and its backward pass), records the problems it meets, and tunes them.

    example_inputs: a tensor, a tuple or a dict. Run it as training runs: under torch.autocast, on the GPU, in training mode. Gradients are
    computed and thrown away: .grad stays as it is. arch, budget, options and quiet as of tune_problems."""
    import torch

    with recording.record() as seen:
        with torch.set_grad_enabled(backward):
            result = call(model, example_inputs)
            if backward:
                _backward(result, model, torch)
    return tuning.tune_problems(seen.problems, arch=arch, budget=budget, options=options, quiet=quiet)


def call(model, example_inputs):
    """model(x), model(*tuple) or model(**dict)."""
    if isinstance(example_inputs, dict):
        return model(**example_inputs)
    return model(*example_inputs) if isinstance(example_inputs, (tuple, list)) else model(example_inputs)


def _backward(result, model, torch) -> None:
    outputs = [value for value in _tensors(result, torch) if value.requires_grad]
    parameters = [p for p in getattr(model, "parameters", lambda: [])() if p.requires_grad]
    if outputs and parameters:
        loss = sum(value.float().sum() for value in outputs)
        torch.autograd.grad(loss, parameters, allow_unused=True)


def _tensors(value, torch):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part, torch)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part, torch)
