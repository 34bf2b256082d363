"""StructuredMixer: a token mixer whose T x T weight is a vector repeated along its rows or columns."""

from __future__ import annotations

import math as _math
from typing import Any, Dict, Literal, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from ..options import Layout
from . import arguments, scan_steps, scans, vectors

Kind = Literal["row", "column"]
Pair = Union[float, Tuple[float, float]]
_INFINITE = float("inf")


class StructuredMixer(nn.Module):
    """y[b,t,d] = bias[t] + sum over s <= t of W[t,s] x[b,s,d], W being a vector v repeated, by scan:

    column   W[t,s] = scale v[t] decay^(t-s)       of M = W^T, x @ M on the last axis, each column is one number: M[s,t] = v[t]
    row      W[t,s] = scale v[s] decay^(t-s)       each row of M is one number
    both     the sum of a row repeat, of weight[0], and a column repeat, of weight[1], each with its own decay

    tokens   T: the most tokens that x may have. Fewer (a prefix) are allowed
    kind     "column", "row", "both", or "row" or "column" for each head
    heads    H vectors, head h working on features [h*D, (h+1)*D)
    bias     one value for each token (and head)
    decay    None (1), "shared" (one learned value) or "each" (one for each vector of weight).
             decay = clip(decay_value, *decay_range) ** (1 / decay_constant)
    decay_range      (smallest, largest), of which either may be infinite
    decay_constant, scale   numbers; with "both" also a pair, for the row and the column repeat
    diagonal None (the formula's own), "vector" (one learned value for each token and head) or "constant" (for each head): W[t,t], in place
             of the formula's
    layout   "btd": x[B, n, H*D], or "bdt": x[B, H*D, n]
    heads_in_batch   x is [B*H, D, n], head after head, as torch.bmm takes it; of layout "bdt"

    Parameters: weight [H, T] (both: [2, T], with heads [2, H, T]), bias [T] or [H, T], decay_value [1], or with "each" and more than one vector
    [vectors, 1], diag_weight [H, T] or [H]. Loading also takes other shapes of as many elements, and for one decay a decay_value [2, 1], of which
    it takes the second. Use: dtypes, devices and streams as scan, which says them; under autocast x is cast, the parameters are not.
    """

    def __init__(
        self,
        tokens: int,
        kind: Union[Kind, Literal["both"], Sequence[Kind]] = "column",
        *,
        heads: int = 1,
        bias: bool = True,
        decay: Optional[Literal["shared", "each"]] = None,
        decay_range: Tuple[float, float] = (0.9, 1.0),
        decay_constant: Pair = 1.0,
        scale: Pair = 1.0,
        diagonal: Optional[Literal["vector", "constant"]] = None,
        layout: Layout = "btd",
        heads_in_batch: bool = False,
        device: Union[torch.device, str, int, None] = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        for name, value in (("tokens", tokens), ("heads", heads)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}; allowed: an integer of at least 1")
        kinds = tuple(kind) if isinstance(kind, (list, tuple)) else (kind,) * heads
        if kind != "both" and (len(kinds) != heads or not set(kinds) <= {"row", "column"}):
            raise ValueError(
                f"kind={kind!r} with heads={heads}; allowed: 'row', 'column', 'both', or {heads} of 'row' and 'column'"
            )
        for name, choice, allowed in (
            ("decay", decay, (None, "shared", "each")),
            ("diagonal", diagonal, (None, "vector", "constant")),
            ("layout", layout, arguments.LAYOUTS),
        ):
            if choice not in allowed:
                raise ValueError(f"{name}={choice!r} is not known; allowed: {', '.join(map(str, allowed))}")
        if heads_in_batch and layout != "bdt":
            raise ValueError(
                f"heads_in_batch with layout={layout!r}; allowed: layout='bdt', x [batch * heads, features, tokens]"
            )
        vectors.check_decay(decay_range, decay_constant)
        self.tokens, self.heads, self.layout, self.heads_in_batch = tokens, heads, layout, heads_in_batch
        self.kind, self.kinds = kind if isinstance(kind, str) else kinds, kinds
        self.decay, self.diagonal = decay, diagonal
        self.decay_range = float(decay_range[0]), float(decay_range[1])
        self.decay_constant, self.scale = _pair(decay_constant), _pair(scale)
        options: Dict[str, Any] = dict(device=device, dtype=dtype)
        both = kind == "both"
        lead = (2, heads) if both and heads > 1 else (2,) if both else (heads,)
        count = _math.prod(lead)
        self.weight = nn.Parameter(torch.empty(*lead, tokens, **options))
        shapes = {
            "bias": ((heads, tokens) if heads > 1 else (tokens,)) if bias else None,
            "decay_value": None if decay is None else (count, 1) if decay == "each" and count > 1 else (1,),
            "diag_weight": {None: None, "vector": (heads, tokens), "constant": (heads,)}[diagonal],
        }
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else nn.Parameter(torch.empty(shape, **options)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Vectors and diagonal of variance 1 / T, bias 0, decays as near to 1 as they may be."""
        with torch.no_grad():
            nn.init.normal_(self.weight, std=self.tokens**-0.5)
            if self.bias is not None:
                nn.init.zeros_(self.bias)
            if self.decay_value is not None:
                nn.init.constant_(self.decay_value, min(max(1.0, self.decay_range[0]), self.decay_range[1]))
            if self.diag_weight is not None:
                nn.init.normal_(self.diag_weight, std=self.tokens**-0.5)

    # ---- as scan's vectors ----------------------------------------------------------------------------------------------

    def _part(
        self, part: int, kinds: Sequence[str], vector: torch.Tensor, decay: Optional[torch.Tensor]
    ) -> Dict[str, Any]:
        """scan's arguments of one repeat; part 0 is the row repeat of "both"."""
        if self.scale[part] != 1:
            vector = vector * self.scale[part]
        given: Dict[str, Any] = {"decay": decay}
        if decay is not None:
            given.update(decay_range=self.decay_range, decay_constant=self.decay_constant[part])
        if all(one == kinds[0] for one in kinds):
            given["source" if kinds[0] == "row" else "target"] = vector
        else:
            is_row = vectors.constant(tuple(one == "row" for one in kinds), torch.bool, vector.device)
            given["source"], given["target"] = torch.where(is_row, vector, 1.0), torch.where(is_row, 1.0, vector)
        if self.diag_weight is not None:
            given["diagonal"] = self.diag_weight if self.diagonal == "vector" else self.diag_weight.unsqueeze(1)
            if self.kind == "both" and part == 1:  # the row repeat has it
                given["diagonal"] = vector.new_zeros(())
        return given

    def vectors(self) -> Tuple[Dict[str, Any], ...]:
        """The arguments of scan whose sum the mixer is: one set, or of "both" two. The last one has the bias."""
        decay = self.decay_value
        if self.kind == "both":
            decays: Sequence[Optional[torch.Tensor]] = (decay, decay)
            if decay is not None and self.decay == "each":
                decays = decay.unflatten(0, (2, self.heads)).unbind()
            parts = tuple(map(self._part, (0, 1), (("row",), ("column",)), self.weight.unbind(), decays))
        else:
            parts = (self._part(0, self.kinds, self.weight, decay),)
        parts[-1]["bias"] = self.bias
        return parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        arguments.check_tensor(x, "x")
        if not self.heads_in_batch:
            return self._sum(x)
        return self._sum(arguments.heads_of_batch(x, self.heads)).reshape(x.shape)

    def _sum(self, x: torch.Tensor) -> torch.Tensor:
        y = None
        for given in self.vectors():
            y = scans.scan(x, **given, residual=y, layout=self.layout)
        assert y is not None
        return y

    # ---- decoding -------------------------------------------------------------------------------------------------------

    def state(self, x: torch.Tensor) -> torch.Tensor:
        """The state that the tokens x leave (as forward takes them; without heads_in_batch), for step: [parts, B, H*D] of float32, parts being 2 of
        "both" and else 1. Zeros of that shape are the state before the first token. No gradients."""
        return torch.stack([scan_steps.scan_state(x, **given, layout=self.layout) for given in self.vectors()])

    def step(self, x: torch.Tensor, t: int, state: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """(y, the next state) of token t, x[B, H*D], by scan_step: work and memory of one token. y is forward's row t. No gradients."""
        parts = self.vectors()
        if state.dim() != 3 or state.shape[0] != len(parts):
            raise ValueError(f"state has shape {list(state.shape)}; allowed: [{len(parts)}, batch, features]")
        wide = x if len(parts) == 1 else x.to(state.dtype)  # a sum of two is rounded once
        rows, states = zip(*(scan_steps.scan_step(wide, t, one, **given) for one, given in zip(state, parts)))
        y = rows[0] if len(parts) == 1 else (rows[0] + rows[1]).to(x.dtype)
        return y, torch.stack(states)

    # ---- state dicts ----------------------------------------------------------------------------------------------------

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        for name, own in self.named_parameters(recurse=False):
            value = state_dict.get(prefix + name)
            if value is None or value.shape == own.shape:
                continue
            if name == "decay_value" and own.numel() == 1 and value.numel() == 2:
                value = value.reshape(-1)[1]
            if value.numel() == own.numel():
                state_dict[prefix + name] = value.reshape(own.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        text = f"{self.tokens}, {self.kind!r}"
        for name, usual in (
            ("heads", 1),
            ("decay", None),
            ("decay_range", (0.9, 1.0)),
            ("decay_constant", (1.0, 1.0)),
            ("scale", (1.0, 1.0)),
            ("diagonal", None),
            ("layout", "btd"),
            ("heads_in_batch", False),
        ):
            value = getattr(self, name)
            if value == usual or (name == "decay_range" and self.decay is None):
                continue
            value = value[0] if name in ("decay_constant", "scale") and value[0] == value[1] else value
            text += f", {name}={value!r}"
        return text + ("" if self.bias is not None else ", bias=False")


def _pair(value: Pair) -> Tuple[float, float]:
    return (float(value), float(value)) if isinstance(value, (int, float)) else (float(value[0]), float(value[1]))
