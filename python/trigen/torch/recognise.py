"""Which modules of others compute what a StructuredMixer does, or a TriangularConv1d of form "toeplitz" or "band". In double precision a copy of
the module gets other parameters, several times, and what it makes of random x [batch, features, tokens] (or [batch, tokens, features]) is compared.
Names of classes decide nothing; those of parameters only say which to set.
"""

from __future__ import annotations

import copy
import functools
import itertools
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import torch
from torch import nn

from .modules import TriangularConv1d
from .structured import _INFINITE, StructuredMixer, _pair

Mixer = Union[StructuredMixer, TriangularConv1d]
Make = Callable[[nn.Module], nn.Module]
_PARAMETERS = ("weight", "bias", "decay_value", "diag_weight")
_INSIDE = (0.96, 0.999)  # decays within any range that is worth a clip


def resembles(module: nn.Module) -> bool:
    """Whether the module's parameters may be such a mixer's: vectors [k, T], or [T], or a band, and nothing of unknown name. Then recognise()
    asks what it computes."""
    parameters = dict(module.named_parameters(recurse=False))
    weight = parameters.get("weight")
    return (
        weight is not None
        and 1 <= weight.dim() <= 3
        and weight.is_floating_point()
        and set(parameters) <= set(_PARAMETERS)
        and not isinstance(module, (StructuredMixer, TriangularConv1d, nn.Linear, nn.Embedding))
        and not type(module).__module__.startswith("torch.nn.")
        and next(module.children(), None) is None
        and next(module.buffers(recurse=False), None) is None
    )


def recognise(module: nn.Module, tokens: Optional[int] = None) -> Union[Mixer, str]:
    """The mixer that computes the same over the same parameters, or why there is none. tokens: how many it has to have, if said."""
    shape = module.weight.shape
    if max(shape) < 3:
        return f"its weight is {list(shape)}; allowed: at least 3 tokens, fewer do not tell a decay"
    failed, asked = "", False
    for x, of_tokens, find in _readings(module):
        if tokens not in (None, of_tokens):
            continue
        try:
            found = find(_Probe(module, x))
        except Exception as error:  # whatever a module of others raises
            failed = failed or f"x {list(x)}: {type(error).__name__}: {str(error)[:200]}"
            continue
        if found is not None:
            return found
        asked = True
    if failed and not asked:
        return f"a copy of it could not be asked what it makes of {failed}"
    return (
        "it computes something else than a row repeat, a column repeat, their sum or heads of them, a Toeplitz matrix or a band "
        "(docs/structured-weights.md says what is recognised)"
    )


def _readings(module: nn.Module) -> Iterator[Tuple[Tuple[int, ...], int, Callable[[_Probe], Optional[Mixer]]]]:
    """What the shapes of its parameters leave open: a shape of x, its tokens, and what finds the mixer by a probe with such an x."""
    shape, own = tuple(module.weight.shape), _own(module)
    bias = own.get("bias")
    if len(shape) == 2 and shape[1] >= 3:
        yield (2 * shape[0], 3, shape[1]), shape[1], functools.partial(_repeat, module)
    forms: List[Tuple[int, Dict[str, Any]]] = []
    if len(shape) < 3:
        forms.append((shape[-1], dict(form="toeplitz", heads=shape[0] if len(shape) == 2 else 1)))
    if len(shape) > 1 and shape[-2] >= shape[-1]:
        forms.append((shape[-2], dict(form="band", width=shape[-1], heads=shape[0] if len(shape) == 3 else 1)))
    for tokens, option in forms:
        heads = option["heads"]
        if not set(own) <= {"weight", "bias"} or (bias is not None and bias.numel() != heads * tokens):
            continue
        find = functools.partial(_of_form, module, tokens, dict(option, bias=bias is not None))
        if heads > 1:
            yield (2 * heads, 3, tokens), tokens, functools.partial(find, "bdt", True)
        yield (2, 3 * heads, tokens), tokens, functools.partial(find, "bdt", False)
        yield (2, tokens, 3 * heads), tokens, functools.partial(find, "btd", False)


def _repeat(module: nn.Module, probe: _Probe) -> Optional[StructuredMixer]:
    for option, shared in _options(module):
        if probe.computes(_structured(option, shared)):
            for decay_range in probe.ranges(option):
                make = _structured({**option, "decay_range": decay_range}, shared)
                if probe.computes_always(make, decay_range):
                    return make(module)
    return None


def _of_form(
    module, tokens: int, option: Dict[str, Any], layout, in_batch: bool, probe: _Probe
) -> Optional[TriangularConv1d]:
    def make(module):
        options = dict(option, layout=layout, heads_in_batch=in_batch)
        return _over(module, TriangularConv1d(tokens, **options, device="meta", dtype=module.weight.dtype))

    if not probe.computes(make):
        return None
    probe.ask(_INSIDE)
    return make(module) if probe.computes(make) else None


def _own(module: nn.Module) -> Dict[str, nn.Parameter]:
    return dict(module.named_parameters(recurse=False))


def _options(module: nn.Module) -> Iterator[Tuple[Dict[str, Any], Optional[int]]]:
    """What the shapes of its parameters leave open: StructuredMixer's arguments, and which element of decay_value is shared."""
    vectors, tokens = module.weight.shape
    own = _own(module)
    bias, decay, diag = (own.get(name) for name in ("bias", "decay_value", "diag_weight"))
    heads = vectors if bias is not None and bias.dim() == 2 and bias.shape[0] == vectors else 1
    kinds: List[Any] = ["column", "row"] if heads == vectors else ["both"] if vectors == 2 else []
    if heads > 1:
        half = heads // 2
        kinds += [("column",) * half + ("row",) * (heads - half), ("row",) * half + ("column",) * (heads - half)]
    decays: List[Tuple[Optional[str], Optional[int]]] = [(None, None)]
    if decay is not None:
        decays = [("each", None)] if decay.numel() == vectors > 1 else []
        decays += [("shared", element) for element in range(min(decay.numel(), 2))]
    given = getattr(module, "decay_constant", 1)  # a power, or misplaced a factor
    constant = float(given) if isinstance(given, (int, float)) and given > 0 else 1.0
    powers: List[Tuple[Any, Any]] = [(1.0, 1.0)]
    if constant != 1:
        powers += [(constant, 1.0), (1.0, 1 / constant)]
        powers += [((1.0, constant), (1 / constant, 1.0)), ((constant, 1.0), (1.0, 1 / constant))]
    for kind, (how, element), (power, scale) in itertools.product(kinds, decays, powers):
        if isinstance(power, tuple) and kind != "both":
            continue
        option = dict(
            tokens=tokens,
            kind=kind,
            heads=heads,
            bias=bias is not None,
            decay=how,
            decay_constant=power,
            scale=scale,
            diagonal=None if diag is None else "constant" if diag.numel() == heads else "vector",
            layout="bdt",
            heads_in_batch=heads > 1,
        )
        yield option, element


class _Probe:
    """A copy of a module, and what it made of x, of this shape, with the parameters that it has now."""

    def __init__(self, module: nn.Module, shape: Tuple[int, ...]):
        self.module = copy.deepcopy(module).double().eval()
        self.shape, self.tokens = shape, module.weight.shape[-1]
        self.generator = torch.Generator().manual_seed(self.tokens)
        self.ask(_INSIDE)

    def _draw(self, shape):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.module.weight.device)

    @torch.no_grad()
    def ask(self, decays: Tuple[float, float]) -> None:
        """Other parameters, with decays from this range, and what the module makes with them."""
        for name, parameter in _own(self.module).items():
            drawn = self._draw(parameter.shape)
            if name == "decay_value":
                drawn = decays[0] + (decays[1] - decays[0]) * torch.sigmoid(3 * drawn)
            parameter.copy_(drawn)
        self.x = self._draw(self.shape)
        self.y = self.module(self.x)

    @torch.no_grad()
    def computes(self, make: Make) -> bool:
        """Whether the mixer that this makes of the copy does the same."""
        y = make(self.module)(self.x)
        return self.y.shape == y.shape and bool((self.y - y).abs().max() <= 1e-9 * (1 + y.abs().max()))

    def computes_always(self, make: Make, decay_range: Tuple[float, float]) -> bool:
        """The same with decays outside the range, and inside."""
        most = 1 + min(0.2, 4 / self.tokens)  # what is not clipped stays finite
        least = -0.5 if decay_range[0] < 0 else 0.0
        for decays in ((0.85, 1.0), (least, most), (1.0, most)):
            self.ask(decays)
            if not self.computes(make):
                return False
        return True

    @torch.no_grad()
    def ranges(self, option: Dict[str, Any]) -> List[Tuple[float, float]]:
        """The ranges that it may clip decays to: read from the neighbours in a row of its matrix, with a decay far below and one far above."""
        if option["decay"] is None:
            return [(0.9, 1.0)]
        self.ask(_INSIDE)
        self.module.weight.copy_(torch.zeros_like(self.module.weight))
        self.module.weight[-1] = 1  # of "both" the column repeat; of heads the last one
        if option["bias"]:
            self.module.bias.zero_()
        x = torch.zeros((option["heads"], 1, self.tokens), dtype=torch.float64, device=self.x.device)
        x[-1, 0, 0] = 1
        seen = []
        for far in (1e-3, 2.0):
            self.module.decay_value.fill_(far)
            row = self.module(x)[-1, 0]
            decay = float(row[2] / row[1]) ** _pair(option["decay_constant"])[-1]
            seen.append(None if abs(decay / far - 1) < 1e-6 else round(decay, 9))
        highest = _INFINITE if seen[1] is None else seen[1]
        if seen[0] is not None:
            return [(seen[0], highest)]
        return [(-_INFINITE, highest)] * (_pair(option["decay_constant"]) == (1.0, 1.0)) + [(0.0, highest)]


def _structured(option: Dict[str, Any], shared: Optional[int]) -> Make:
    """Makes the StructuredMixer of these arguments. Without decay_range the decays are inside."""
    option = {"decay_range": (0.0, 2.0), **option}
    return lambda module: _over(module, StructuredMixer(**option, device="meta", dtype=module.weight.dtype), shared)


def _over(module: nn.Module, made, shared: Optional[int] = None):
    """The mixer with the module's parameters: the same objects, or where a shape differs others over the same memory. Of decay_value it has the
    shared element alone."""
    for name, own in list(made.named_parameters(recurse=False)):
        old = getattr(module, name)
        if old.shape != own.shape:
            data = old.detach()
            if name == "decay_value" and shared is not None:
                data = data.reshape(-1)[shared : shared + 1]
            old = nn.Parameter(data.reshape(own.shape), requires_grad=old.requires_grad)
        setattr(made, name, old)
    return made.train(module.training)
