"""Orthogonalisation of matrices by Newton-Schulz iterations, and Muon, the optimizer that takes its steps from it."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .. import recording
from ..newton_schulz import JORDAN, Triple, iterate, may_be_one_launch, suits_one_launch, triples_of
from . import launch
from . import matrices as products
from .precision import has_tf32
from .symmetric import gram


def orthogonalize(
    matrices: Union[torch.Tensor, Sequence[torch.Tensor]],
    *,
    steps: int = 5,
    coefficients: Union[Triple, Sequence[Triple]] = JORDAN,
    eps: float = 1e-7,
    form: str = "auto",
    out: Optional[Sequence[torch.Tensor]] = None,
):
    """Each matrix with its singular values brought near 1: `steps` Newton-Schulz iterations from X / max(|X|, eps), Frobenius norm.

    matrices: one tensor [..., m, k], or a list of them, of any shapes, floating dtypes and one device; leading axes are a batch. Matrices of
    equal sides (up to transposition) are computed together, whatever tensors they come from. Not changed.
    coefficients: (a, b, c) for every step, or one triple a step, of which the last is repeated.
    form: "one_launch", all steps of at most 128 rows or columns (from Ampere on; on Hopper 256), "classic", "gram", or "auto": one launch where that
    is faster, so not of a few with thousands of columns; of the others gram where the longer side is 1.25 times the shorter one.
    out: tensors of the same shapes to write to; may be `matrices`.

    Returns a new tensor (or `out`) for each, of its shape and dtype: one for one, else a list. Runs on the current stream, does not
    synchronise, can be captured once these shapes have run. No derivative."""
    single = isinstance(matrices, torch.Tensor)
    if isinstance(matrices, dict):
        raise TypeError("matrices is a dict; allowed: a tensor, or a list of tensors; give list(matrices.values())")
    given: List[torch.Tensor] = [matrices] if single else list(matrices)  # type: ignore[list-item]
    wanted: Optional[List[torch.Tensor]] = None if out is None else [out] if single else list(out)  # type: ignore[list-item]
    triples = triples_of(coefficients, steps)
    _check(given)
    if wanted is not None:
        _check_out(given, wanted)
    results = _like(given) if wanted is None else wanted
    with torch.no_grad():
        groups = _groups(given, results)
        sizes = {key: _size_of(*key, members, len(triples), form) for key, members in groups.items()}
        if given and products.on_gpu(given[0]):
            _make_plans(
                [size for (_, _, double), size in sizes.items() if not double],
                len(triples),
                form,
                given[0].get_device(),
            )
        for (m, k, double), members in groups.items():
            size = sizes[m, k, double]
            if size.dtype:
                _at_once(size, members, triples, eps, form, wanted is None)
            else:
                _group(size, torch.float64 if double else torch.float32, members, triples, eps, form)
    return results[0] if single else results


def _like(given) -> List[torch.Tensor]:
    """New tensors; matrices of one shape and dtype are parts of one, which a batch is written to as it lies."""
    made: List[torch.Tensor] = [None] * len(given)  # type: ignore[list-item]
    kinds: Dict[tuple, List[int]] = {}
    for index, one in enumerate(given):
        if one.dim() == 2 and one.is_contiguous():
            kinds.setdefault((one.shape, one.dtype, one.device), []).append(index)
        else:
            made[index] = launch.empty_like(one)
    for (shape, dtype, device), indices in kinds.items():
        batch = launch.empty((len(indices), *shape), dtype=dtype, device=device)
        for index, one in zip(indices, batch.unbind()):
            made[index] = one
    return made


def _check(given) -> None:
    for index, one in enumerate(given):
        if type(one).__name__ == "DTensor":
            raise ValueError(
                f"matrix {index} is a DTensor, a part of a matrix on each rank; gather it first (full_tensor())"
            )
        if one.dim() < 2 or not one.is_floating_point():
            raise ValueError(f"matrix {index} is {one.dtype} {list(one.shape)}; allowed: floating [..., m, k]")
        if one.device != given[0].device:
            raise ValueError(
                f"matrix {index} is on {one.device}, the first one on {given[0].device}; allowed: one device a call"
            )


def _check_out(given, results) -> None:
    if len(given) != len(results):
        raise ValueError(f"out has {len(results)} tensors for {len(given)} matrices; allowed: one each")
    for index, (one, result) in enumerate(zip(given, results)):
        if result.shape != one.shape or result.device != one.device:
            raise ValueError(
                f"out {index} is {list(result.shape)}; allowed: its matrix's {list(one.shape)} on {one.device}"
            )


Members = List[Tuple[torch.Tensor, torch.Tensor]]  # (a matrix [m, k] or several [n, m, k], their results)


def _groups(given, results) -> Dict[Tuple[int, int, bool], Members]:
    """{(shorter, longer side, in double precision): members}, all wide views."""
    groups: Dict[Tuple[int, int, bool], Members] = {}
    for one, result in zip(given, results):
        *leading, m, k = one.shape
        if one.numel() == 0:
            continue
        if m > k:
            one, result, m, k = one.mT, result.mT, k, m
        members = groups.setdefault((m, k, one.dtype is torch.float64), [])
        if not leading:
            members.append((one, result))
            continue
        views = products.matrices_of(one), products.matrices_of(result)
        if views[0] is not None and views[1] is not None:
            members.append(views)
            continue
        for index in torch.cartesian_prod(*(torch.arange(size) for size in leading)).reshape(-1, len(leading)).tolist():
            members.append((one[tuple(index)], result[tuple(index)]))
    return groups


def _counts(views) -> List[int]:
    return [one.size(0) if one.dim() > 2 else 1 for one in views]


def _batches(views) -> List[torch.Tensor]:
    """All as [n, m, k]."""
    return [one if one.dim() > 2 else one.unsqueeze(0) for one in views]


class Size(NamedTuple):
    """A group of matrices, and how its batch lies: n x m x k, or in "bdt" n x k x m."""

    n: int
    m: int
    k: int
    layout: str
    dtype: Optional[torch.dtype] = None  # of newton_schulz's batch; None: products one by one


def _clusters_and_hopper(device: int) -> Tuple[bool, bool]:
    """Whether that GPU has clusters of thread blocks, and is a Hopper. True for -1, a CPU, as has_tf32 has it."""
    capability = (9, 0) if device < 0 else torch.cuda.get_device_capability(device)
    return capability >= (9, 0), capability[0] == 9


def _size_of(m, k, double, members, steps, form) -> Size:
    n = sum(_counts(one for one, _ in members))
    may_be = may_be_one_launch(m, steps, form, double)
    first = members[0][0]
    tall = first.stride(-2) == 1 and first.stride(-1) != 1
    size = Size(n, m, k, "bdt" if tall else "btd")
    device = first.get_device()
    suits = has_tf32(device) and suits_one_launch(n, m, k, *_clusters_and_hopper(device))  # from Ampere on
    if not (may_be and (form == "one_launch" or suits)):
        return size
    return size._replace(dtype=_dtype_of([one for one, _ in members]))


_planned: set = set()  # (sizes, steps, form, device) whose plans were made
launch.forgetters.append(_planned.clear)


def _make_plans(sizes, steps, form, device) -> None:
    """Makes the plans that these groups of matrices will need, side by side."""
    kind = (tuple(sizes), steps, form, device)
    if kind not in _planned and not launch.is_capturing():
        launch.make_ahead(problems_of(sizes, steps, form), device)
        _planned.add(kind)


def problems_of(sizes, steps, form) -> List[str]:
    """What the iterations ask of the library, for each of `sizes`, in order: from a run without data."""
    asked: List[str] = []

    def ask(a, b=None, c=None, **factors):
        d = a.new_empty(*a.shape[:-1], a.shape[-2])
        asked.append(products.problem_text_of(a, a if b is None else b, c, "both", "default", d))
        return d

    for size in sizes:
        if size.dtype:
            asked.append(products.newton_schulz_text(*size[:3], size.dtype, size.layout, steps))
        else:
            x = torch.empty(_lying(size), dtype=torch.float16, device="meta")
            iterate(_turned(x, size), [(1.0, 1.0, 1.0)] * steps, form, ask, _times)
    return asked


def _lying(size) -> Tuple[int, int, int]:
    n, m, k = size[:3]
    return (n, m, k) if size.layout == "btd" else (n, k, m)


def _turned(batch, size) -> torch.Tensor:
    """[n, m, k] as it lies, and back."""
    return batch if size.layout == "btd" else batch.mT


def _batch(size, dtype, device) -> torch.Tensor:
    return _turned(launch.empty(_lying(size), dtype=dtype, device=device), size)


def _times(q, x) -> torch.Tensor:
    """Q X, Q symmetric, that lies as X does."""
    return q @ x if x.stride(-1) == 1 else (x.mT @ q).mT


_BATCHED = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_LARGE = 1 << 23  # elements from which on a matrix of a list has launches of its own, in place of a copy


def _group(size, wide, members, triples, eps, form, product=gram) -> None:
    sources, results = (_batches(views) for views in zip(*members))
    kept = wide if wide is torch.float64 else torch.float16
    x = _batch(size, kept, sources[0].device)
    one_by_one = size.m * size.k >= _LARGE and all(one.dtype in _BATCHED for one in sources)
    parts = sources if one_by_one else [_gathered(sources, size)]
    for part, to in zip(parts, x.split([len(part) for part in parts])):
        # In two steps, as one reduction to few numbers has few blocks (16 us of 32 x 256 x 256 on an H200). Quotients are `wide`, rounded once.
        rows = torch.linalg.vector_norm(_turned(part, size), dim=-1, dtype=wide)
        norms = torch.linalg.vector_norm(rows, dim=-1).clamp_(min=eps)
        torch.div(part, norms[:, None, None], out=to)
    _scatter(iterate(x, triples, form, product, _times), results, size)


def _gathered(sources, size) -> torch.Tensor:
    """The matrices of a group as one batch: as they lie, or copied."""
    dtype = _dtype_of(sources)
    if len(sources) == 1 and sources[0].dtype is dtype:
        return sources[0]
    x = _together(sources, dtype, size)
    return _copied(sources, dtype, size) if x is None else x


def _dtype_of(matrices) -> torch.dtype:
    """Of their batch: theirs, float32 where they have several or one that has no arithmetic (8 bits)."""
    dtypes = {one.dtype for one in matrices}
    return dtypes.pop() if len(dtypes) == 1 and dtypes <= _BATCHED else torch.float32


def _copied(sources, dtype, size) -> torch.Tensor:
    x = _batch(size, dtype, sources[0].device)
    if all(one.dtype is dtype for one in sources):
        torch.cat([_turned(one, size) for one in _batches(sources)], out=_turned(x, size))
    else:
        torch._foreach_copy_(list(x.split(_counts(sources))), _batches(sources))
    return x


def _scatter(y, results, size) -> None:
    whole = results[0] if len(results) == 1 else _together(results, results[0].dtype, size)
    if whole is not None:
        whole.copy_(y)
    else:
        torch._foreach_copy_(_batches(results), list(y.split(_counts(results))))


def _together(views, dtype, size) -> Optional[torch.Tensor]:
    """[n, m, k] of the memory where the matrices of `views` lie, if these are as far from each other as the first two, or None."""
    places = products.places_of(views, dtype, size)
    if places is None or places.batch == products.POINTERS:
        return None
    strides = (places.row, 1) if size.layout == "btd" else (1, places.row)
    return views[0].as_strided(size[:3], (places.batch, *strides))


def _at_once(size, members, triples, eps, form, fresh) -> None:
    """All steps of a group by one launch. fresh: the results are new tensors, which overlap nothing."""
    plain = not products.on_gpu(members[0][0])
    if plain and recording.active is not None:
        recording.active.add(products.newton_schulz_text(*size[:3], size.dtype, size.layout, len(triples)))
    if plain or not _launched(size, members, products.steps_on(triples, eps, members[0][0].device), fresh):
        _group(size, torch.float32, members, triples, eps, form, products.plain_gram)


def _launched(size, members, steps, fresh) -> bool:
    sources, results = zip(*members)
    x, y = (products.places_of(views, size.dtype, size) for views in (sources, results))
    if y is not None and not fresh:
        if not products.are_apart(size, x, y):
            y = None
        elif x is not None and products.interleave(x, y):
            y = y._replace(batch=products.POINTERS)  # by strides the library would take them for overlapping
    if launch.is_capturing():  # a graph would read an array of pointers from host memory that is given back
        x, y = (None if places is not None and places.batch == products.POINTERS else places for places in (x, y))
    copied = batch = None
    if x is None:
        copied = _copied(sources, size.dtype, size)
        x = products.places_of([copied], size.dtype, size)
    if y is None:
        batch = _batch(size, size.dtype, sources[0].device)
        y = products.places_of([batch], size.dtype, size)
    if not products.newton_schulz(sources[0], size, x, y, steps):
        return False
    if batch is not None:
        torch._foreach_copy_(_batches(results), list(batch.split(_counts(results))))
    return True


class Muon(torch.optim.Muon if hasattr(torch.optim, "Muon") else object):  # type: ignore[misc]
    """torch.optim.Muon (PyTorch 2.9 and later) with its arguments, state and results; all matrices of a parameter group are
    orthogonalised together, by orthogonalize. ns_coefficients may be a list of triples (POLAR_EXPRESS), too."""

    def __init__(self, params: Iterable, *args, **kwargs):
        if not hasattr(torch.optim, "Muon"):
            raise RuntimeError(
                f"PyTorch {torch.__version__} has no torch.optim.Muon; allowed: 2.9 and later; call orthogonalize in your own step"
            )
        super().__init__(params, *args, **kwargs)

    @torch.no_grad()
    def step(self, closure=None):
        """One optimization step; the closure's loss, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params: List[torch.Tensor] = []
            grads: List[torch.Tensor] = []
            momenta: List[torch.Tensor] = []
            self._init_group(group, params, grads, momenta)
            if params:
                self._step(group, params, grads, momenta)
        return loss

    @staticmethod
    def _step(group, params, grads, momenta) -> None:
        momentum, lr = group["momentum"], float(group["lr"])
        torch._foreach_lerp_(momenta, grads, 1 - momentum)
        updates = torch._foreach_lerp(grads, momenta, momentum) if group["nesterov"] else momenta
        updates = orthogonalize(
            updates, steps=group["ns_steps"], coefficients=group["ns_coefficients"], eps=group["eps"]
        )
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_mul_(updates, [-_adjusted(lr, group["adjust_lr_fn"], one.shape) for one in params])
        torch._foreach_add_(params, updates)


def _adjusted(lr, rule, shape) -> float:
    """The learning rate of a matrix, as torch.optim.Muon has it."""
    rows, columns = shape
    if rule == "match_rms_adamw":
        return lr * 0.2 * max(rows, columns) ** 0.5
    return lr * max(1, rows / columns) ** 0.5
