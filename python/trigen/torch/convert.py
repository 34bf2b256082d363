"""Replaces the masked token mixers of an existing model: nn.Conv1d(T, T, K) and nn.Linear(T, T) become TriangularConv1d and
TriangularLinear with the same parameters (the same tensors, so an optimiser that holds them goes on working). Modules of any class that repeat
vectors along the rows or columns of a weight become StructuredMixer, and those of a Toeplitz matrix or a band TriangularConv1d, by what they
compute.

    report = trigen.torch.convert(model, example_inputs=(tokens,))
    print(report)

A module does not say that its owner masks it, so three things guard against replacing a dense layer: `tokens` names the size to look for,
`select` decides module by module, and `example_inputs` runs the model before and after: everything is put back when the outputs differ,
and each layer that is never called.

The mask pass itself stands in the owner's forward; what was converted no longer needs it. Where a flag of the owner switches it
(self.causal, self.masked ...), `unmask=("causal",)` sets that flag to False on every owner of a converted mixer; else delete the
line by hand. Leaving it costs time and is otherwise harmless; the report names the layers that are still masked so.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from .. import model_tuning, notebook, recording
from ..options import Fill, KeepDense, Math
from . import launch
from .arguments import FILLS, MATHS, SHORT_DTYPES
from .modules import CausalSpatialGatingUnit, TriangularConv1d, TriangularLinear
from .precision import full_precision
from .recognise import recognise, resembles
from .structured import StructuredMixer

OURS = (TriangularConv1d, CausalSpatialGatingUnit, StructuredMixer)
NEVER_CALLED = (
    "the model never calls it on example_inputs: its weight is used directly (F.conv1d(x, layer.weight)), or not at all; of a gMLP "
    "use CausalSpatialGatingUnit, which takes its parameters"
)


class Report(NamedTuple):
    """Outcome of convert: modules by name, for those left with the reason. str(): a line for each kind and each reason."""

    converted: Dict[str, nn.Module]
    skipped: Dict[str, str]
    unmasked: List[str]
    dense: Sequence[
        str
    ] = ()  # problems of converted ones that a dense product is faster for on this GPU, or may be (PlanInfo.dense)
    masked: Sequence[str] = ()  # converted ones whose weight the model still masks in place: that line can go
    checked: bool = True  # the model ran before and after, on example_inputs

    def __str__(self) -> str:
        made = {name: f"{type(module).__name__}({module.extra_repr()})" for name, module in self.converted.items()}
        lines = [f"{_some(names)}: {text}" for text, names in _alike(made)]
        if self.skipped and not self.converted:
            lines.append("nothing was converted")
        lines += [
            f"{_some(names)}: left as {'it is' if len(names) == 1 else 'they are'}: {reason}"
            for reason, names in _alike(self.skipped)
        ]
        lines += [f"{_some(self.unmasked)} = False"] if self.unmasked else []
        if self.masked:
            lines.append(
                f"note: the model still masks the weight of {_some(self.masked)} in forward, which costs time and changes nothing: drop that "
                f"line, or name the flag that switches it, unmask="
            )
        if not self.checked and not all(map(_was_asked, self.converted.values())):
            lines.append(
                "note: not checked: only a run with example_inputs shows whether these layers are called, and masked as trigen takes them"
            )
        lines += [f"note: {text}" for text in self.dense]
        return (
            "\n".join(lines) or "no nn.Conv1d(T, T, K), nn.Linear(T, T) or mixer of vectors found inside of the model"
        )

    def _repr_html_(self) -> str:
        return notebook.text(str(self))


def _alike(texts: Dict[str, Any]) -> List[Tuple[Any, List[str]]]:
    """Each text with the names that have it."""
    alike: Dict[Any, List[str]] = {}
    for name, text in texts.items():
        alike.setdefault(text, []).append(name)
    return list(alike.items())


def _some(names: Sequence[str], most: int = 3) -> str:
    """The first of them, and how many more; the report's fields have them all."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class ConversionError(ValueError):
    """The converted model computes something else; the model was put back as it was."""


def _was_asked(new: nn.Module) -> bool:
    """Whether what is replaced was asked what it computes."""
    return isinstance(new, StructuredMixer) or getattr(new, "form", "dense") != "dense"


def _is_vectors(module: nn.Module) -> bool:
    """A candidate whose weight is not T x T numbers: what it computes decides."""
    return not isinstance(module, (nn.Conv1d, nn.Linear))


def _refusal(module: nn.Module, tokens: Optional[int]) -> Optional[str]:
    """Why a candidate is not a token mixer that trigen computes, or None: by what can be read from it."""
    if _is_vectors(module):
        fits = tokens is None or tokens in module.weight.shape
        return None if fits else f"another size than tokens={tokens}"
    if isinstance(module, nn.Linear):
        rows, columns = module.out_features, module.in_features
    else:
        rows, columns = module.out_channels, module.in_channels
    if tokens is not None and tokens not in (rows, columns, rows // getattr(module, "groups", 1)):
        return f"another size than tokens={tokens}"
    if rows != columns and isinstance(module, nn.Linear):
        return "a weight that is not square"  # an ordinary layer of a model whose features are as many as its tokens
    if rows != columns:
        return (
            f"its weight is {rows} x {columns}, not square; allowed: as many output tokens as input tokens (of an expanded pair, "
            f"tril(T x eT) after tril(eT x T), only weight[:T] and weight[:, :T] have an effect: make it two square mixers of those)"
        )
    if isinstance(module, nn.Linear):
        return None
    for name, value, allowed in (
        ("stride", module.stride[0], 1),
        ("dilation", module.dilation[0], 1),
        ("padding_mode", module.padding_mode, "zeros"),
    ):
        if value != allowed:
            return f"{name}={value!r}; allowed: {allowed!r}"
    taps = module.kernel_size[0]
    padding = module.padding if isinstance(module.padding, str) else module.padding[0]
    if padding == "valid":
        padding = 0
    if padding != "same" and 2 * padding != taps - 1:
        return f"padding={padding} changes the number of features; allowed: 'same'"
    if tokens is not None and rows // module.groups != tokens:
        return f"it has {rows // module.groups} tokens a group, not tokens={tokens}"
    return None


def _computes_its_own(module: nn.Module) -> bool:
    """Whether a subclass does something else than its base, to mask its weight or for another reason."""
    own, base = type(module), nn.Linear if isinstance(module, nn.Linear) else nn.Conv1d
    return any(getattr(own, name, None) is not getattr(base, name, None) for name in ("forward", "_conv_forward"))


def _other_triangle_is_zero(module: nn.Linear, fill: str, diagonal: int) -> bool:
    weight = module.weight.detach()
    kept = torch.tril(weight, diagonal) if fill == "lower" else torch.triu(weight, diagonal)
    return bool(torch.equal(weight, kept))


def _replacement(
    module: nn.Module, tokens: Optional[int], fill: str, diagonal: int, math: str
) -> Union[nn.Module, str]:
    """A module that shares the parameters' memory, or why there is none."""
    if _is_vectors(module):
        new = recognise(module, tokens)
        if isinstance(new, TriangularConv1d):
            new.math = math
        return new
    options = dict(
        bias=module.bias is not None, fill=fill, diagonal=diagonal, math=math, device="meta", dtype=module.weight.dtype
    )
    if isinstance(module, nn.Linear):
        new = TriangularLinear(module.in_features, **options)
    else:
        taps, heads = module.kernel_size[0], module.groups
        new = TriangularConv1d(module.in_channels // heads, kernel_size=taps, heads=heads, **options)
    for name in ("weight", "bias"):
        old = getattr(module, name)
        if old is not None:
            shape = getattr(new, name).shape
            same = old if old.shape == shape else nn.Parameter(old.data.view(shape), requires_grad=old.requires_grad)
            setattr(new, name, same)
    new.train(module.training)
    return new


def _candidates(
    model: nn.Module, tokens: Optional[int], select: Optional[Callable]
) -> List[Tuple[nn.Module, str, str, nn.Module]]:
    """(owner, attribute, full name, module), each module once for every place it stands in. A weight of one axis is one where tokens names its
    length: norms have such, too."""
    found = []
    for owner_name, owner in model.named_modules():
        for attribute, module in owner.named_children():
            name = f"{owner_name}.{attribute}" if owner_name else attribute
            if not isinstance(module, (nn.Conv1d, nn.Linear)) and not resembles(module):
                continue
            if module.weight.dim() == 1 and tuple(module.weight.shape) != (tokens,):
                continue
            if select is None or select(name, module):
                found.append((owner, attribute, name, module))
    return found


def _outputs(model: nn.Module, inputs: Sequence) -> List[torch.Tensor]:
    """Outputs in evaluation mode, in full precision: two float32 products that each round to TF32 would differ by more than a layer that
    is not masked at all may."""
    state = torch.get_rng_state()
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad(), full_precision():
            result = model_tuning.call(model, inputs)
    finally:
        for module in training:
            module.training = True
        torch.set_rng_state(state)
    flat: List[torch.Tensor] = []

    def collect(value):
        if isinstance(value, torch.Tensor):
            flat.append(value)
        elif isinstance(value, dict):
            for part in value.values():
                collect(part)
        elif isinstance(value, (list, tuple)):
            for part in value:
                collect(part)

    collect(result)
    return flat


def _difference(before: List[torch.Tensor], after: List[torch.Tensor]) -> float:
    """The largest difference, relative to the largest value of that output."""
    worst = 0.0
    for one, two in zip(before, after):
        if not one.is_floating_point():
            continue
        one, two = one.double(), two.double()
        worst = max(worst, float((one - two).abs().max() / one.abs().max().clamp_min(1e-30)))
    return worst


@contextlib.contextmanager
def _calls(modules: Iterable[nn.Module], keep: bool = False) -> Iterator[Dict[int, Any]]:
    """The modules that are called meanwhile, by id; with keep what each is called with first, where that is a tensor."""
    met: Dict[int, Any] = {}
    watched = list({id(module): module for module in modules}.values())

    def noting(forward, key):
        def noted(*arguments, **named):
            met.setdefault(
                key, arguments[0].detach() if keep and arguments and isinstance(arguments[0], torch.Tensor) else None
            )
            return forward(*arguments, **named)

        return noted

    for module in watched:
        module.forward = noting(module.forward, id(module))
    try:
        yield met
    finally:
        for module in watched:
            delattr(module, "forward")


def _masked(model: nn.Module, modules: Dict[str, Any], inputs: Any) -> List[str]:
    """Those whose weight the model itself masks in place: where the other triangle held zeros alone, ones are gone again after a run."""

    def emptied(module) -> bool:
        return not module.weight.detach().masked_select(module._outside()).any()

    probed = {
        name: module
        for name, module in modules.items()
        if isinstance(module, TriangularConv1d)
        and type(module.weight) is nn.Parameter
        and not module.weight.is_inference()
        and module._outside().any()
        and emptied(module)
    }
    try:
        for module in probed.values():
            module.weight.data.masked_fill_(module._outside(), 1)  # no kernel reads them
        if probed:
            _outputs(model, inputs)
        return [name for name, module in probed.items() if emptied(module)]
    finally:
        for module in probed.values():
            module.weight.data.masked_fill_(module._outside(), 0)


def _milliseconds(modules: Sequence[nn.Module], x: torch.Tensor, rounds: int = 7, runs: int = 10) -> List[float]:
    """Forward and backward of each on x's GPU, as Python calls them: medians of rounds in turn, after one that makes plans."""
    x = x.clone().requires_grad_(x.is_floating_point())
    times: List[List[float]] = [[] for _ in modules]
    with torch.enable_grad(), torch.cuda.device(x.device):
        for at in range(rounds + 1):
            for module, own in zip(modules, times):
                wanted = [x, *module.parameters()]
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(runs):
                    y = module(x)
                    torch.autograd.grad(y, [tensor for tensor in wanted if tensor.requires_grad], torch.ones_like(y))
                end.record()
                end.synchronize()
                if at > 0:
                    own.append(begin.elapsed_time(end) / runs)
    return [statistics.median(own) for own in times]


def _is_on_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda


def _dense_is_as_fast(old: nn.Module, new: nn.Module, x: Optional[torch.Tensor]) -> Optional[str]:
    """Why the old module stays, or None. Its weight was masked by its owner, which costs it nothing here."""
    if x is None:
        return None
    dense, ours = _milliseconds((old, new), x)
    if dense > 1.02 * ours:  # times that differ by less are alike in two runs
        return None
    return f"dense is as fast for {tuple(x.shape)}: {dense:.3f} ms beside {ours:.3f} ms, forward and backward, measured here"


def _notes_on_dense(problems: Sequence[str]) -> List[str]:
    return [f"{info.problem}: {info.dense}" for info in launch.plans() if info.dense and info.problem in problems]


def convert(
    model: nn.Module,
    *,
    tokens: Optional[int] = None,
    select: Optional[Callable[[str, nn.Module], bool]] = None,
    example_inputs: Any = None,
    unmask: Union[str, Sequence[str]] = (),
    tolerance: Optional[float] = None,
    fill: Fill = "lower",
    diagonal: int = 0,
    math: Math = "default",
    keep_dense: KeepDense = "never",
) -> Report:
    """Replaces masked mixers, and mixers whose weight is vectors, in place and returns what it did.

    tokens          T; None takes every square nn.Conv1d and nn.Linear that `select` lets through (then give select or example_inputs)
    select          select(name, module) -> bool
    example_inputs  a tensor, tuple or dict for model(...): outputs in evaluation mode must agree within `tolerance`, relative to the
                    largest output (default 1e-3, or 3e-2 with 16-bit parameters or under autocast). Where they do not, layers that `tokens`
                    alone chose are tried one by one, and those that are not masked are left and named; with `select`, or where no layer is
                    masked, everything is put back and ConversionError is raised. A layer that this run never calls, since the owner takes
                    its weight itself, is put back and named. Where the owner masks its weight in forward, this also zeroes the old weight's
                    other triangle, as any forward of it does; a further run finds the layers whose owner still does. Without example_inputs
                    none of this is checked, and an nn.Linear with numbers in its other triangle is left, unless select chose it
    unmask          name or names of flags that switch the masking in the owners, to be set to False (see above). One that no owner of a
                    converted mixer has is a ValueError
    fill, diagonal  the triangle that the owners' masks leave: torch.tril(weight, diagonal) is "lower", torch.triu(weight, diagonal) is
                    "upper". A model with both is converted in two calls, with select
    math            how the mixers multiply float32 (TriangularConv1d's); the comparison of outputs takes it too
    keep_dense      "faster" leaves a layer as it is where that is no slower on this GPU: forward and backward of both are timed on what
                    example_inputs (on the GPU, at the sizes that will be used) bring to it. Tune first: an untuned mixer is timed as such

    A module of vectors [k, T] or [T] or of a band [T, N] or [H, T, N] (parameters weight, and where it has them bias, decay_value, diag_weight) is
    asked what it computes: a copy in double precision, with other parameters, on random x [batch, features, T] and [batch, T, features]. Where a
    StructuredMixer computes the same, or a TriangularConv1d of form "toeplitz" or "band", that takes its place (docs/structured-weights.md); fill
    and diagonal do not concern it.

    Parameters stay the same objects (grouped convolutions and a Toeplitz vector [T] excepted, whose weight gets another shape over the same memory,
    and a decay_value of which one element is used: make the optimiser afterwards); parametrised or hooked modules are left alone and reported, and, where
    `tokens` alone chooses, subclasses with a forward of their own.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {model!r}; allowed: an nn.Module")
    if select is not None and not callable(select):
        raise TypeError(f"select={select!r}; allowed: a function, select(name, module) -> bool")
    if tokens is None and select is None and example_inputs is None:
        raise ValueError(
            "give tokens, select or example_inputs: nothing else tells a token mixer from another square layer"
        )
    for name, value, allowed in (
        ("fill", fill, FILLS),
        ("math", math, MATHS),
        ("keep_dense", keep_dense, ("never", "faster")),
    ):
        if value not in allowed:
            raise ValueError(f"{name}={value!r} is not known; allowed: {', '.join(allowed)}")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        raise ValueError(f"tokens={tokens!r}; allowed: an integer of at least 1, or None")
    unmask = (unmask,) if isinstance(unmask, str) else tuple(unmask)
    if tolerance is None:
        short = any(parameter.dtype in SHORT_DTYPES for parameter in model.parameters())
        tolerance = 3e-2 if short or torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu") else 1e-3
    found, before, met = _candidates(model, tokens, select), [], {}
    if example_inputs is not None:
        with _calls((module for *_, module in found if keep_dense == "faster"), keep=True) as met:
            before = _outputs(model, example_inputs)
    given = [x for x in met.values() if x is not None]
    if keep_dense == "faster" and (not given or not all(map(_is_on_gpu, given))):
        raise ValueError(
            'keep_dense="faster" times both on a GPU; allowed: example_inputs that lie there, as the model does'
        )
    made: Dict[int, nn.Module] = {}
    left: Dict[str, str] = {}  # what a run has spoken against, and why

    def reason_against(name: str, module: nn.Module) -> Optional[str]:
        reason = left.get(name) or _refusal(module, tokens)
        if reason is None and (
            module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations")
        ):
            reason = "it has hooks or parametrisations, which a replacement would lose"
        asked = select is not None or example_inputs is not None or _is_vectors(module)
        if reason is None and not asked and _computes_its_own(module):
            reason = (
                f"{type(module).__name__} has a forward of its own; allowed: example_inputs, which show whether a mixer computes the same, "
                f"or select"
            )
        if (
            reason is None
            and not asked
            and isinstance(module, nn.Linear)
            and not _other_triangle_is_zero(module, fill, diagonal)
        ):
            reason = (
                "an nn.Linear with numbers in its other triangle, which is a product over features of the same size if nothing masks it; allowed: "
                "example_inputs, which show whether the model does, or select"
            )
        if reason is None and id(module) not in made:
            new = _replacement(module, tokens, fill, diagonal, math)
            if isinstance(new, str):
                reason = new
            elif keep_dense == "faster":
                reason = _dense_is_as_fast(module, new, met.get(id(module)))
            if reason is None:
                made[id(module)] = new
            else:
                left[name] = reason
        return reason

    for attempt in itertools.count():
        report, undo = _replace(model, found, made, reason_against, unmask)
        try:
            if attempt == 0:
                _check_unmask(model, unmask, report)
            if example_inputs is None or not report.converted:
                return report._replace(checked=example_inputs is not None)
            with _calls(report.converted.values()) as called, recording.record() as seen:
                after = _outputs(model, example_inputs)
        except Exception:
            _undo(undo)
            raise
        idle = [name for name, new in report.converted.items() if id(new) not in called]
        if idle:
            _undo(undo)
            left.update(dict.fromkeys(idle, NEVER_CALLED))
            continue
        worst = _difference(before, after)
        if worst <= tolerance:
            break
        _undo(undo)
        # What `select` names is meant; of what the size alone chose, a layer over features is left.
        places = [place for place in found if place[2] in report.converted]
        apart = {} if select is not None else _apart(model, places, made, before, example_inputs, tolerance)
        if apart and len(apart) < len(places):
            left.update(
                (
                    name,
                    f"outputs differ by {by:.2g} (relative) with it alone converted: nothing masks it to its {fill} triangle",
                )
                for name, by in apart.items()
            )
            continue
        raise ConversionError(
            f"outputs differ by {worst:.2g} (relative) after conversion; allowed: {tolerance:.2g}; a replaced layer is not masked "
            f"to its {fill} triangle{f' (diagonal={diagonal})' if diagonal else ''}: choose with select=, or another "
            f"fill= or diagonal=, among {', '.join(report.converted)}"
        )
    return report._replace(
        dense=_notes_on_dense(seen.problems), masked=_masked(model, report.converted, example_inputs)
    )


def _apart(
    model: nn.Module,
    places: Sequence[Tuple[nn.Module, str, str, nn.Module]],
    made: Dict[int, nn.Module],
    before: List[torch.Tensor],
    inputs: Any,
    tolerance: float,
) -> Dict[str, float]:
    """Those of the places, by name, that make the outputs differ where each is the only one replaced, and by how much: a run for each."""
    apart = {}
    for owner, attribute, name, module in places:
        setattr(owner, attribute, made[id(module)])
        try:
            by = _difference(before, _outputs(model, inputs))
        finally:
            setattr(owner, attribute, module)
        if not by <= tolerance:
            apart[name] = by
    return apart


def _replace(
    model: nn.Module,
    found: Sequence[Tuple[nn.Module, str, str, nn.Module]],
    made: Dict[int, nn.Module],
    reason_against: Callable[[str, nn.Module], Optional[str]],
    unmask: Sequence[str],
) -> Tuple[Report, List[Callable[[], None]]]:
    """Puts what was made in the place of each that nothing is said against; and what puts it back."""
    report = Report(
        {},
        dict.fromkeys((name for name, module in model.named_modules() if isinstance(module, OURS)), "already trigen's"),
        [],
    )
    undo: List[Callable[[], None]] = []
    for owner, attribute, name, module in found:
        reason = reason_against(name, module)
        if reason is not None:
            report.skipped[name] = reason
            continue
        setattr(owner, attribute, made[id(module)])
        undo.append(lambda owner=owner, attribute=attribute, module=module: setattr(owner, attribute, module))
        report.converted[name] = made[id(module)]
        _unmask(model, name, unmask, report, undo)
    return report, undo


def _unmask(model, name: str, flags: Sequence[str], report: Report, undo: List) -> None:
    """Sets the owners' flags of a converted mixer to False."""
    for holder_name, holder in _holders(model, name):
        for flag in flags:
            if getattr(holder, flag, None) is True:
                setattr(holder, flag, False)
                undo.append(lambda holder=holder, flag=flag: setattr(holder, flag, True))
                report.unmasked.append(f"{holder_name}.{flag}" if holder_name else flag)


def _check_unmask(model, flags: Sequence[str], report: Report) -> None:
    """Every flag is one of some owner's; whether it was set is the owner's business."""
    holders = [holder for name in report.converted for _, holder in _holders(model, name)]
    for flag in flags:
        if holders and not any(isinstance(getattr(holder, flag, None), bool) for holder in holders):
            there = {
                name
                for holder in holders
                for name, value in vars(holder).items()
                if isinstance(value, bool) and name != "training"
            }
            raise ValueError(
                f"unmask={flag!r} is no flag of an owner of {', '.join(report.converted)}; allowed: {', '.join(sorted(there)) or 'none'}; "
                f"the model was put back as it was"
            )


def _undo(steps: List[Callable[[], None]]) -> None:
    for step in reversed(steps):
        step()


def _holders(model: nn.Module, name: str):
    """The owners of a module, nearest first, without containers' own containers: its parent, and that one's parent when the parent
    is a container (nn.ModuleList, nn.Sequential)."""
    parts = name.split(".")[:-1]
    while True:
        holder = model.get_submodule(".".join(parts))
        yield ".".join(parts), holder
        if not parts or not isinstance(holder, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
            return
        parts = parts[:-1]
