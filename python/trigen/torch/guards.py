"""Which tensors are like those that were met before: one check in C, and what is kept by it.

The check is torch._dynamo's TensorGuards, which compares type, dispatch keys with everything that watches them (autocast, dispatch modes,
functorch, tracing, inference mode), dtype, device, requires_grad, sizes and strides of several tensors in a quarter of a microsecond; reading the
same from Python takes a few. It is no public interface: works() tries each of those differences once, and where one goes unnoticed, or the class is
not there, nothing is ever known by it: calls take the way of functional.py, and launches are found by all that the check compares.

Any thread may look up; entries are immutable and tuples of them are replaced, never changed.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch

_SHAPES, _VARIANTS = 4096, 8  # how many shapes are remembered, and how many calls that differ otherwise for each


def guard(*tensors):
    """The check of these tensors under the modes of now."""
    return torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def works() -> bool:
    """Whether the check tells apart all that a call depends on."""
    global _works
    if _works is None and torch._C._len_torch_dispatch_stack() == 0:  # a dispatch mode would see the tries
        try:
            usual = torch.autocast("cpu", enabled=False), torch.inference_mode(False)  # whatever the first call is in
            with warnings.catch_warnings(), usual[0], usual[1]:
                warnings.simplefilter("ignore")
                _works = _try_guard()
        except Exception:  # a private interface: whatever it does instead, the usual way remains
            _works = False
    return bool(_works)


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
    differ = (
        torch.zeros(3, 3, 3),
        torch.zeros(2, 3),
        one.transpose(1, 2),
        one.double(),
        one.to("meta"),
        one.clone().requires_grad_(),
        one.as_subclass(Other),
        torch.nn.Parameter(one, requires_grad=False),
    )
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


class Known(Dict[tuple, Tuple[Any, ...]]):
    """Entries by a key that is cheap to make; those of one key differ by their checks."""

    def has_room(self, key) -> bool:
        return len(self.get(key, ())) < _VARIANTS

    def learn(self, key, entry) -> None:
        before = self.get(key, ())
        if len(self) >= _SHAPES:
            self.clear()
        self[key] = (*before, entry)


class Made(Dict[tuple, Any]):
    """What was made for combinations of tensors, by all that it depends on, and ahead of that by the check."""

    def __init__(self) -> None:
        super().__init__()
        self.known = Known()

    def find(self, key: tuple, tensors: Sequence[torch.Tensor], make: Callable[[], Any]) -> Any:
        """What make() returned for this combination when it was new. key: what counts beside the tensors' shapes, strides, dtypes and devices:
        which tensors they are, options, the last bits of addresses."""
        known = self.known  # before the rest: what is found in self after clear() is not learned
        for check, found in known.get(key, ()):
            if check(*tensors):
                return found
        whole = key, *map(_key_of, tensors)
        found = self.get(whole)
        if found is None:
            found = self[whole] = make()
        if works() and known.has_room(key):
            check = guard(*tensors)
            if check(*tensors):  # one tensor given twice never passes
                known.learn(key, (check, found))
        return found

    def clear(self) -> None:
        super().clear()
        self.known = Known()


def _key_of(tensor) -> tuple:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()
