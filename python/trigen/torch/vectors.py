"""The vectors of a scan: checked, put together as the operators' w [4, H, n], and w's gradients taken apart again.

What the shapes and dtypes of a combination of vectors ask for is found once, by Vectors; then each call does just that. Making w takes one
operation of PyTorch beyond views (more where vectors are of another dtype, or the diagonal is a product), and each gradient at most one.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .. import errors
from ..decays import check_decay
from . import arguments, launch, ops

Vector = Union[torch.Tensor, float, None]

NAMES = ("source", "target", "decay", "diagonal", "bias")
_hardtanh_backward = torch.ops.aten.hardtanh_backward.default
_SOURCE, _TARGET, _DECAY, _DIAGONAL, _BIAS = range(5)


class _Step(NamedTuple):
    """How a vector comes to be [H, n] (a bias of one head may stay [n]): by these, in this order, where they apply."""

    at: int  # which of NAMES
    shape: Sequence[int]  # as it is given
    of_heads: bool  # [H] -> [H, 1]
    part: bool  # fewer tokens than it has
    dtype: Optional[torch.dtype]  # its own, where it is cast
    small: Optional[Sequence[int]]  # its shape by now, where that is not [H, n]

    def is_whole(self) -> bool:
        return not (self.of_heads or self.part) and self.dtype is None and self.small is None


class _Sum(NamedTuple):
    """How a gradient [H, n] comes to have a step's small shape."""

    axes: Sequence[int]
    keeps_axes: bool
    shape: Optional[Sequence[int]]  # where the sum, or without axes what was given, has another


def _sum_to(small: Sequence[int], heads: int, n: int) -> _Sum:
    if math.prod(small) == heads * n:
        return _Sum((), False, small)
    if len(small) == 2:
        return _Sum([axis for axis in (0, 1) if small[axis] != (heads, n)[axis]], True, None)
    if len(small) == 1 and (small[0] == n or heads == 1):
        return _Sum((0,) if small[0] == n else (1,), False, None)
    return _Sum((0, 1), False, small if len(small) == 1 else None)


class Vectors:
    """The vectors of a call, by what they are: given and shapes, not values. Immutable once placed.

    heads, tokens   H, T: what the vectors' sizes come to. T is 1 where none has more
    wide            the dtype that recurrences are computed in
    clip, power     what is done to a decay: clip(decay, *clip) ** power"""

    def __init__(
        self,
        x: torch.Tensor,
        given: Sequence[Optional[torch.Tensor]],
        decay_range: Optional[Tuple[float, float]] = None,
        decay_constant: float = 1.0,
    ) -> None:
        """given: by NAMES, None for what is left out. Raises ValueError for what does not go together."""
        self.wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        self.device, self.heads, self.tokens, self.ones = x.device, 1, 1, None
        self.clip = None
        if decay_range is not None or decay_constant != 1:
            self.clip = check_decay(decay_range, decay_constant)
        self.power = 1 / decay_constant
        self.given = [one is not None for one in given]
        self.derived = not self.given[_DIAGONAL]  # source * target
        self.of_heads = False  # a decay of one axis, which the others' shapes name
        for name, value in zip(NAMES, given):
            if value is None:
                continue
            if not isinstance(value, torch.Tensor) or value.dim() > 2 or not value.is_floating_point():
                found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
                raise ValueError(
                    f"{name} is {found}; allowed: a number, or a floating tensor [T], [heads, T] or [heads, 1]"
                )
            arguments.check_device(name, value, x)
            if name == "decay" and value.dim() == 1 and value.shape[0] > 1:
                continue
            shape = (1,) * (2 - value.dim()) + tuple(value.shape)
            self.heads = _agree(name, shape, 0, self.heads, "heads")
            self.tokens = _agree(name, shape, 1, self.tokens, "tokens")
        decay = given[_DECAY]
        if decay is not None and decay.dim() == 1 and decay.shape[0] > 1:
            size = decay.shape[0]
            if size == self.heads and size == self.tokens:
                raise ValueError(
                    f"decay has shape [{size}], and there are {self.heads} heads of {self.tokens} tokens; allowed: [{self.heads}, 1] for one "
                    f"of each head, [1, {self.tokens}] for one of each token"
                )
            self.of_heads = size == self.heads
            if not self.of_heads:
                self.tokens = _agree("decay", (1, size), 1, self.tokens, "tokens")

    def place(self, given: Sequence[Optional[torch.Tensor]], begin: int, n: int) -> Vectors:
        """For the tokens [begin, begin + n) of those that the vectors have."""
        self.begin, self.n, self.sums = begin, n, None
        self.steps: List[_Step] = []
        for at, value in enumerate(given):
            if value is None:
                continue
            of_heads = at == _DECAY and self.of_heads
            shape = list(value.shape) + [1] * of_heads
            part = len(shape) > 0 and shape[-1] > 1 and shape[-1] != n
            if part:
                shape[-1] = n
            whole = shape == [self.heads, n] or (at == _BIAS and self.heads == 1 and shape == [n])
            small = None if whole else shape
            dtype = value.dtype if value.dtype != self.wide else None
            self.steps.append(_Step(at, tuple(value.shape), of_heads, part, dtype, small))
        self.changed = [step for step in self.steps if step.at == _DECAY or not step.is_whole()]
        source, target, decay, diagonal, _ = self.given
        self.lacks = not (source and target and decay and (diagonal or source or target))
        return self

    def make(self, given: Sequence[Optional[torch.Tensor]]) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """(w [4, H, n], bias [H, n] or None; of one head [n] as well), contiguous; by differentiable torch."""
        rows = list(given)
        for step in self.changed:
            row = self._read(step, given[step.at])
            if step.at == _DECAY:
                row = self._decay(row)
            rows[step.at] = row if step.small is None else row.expand(self.heads, self.n)
        source, target, decay, diagonal, bias = rows
        if diagonal is None:
            diagonal = target if source is None else source if target is None else source * target
        parts = [source, target, decay, diagonal]
        if self.lacks:
            one = self._ones() if self.ones is None else self.ones
            parts = [one if part is None else part for part in parts]
        return launch.stack(parts), bias if bias is None or bias.is_contiguous() else bias.contiguous()

    def keep_ones(self) -> None:
        """For calls of plain eager mode."""
        if not _capturing(self.device):
            self.ones = self._ones()

    def _ones(self) -> torch.Tensor:
        return constant((1.0,), self.wide, self.device).expand(self.heads, self.n)

    def _read(self, step: _Step, row: torch.Tensor) -> torch.Tensor:
        """row in the shape step.small."""
        if step.of_heads:
            row = row.unsqueeze(1)
        if step.part:
            row = row[..., self.begin : self.begin + self.n]
        return row if step.dtype is None else row.to(self.wide)

    def _decay(self, raw: torch.Tensor) -> torch.Tensor:
        if self.clip is not None:
            raw = raw.clip(*self.clip)
        return raw if self.power == 1 else raw**self.power

    def _raw_gradient(self, grad: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """That of _decay's argument, grad being its result's; at the bounds as clip's."""
        if self.power != 1:
            grad = grad * (self.power * (raw if self.clip is None else raw.clip(*self.clip)) ** (self.power - 1))
        # One operation where clip's derivative is five. It is 0 at its bounds, which are the next numbers beyond clip's.
        return grad if self.clip is None else _hardtanh_backward(grad, raw, *_beyond(self.clip, self.wide))

    def gradients(self, dw, db, w, given, needs: Sequence[bool]) -> List[Optional[torch.Tensor]]:
        """The gradients of what make was given, None where needs says so, of those of what it made; by differentiable torch. dw is None where
        none of the first four is needed. w: what make made."""
        if self.sums is None:
            self.sums = [None if step.small is None else _sum_to(step.small, self.heads, self.n) for step in self.steps]
        gradients: List[Optional[torch.Tensor]] = [None] * 5
        for step, to in zip(self.steps, self.sums):
            at = step.at
            if not needs[at]:
                continue
            row = db if at == _BIAS else dw[at]
            if self.derived and at <= _TARGET:
                other = _TARGET - at
                row = torch.addcmul(row, dw[_DIAGONAL], w[other]) if self.given[other] else row + dw[_DIAGONAL]
            if at == _BIAS and to is None:
                row = row if row.dim() == len(step.shape) else row.reshape(-1)
            elif to is not None:
                if to.axes:
                    row = row.sum(to.axes, to.keeps_axes)
                if to.shape is not None:
                    row = row.reshape(to.shape)
            if at == _DECAY and (self.clip is not None or self.power != 1):
                row = self._raw_gradient(row, self._read(step, given[at]))
            if step.dtype is not None:
                row = row.to(step.dtype)
            if step.part:
                row = torch.nn.functional.pad(row, (self.begin, step.shape[-1] - self.begin - self.n))
            gradients[at] = row.squeeze(1) if step.of_heads else row
        return gradients


class _Whole:
    """Vectors' part where w is given itself, in source's place."""

    @staticmethod
    def make(given):
        return given[_SOURCE], given[_BIAS]

    @staticmethod
    def gradients(dw, db, w, given, needs):
        return [dw, None, None, None, db if needs[_BIAS] else None]


WHOLE = _Whole()


def placed(x, given: Sequence[Optional[torch.Tensor]], layout: str, decay_range=None, decay_constant=1.0) -> Vectors:
    """The Vectors of x's tokens."""
    if x.dim() != 3:
        axes = "[batch, tokens, features]" if layout == "btd" else "[batch, features, tokens]"
        raise ValueError(f"x has shape {list(x.shape)}; allowed: rank 3, {axes} (layout={layout})")
    vectors = Vectors(x, given, decay_range, decay_constant)
    n, features = (x.shape[1], x.shape[2]) if layout == "btd" else (x.shape[2], x.shape[1])
    tokens = vectors.tokens
    if tokens > 1:
        if n > tokens:
            raise ValueError(
                f"x has {n} tokens (shape {list(x.shape)}, layout={layout}) while the vectors have {tokens}; allowed: at most {tokens} tokens"
            )
        if n < tokens == features and not arguments._prefix_is_meant.get():
            errors.warn_of_transposed(x.shape, tokens, layout, "x")
    return vectors.place(given, 0, n)


def tensors_of(x, given: Sequence[Vector]) -> Tuple[Optional[torch.Tensor], ...]:
    """given with tensors in the place of numbers."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return tuple(torch.full((), one, dtype=wide, device=x.device) if is_number(one) else one for one in given)


def is_number(value: Vector) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _agree(name: str, shape: Sequence[int], axis: int, size: int, what: str) -> int:
    found = shape[axis]
    if found < 1 or (found > 1 and size > 1 and found != size):
        raise ValueError(
            f"{name} has shape {list(shape)}: {found} {what}; allowed beside the other vectors: {size} or 1"
        )
    return max(size, found)


# ---- constants -----------------------------------------------------------------------------------------------------------

_kept: Dict[tuple, torch.Tensor] = {}


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and launch.is_capturing()


def constant(values: tuple, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """[len(values), 1]. In plain eager mode a tensor that is made once, never written again and never freed, so that CUDA graphs may read it as
    well, on any stream: making it copies from the host, which waits."""
    if torch.compiler.is_compiling() or not ops.unwatched():
        return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)
    kept = _kept.get((values, dtype, device))
    if kept is None:
        if _capturing(device):  # what a capture makes has no value before the graph is replayed
            return torch.stack([torch.full((1,), value, dtype=dtype, device=device) for value in values])
        with torch.inference_mode(False):
            kept = torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)
        _kept[values, dtype, device] = kept
    return kept


@functools.lru_cache(maxsize=None)
def _beyond(clip: Tuple[float, float], dtype: torch.dtype) -> Tuple[float, float]:
    """The numbers of that dtype, float32 or float64, next below and above clip's."""
    kind, whole = ("f", "i") if dtype == torch.float32 else ("d", "q")

    def beside(value: float, up: bool) -> float:
        (value,) = struct.unpack(kind, struct.pack(kind, value))
        if math.isinf(value):
            return value
        (bits,) = struct.unpack(whole, struct.pack(kind, abs(value)))
        if bits == 0:
            return struct.unpack(kind, struct.pack(whole, 1))[0] * (1 if up else -1)
        bits += 1 if up == (value > 0) else -1
        return math.copysign(struct.unpack(kind, struct.pack(whole, bits))[0], value)

    return beside(clip[0], False), beside(clip[1], True)
