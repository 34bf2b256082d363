"""The vectors of a scan: checked, put together as the operators' w [4, H, n], and w's gradients taken apart again.

What the shapes and dtypes of a combination of vectors ask for is found once, by Vectors; then each call does just that. Kernels take the vectors
as they are given (Rows), clip and repeat them themselves and make the gradients of that: no operation of PyTorch is ahead of them, unless a vector
is of another dtype or decays have a root, and behind them one sum for each vector that repeats.
"""

from __future__ import annotations

import ctypes
import math
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .. import errors
from ..decays import check_decay
from . import arguments, launch, ops

Vector = Union[torch.Tensor, float, None]

NAMES = ("source", "target", "decay", "diagonal", "bias")
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
    clip, power     what is done to a decay: clip(decay, *clip) ** power
    made, changed   steps of what kernels, and what plain torch, do not take as it is
    like, bounds    Rows', and what kernels clip decays to (0, 0: they do not), once there were rows"""

    def __init__(
        self,
        x: torch.Tensor,
        given: Sequence[Optional[torch.Tensor]],
        decay_range: Optional[Tuple[float, float]] = None,
        decay_constant: float = 1.0,
    ) -> None:
        """given: by NAMES, None for what is left out. Raises ValueError for what does not go together."""
        self.wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        self.device, self.heads, self.tokens, self.like = x.device, 1, 1, None
        self.clip, self.bounds = None, (0.0, 0.0)
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
                found = (
                    f"{value.dtype} {list(value.shape)}"
                    if isinstance(value, torch.Tensor)
                    else f"a {type(value).__name__}"
                )
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
        self.changed = [step for step in self.steps if step.at not in (_DECAY, _BIAS) and not step.is_whole()]
        steps = {step.at: step for step in self.steps}
        self.decay, self.of_bias = steps.get(_DECAY), steps.get(_BIAS)
        self.made = [
            step for step in self.steps if step.at < _BIAS and (step.dtype is not None or self._has_root(step))
        ]
        source, target, decay, diagonal, _ = self.given
        self.lacks = not (source and target and decay and (diagonal or source or target))
        return self

    def _has_root(self, step: _Step) -> bool:
        return step.at == _DECAY and self.power != 1

    # ---- as kernels take them ----

    def rows(self, given: Sequence[Optional[torch.Tensor]]) -> Rows:
        if self.like is None:
            if self.decay is not None and self.clip is not None and self.power == 1:
                lowest, highest = (ctypes.c_float(bound).value for bound in self.clip)
                self.bounds = lowest, max(highest, 2.0**-149)  # above 0, as before it was rounded
            self.like = launch.like((4, self.heads, self.n), self.wide, self.device)
        rows = self.ahead(given)
        return Rows(self.like, self.pack(rows, self.strides(rows)), rows, self, given)

    def ahead(self, given: Sequence[Optional[torch.Tensor]]) -> Sequence[Optional[torch.Tensor]]:
        """given with what kernels do not do themselves done."""
        if not self.made:
            return given
        rows = list(given)
        for step in self.made:
            row = rows[step.at] if step.dtype is None else rows[step.at].to(self.wide)
            rows[step.at] = launch.contiguous(self._decay(row) if self._has_root(step) else row)
        return rows

    def strides(self, rows: Sequence[Optional[torch.Tensor]]) -> Tuple[bytes, ...]:
        """For pack, of each of ahead's."""
        packed = [launch.pack_repeats(0, 0)] * 4
        for at, row in enumerate(rows[:4]):
            if row is not None and row.dim() > 0:
                of_heads = at == _DECAY and self.of_heads
                steps = [stride if size > 1 else 0 for size, stride in zip(row.shape, row.stride())]
                packed[at] = launch.pack_repeats(*([steps[0], 0] if of_heads else [0, *steps][-2:]))
        return tuple(packed)

    def pack(self, rows: Sequence[Optional[torch.Tensor]], strides: Sequence[bytes]) -> bytes:
        """The end of a launch's argument block."""
        source, target, decay, diagonal, _ = rows
        return launch.pack_vectors(
            0 if source is None else source.data_ptr(),
            strides[_SOURCE],
            0 if target is None else target.data_ptr(),
            strides[_TARGET],
            0 if decay is None else decay.data_ptr(),
            strides[_DECAY],
            0 if diagonal is None else diagonal.data_ptr(),
            strides[_DIAGONAL],
            *self.bounds,
        )

    def bias(self, given: Sequence[Optional[torch.Tensor]]) -> Optional[torch.Tensor]:
        """[H, n], of one head [n] as well, contiguous; by differentiable torch."""
        step, bias = self.of_bias, given[_BIAS]
        if step is None:
            return None
        if not step.is_whole():
            bias = self._read(step, bias)
            bias = bias if step.small is None else bias.expand(self.heads, self.n)
        return bias if bias.is_contiguous() else launch.contiguous(bias)

    # ---- as plain torch does ----

    def make(self, given: Sequence[Optional[torch.Tensor]]) -> torch.Tensor:
        """w [4, H, n], by differentiable torch."""
        parts = list(given[:4])
        for step in self.changed:
            parts[step.at] = self._whole(step, self._read(step, given[step.at]))
        if self.decay is not None:
            parts[_DECAY] = self._whole(self.decay, self._decay(self._read(self.decay, given[_DECAY])))
        source, target, _, diagonal = parts
        if diagonal is None:
            parts[_DIAGONAL] = target if source is None else source if target is None else source * target
        if self.lacks:
            one = torch.ones((), dtype=self.wide, device=self.device).expand(self.heads, self.n)
            parts = [one if part is None else part for part in parts]
        return torch.stack(parts)

    def of_given(self, dw, w, given, needs: Sequence[bool]) -> List[Optional[torch.Tensor]]:
        """The gradients of make's w as kernels make them, where needs says so: of the vectors that are given, a number for each head and token; by
        differentiable torch."""
        rows = [row if needed else None for row, needed in zip(dw, needs)]
        for at in (_SOURCE, _TARGET):
            if self.derived and needs[at]:
                rows[at] = torch.addcmul(rows[at], dw[_DIAGONAL], w[_TARGET - at])
        if needs[_DECAY] and self.power == 1:
            rows[_DECAY] = self._inside(rows[_DECAY], self._read(self.decay, given[_DECAY]))
        return rows

    def _whole(self, step: _Step, row: torch.Tensor) -> torch.Tensor:
        return row if step.small is None else row.expand(self.heads, self.n)

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

    def _inside(self, grad: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """clip's derivative: at the bounds as inside."""
        if self.clip is None:
            return grad
        lowest, highest = self.clip
        return grad.masked_fill((raw < lowest) | (raw > highest), 0)

    def gradients(self, dw, db, given, needs: Sequence[bool]) -> List[Optional[torch.Tensor]]:
        """The gradients of what is given, None where needs says so, of a number for each head and token as kernels or of_given make them, and of
        bias's; by differentiable torch. dw is None where none of the first four is needed."""
        if self.sums is None:
            self.sums = [None if step.small is None else _sum_to(step.small, self.heads, self.n) for step in self.steps]
        gradients: List[Optional[torch.Tensor]] = [None] * 5
        for step, to in zip(self.steps, self.sums):
            at = step.at
            if not needs[at]:
                continue
            row = db if at == _BIAS else dw[at]
            if at == _BIAS and to is None:
                row = row if row.dim() == len(step.shape) else row.reshape(-1)
            elif to is not None:
                if to.axes:
                    row = row.sum(to.axes, to.keeps_axes)
                if to.shape is not None:
                    row = row.reshape(to.shape)
            if self._has_root(step):
                raw = self._read(step, given[at])
                clipped = raw if self.clip is None else raw.clip(*self.clip)
                row = self._inside(row * (self.power * clipped ** (self.power - 1)), raw)
            if step.dtype is not None:
                row = row.to(step.dtype)
            if step.part:
                row = torch.nn.functional.pad(row, (self.begin, step.shape[-1] - self.begin - self.n))
            gradients[at] = row.squeeze(1) if step.of_heads else row
        return gradients


class Rows(NamedTuple):
    """A scan's vectors as kernels take them."""

    like: torch.Tensor  # [4, H, n] of their dtype, and so of their gradients'
    packed: bytes  # the end of a launch's argument block
    kept: Sequence[Optional[torch.Tensor]]  # what the addresses there are of
    vectors: Union[Vectors, _Whole]
    given: Sequence[Optional[torch.Tensor]]

    def make(self) -> torch.Tensor:
        return self.vectors.make(self.given)


class _Whole:
    """Vectors' part where w is given itself, in source's place."""

    @staticmethod
    def make(given):
        return given[_SOURCE]

    @staticmethod
    def bias(given):
        return given[_BIAS]

    @staticmethod
    def rows(given):
        return rows_of(given[_SOURCE])

    @staticmethod
    def of_given(dw, w, given, needs):
        return dw

    @staticmethod
    def gradients(dw, db, given, needs):
        return [dw, None, None, None, db if needs[_BIAS] else None]


WHOLE = _Whole()


def rows_of(w: torch.Tensor) -> Rows:
    """Those of w [4, H, n]."""
    w = w if w.is_contiguous() else launch.contiguous(w)
    heads, n = w.shape[1:]
    begin, row, strides = w.data_ptr(), heads * n * w.element_size(), launch.pack_repeats(n, 1)
    packed = launch.pack_vectors(
        begin, strides, begin + row, strides, begin + 2 * row, strides, begin + 3 * row, strides, 0, 0
    )
    return Rows(w, packed, (w,), WHOLE, (w, None, None, None, None))


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
