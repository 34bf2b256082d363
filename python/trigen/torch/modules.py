"""Token mixers as modules: TriangularConv1d (nn.Conv1d(T, T, K) with a triangular weight), TriangularLinear (nn.Linear(T, T) on the
last axis), their decoding cache, and gMLP's causal spatial gating unit. Parameters keep the shapes and names of the modules they
replace, so state dicts go both ways.
"""

from __future__ import annotations

import functools
import inspect
import math as _math
from typing import Any, Callable, Optional, TypeVar, Union

import torch
from torch import nn

from .. import recording, weights
from ..options import Activation, Fill, Form, Layout, Math, Padding
from . import decoding, plain
from .arguments import FILLS, LAYOUTS, MATHS, Sizes, check_device, check_tensor, heads_of_batch, prefix_is_meant
from .functional import resolve_padding, triangular_conv1d

ActivationLike = Union[Activation, nn.GELU, nn.SiLU, nn.Identity, None]
Init = TypeVar("Init", bound=Callable[..., None])
Device = Union[torch.device, str, int, None]
ACTIVATION_NAMES = {nn.GELU: "gelu", nn.SiLU: "silu", nn.Identity: None}


def activation_name(activation: ActivationLike) -> Optional[Activation]:
    """None, "gelu" or "silu" of a name, a module or None."""
    if activation in (None, "none", "gelu", "silu"):
        return None if activation == "none" else activation
    if isinstance(activation, nn.GELU) and activation.approximate != "none":
        raise ValueError(
            "activation=nn.GELU(approximate='tanh') has no kernel; allowed: the exact nn.GELU(), nn.SiLU(), None"
        )
    for kind, name in ACTIVATION_NAMES.items():
        if isinstance(activation, kind):
            return name
    raise ValueError(f"activation={activation!r} has no kernel; allowed: None, 'gelu', 'silu'")


class DecodeCache:
    """The inputs a mixer has seen, for decoding token by token: [B, T, H*D] (layout btd), filled up to `length` tokens.

    Owned by the caller, one for each mixer and batch of sequences. reset() starts new sequences in the same memory."""

    def __init__(self, inputs: torch.Tensor) -> None:
        self.inputs = inputs
        self.length = 0

    def __repr__(self) -> str:
        batch, tokens, features = self.inputs.shape
        return f"DecodeCache(batch={batch}, features={features}, {self.length} of {tokens} tokens, {self.inputs.dtype}, {self.inputs.device})"

    def reset(self) -> None:
        """Starts new sequences in the same memory."""
        self.length = 0


def _in_words(init: Init) -> Init:
    """Refuses nn.Conv1d(T, T, K) and nn.Linear(T, T) under another name, the first of which would have T taps, with what they become."""
    parameters = dict(list(inspect.signature(init).parameters.items())[1:])
    placed = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    becomes = (
        "nn.Conv1d(T, T, K) becomes TriangularConv1d(T, K)"
        if "kernel_size" in placed
        else "nn.Linear(T, T) becomes TriangularLinear(T)"
    )

    @functools.wraps(init)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        call = f"{type(self).__name__}({', '.join([*map(repr, given), *(f'{name}={value!r}' for name, value in named.items())])})"
        for name in named:
            if name not in parameters:
                raise TypeError(f"{call}: no argument is called {name}; allowed: {', '.join(parameters)}; {becomes}")
            if name in placed[: len(given)]:
                raise TypeError(f"{call} gives {name} twice, by its place and by its name; {becomes}")
        if len(given) > len(placed):
            old = (
                f"nn.Conv1d({', '.join(map(repr, given))}) becomes TriangularConv1d({given[0]!r}, {given[2]!r})"
                if "kernel_size" in placed
                else becomes
            )
            raise TypeError(
                f"{call} has {len(given)} arguments without a name; allowed: {' and '.join(placed)}, the others by name; {old}"
            )
        if "kernel_size" in placed and len(given) == 2 and given[0] == given[1] != 1:
            raise TypeError(
                f"{call} would have {given[1]!r} taps; nn.Conv1d({given[0]!r}, {given[1]!r}, 1) becomes TriangularConv1d({given[0]!r}, 1); "
                f"as many taps as tokens are written kernel_size={given[1]!r}"
            )
        init(self, *given, **named)

    return checked  # type: ignore[return-value]


class TriangularConv1d(nn.Module):
    """nn.Conv1d(tokens, tokens, kernel_size) over x[B, tokens, features] with weight[t, s, :] in the triangle only, in one kernel.

    tokens       T: the most tokens that x may have. Fewer (a prefix) are allowed
    kernel_size  K taps, which slide over features
    heads        H weights, head h working on features [h*D, (h+1)*D) of x[B, tokens, H*D]
    bias         one value for each token (and head)
    activation   None, "gelu" or "silu", applied to the sum
    padding      "same" (nn.Conv1d's: (K-1)//2 on the left), "causal" (K-1) or the features of padding on the left
    layout       "btd": x[B, tokens, features], or "bdt": x[B, features, tokens]
    fill, diagonal   the triangle: lower is s <= t + diagonal, upper is s >= t + diagonal
    math         how float32 is multiplied: as triangular_conv1d's
    form, width  what the weight holds, as triangular_conv1d's form says: "toeplitz", one number for each distance t - s, or "band" of `width`
                 tokens, the row's own included
    heads_in_batch   x is [B*H, D, n], head after head, as torch.bmm takes it; of layout "bdt"

    Parameters: weight [T, T, K] and bias [T] as nn.Conv1d has them; with heads > 1 [H, T, T, K] and [H, T]. Of form "toeplitz" the weight is
    [H, T] (one head: [1, T]), of "band" [T, width] or [H, T, width]. Loading also takes
    nn.Linear's [T, T], grouped nn.Conv1d's [H*T, T, K] / [H*T], and nn.ModuleList's "0.weight", "1.weight", ...; with
    split_heads=True the state dict is saved in that last form, so that a ModuleList of convolutions and this module are exchangeable
    in checkpoints. Entries outside the triangle are kept as they were loaded, never read, and get a gradient of exactly zero.

    forward(x, gate=None, residual=None) returns act(W x + b) * gate + residual, like x. x may have rank 2 (no batch).

    tokens and kernel_size alone may be given without their names: nn.Conv1d(T, T, K) becomes TriangularConv1d(T, K), and as many taps as tokens
    are written TriangularConv1d(T, kernel_size=T).
    """

    @_in_words
    def __init__(
        self,
        tokens: int,
        kernel_size: int = 1,
        *,
        heads: int = 1,
        bias: bool = True,
        activation: ActivationLike = None,
        padding: Padding = "same",
        layout: Layout = "btd",
        fill: Fill = "lower",
        diagonal: int = 0,
        math: Math = "default",
        form: Form = "dense",
        width: Optional[int] = None,
        split_heads: bool = False,
        heads_in_batch: bool = False,
        device: Device = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        if not isinstance(bias, bool):  # nn.Linear(T, T) with another name
            raise TypeError(
                f"bias={bias!r}; allowed: True or False; nn.Linear({tokens}, {tokens}) becomes TriangularLinear({tokens})"
            )
        for name, value in (("tokens", tokens), ("kernel_size", kernel_size), ("heads", heads)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}; allowed: an integer of at least 1")
        self.tokens, self.kernel_size, self.heads = tokens, kernel_size, heads
        self.activation = activation_name(activation)
        self.pad = resolve_padding(padding, kernel_size)
        if not 0 <= self.pad < kernel_size:
            raise ValueError(
                f"padding={padding!r}; allowed: 'same', 'causal' or 0 to kernel_size-1 = {kernel_size - 1}"
            )
        for name, value, allowed in (
            ("layout", layout, LAYOUTS),
            ("fill", fill, FILLS),
            ("math", math, MATHS),
            ("form", form, tuple(weights.SHAPES)),
        ):
            if value not in allowed:
                raise ValueError(f"{name}={value!r} is not known; allowed: {', '.join(allowed)}")
        if isinstance(diagonal, bool) or not isinstance(diagonal, int):
            raise ValueError(f"diagonal={diagonal!r}; allowed: an integer")
        if form != "dense" and (kernel_size, fill, diagonal) != (1, "lower", 0):
            raise ValueError(
                f"kernel_size={kernel_size}, fill={fill!r}, diagonal={diagonal} with form={form!r}; allowed: 1, 'lower', 0"
            )
        if form == "band" and (isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= tokens):
            raise ValueError(
                f"width={width!r} with form='band'; allowed: 1 to tokens={tokens}, the row's own token included"
            )
        if form != "band" and width is not None:
            raise ValueError(
                f"width={width!r} with form={form!r}; only a band has one; allowed: form='band', or no width"
            )
        if heads_in_batch and layout != "bdt":
            raise ValueError(
                f"heads_in_batch with layout={layout!r}; allowed: layout='bdt', x [batch * heads, features, tokens]"
            )
        self.form, self.width, self.heads_in_batch = form, width, heads_in_batch
        self.layout, self.fill, self.diagonal, self.math = layout, fill, diagonal, math
        self.split_heads = split_heads
        head_shape = (heads,) if heads > 1 else ()
        self.weight = nn.Parameter(torch.empty(self._weight_shape(), device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(*head_shape, tokens, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()
        self._register_state_dict_hook(_save_split_heads)

    def _weight_shape(self):
        if self.form == "toeplitz":
            return (self.heads, self.tokens)
        one = (self.tokens, self.width) if self.form == "band" else (self.tokens, self.tokens, self.kernel_size)
        return (self.heads, *one) if self.heads > 1 else one

    def reset_parameters(self) -> None:
        """nn.Conv1d's initialisation of every head (fan-in T*K, as the masked convolution has it, or a band's width), zero outside the
        triangle."""
        bound = 1 / _math.sqrt((self.width or self.tokens) * self.kernel_size)
        with torch.no_grad():
            nn.init.uniform_(self.weight, -bound, bound)
            self.clear_outside()
            if self.bias is not None:
                nn.init.uniform_(self.bias, -bound, bound)

    @torch.no_grad()
    def clear_outside(self) -> None:
        """Zeroes the weight's other triangle, which no kernel reads: for checkpoints that others will read as dense."""
        self.weight.masked_fill_(self._outside(), 0)

    def _outside(self) -> torch.Tensor:
        """Mask of the weight's elements that are never read, of a shape that broadcasts to the weight's."""
        if self.form == "toeplitz":
            return torch.zeros((), dtype=torch.bool, device=self.weight.device)
        if self.form == "band":  # what a row has before token 0
            t, at = (torch.arange(size, device=self.weight.device) for size in self.weight.shape[-2:])
            return t.unsqueeze(1) + at < self.width - 1
        mask = ~plain.triangle(self.tokens, self.fill, self.diagonal, self.weight.device)
        return mask if self.weight.dim() == 2 else mask.unsqueeze(-1)

    def forward(
        self, x: torch.Tensor, gate: Optional[torch.Tensor] = None, residual: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        if isinstance(x, torch.Tensor) and x.dim() == 2:
            batched = [None if tensor is None else tensor.unsqueeze(0) for tensor in (x, gate, residual)]
            return self.forward(*batched).squeeze(0)  # hooks see the caller's tensors, once
        if self.heads_in_batch:
            check_tensor(x, "x")
            shape = x.shape
            x, gate, residual = (heads_of_batch(tensor, self.heads) for tensor in (x, gate, residual))
        y = triangular_conv1d(
            x,
            self.weight,
            self.bias,
            gate=gate,
            residual=residual,
            padding=self.pad,
            layout=self.layout,
            fill=self.fill,
            diagonal=self.diagonal,
            activation=self.activation,
            math=self.math,
            form=self.form,
        )
        return y.reshape(shape) if self.heads_in_batch else y

    # ---- decoding -------------------------------------------------------------------------------------------------------

    def new_cache(
        self, batch: int, features: int, device: Device = None, dtype: Optional[torch.dtype] = None
    ) -> DecodeCache:
        """A cache for `batch` sequences of `features` features; device and dtype default to the weight's (under autocast, give the
        dtype of the inputs)."""
        if (self.fill, self.layout) != ("lower", "btd") or self.diagonal > 0:
            raise ValueError(
                "decoding needs fill='lower', diagonal <= 0 and layout='btd': other mixers read tokens that are not there yet"
            )
        return DecodeCache(
            torch.empty(
                batch, self.tokens, features, device=device or self.weight.device, dtype=dtype or self.weight.dtype
            )
        )

    def decode(
        self,
        x: torch.Tensor,
        cache: DecodeCache,
        gate: Optional[torch.Tensor] = None,
        residual: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """The outputs of the next n tokens x[B, n, H*D] (n = 1: single-token decoding; n > 1: a prompt, or a chunk), given the
        cache's tokens; x is added to the cache. Equal to the same rows of forward over all tokens. No gradients. On a GPU a kernel
        reads the cache's tokens once (the op decode); elsewhere, and for what it does not take (a form other than "dense"), plain torch
        does."""
        if x.dim() != 3 or x.shape[0] != cache.inputs.shape[0] or x.shape[2] != cache.inputs.shape[2]:
            raise ValueError(
                f"x has shape {list(x.shape)}; allowed beside this cache: [{cache.inputs.shape[0]}, n, {cache.inputs.shape[2]}]"
            )
        check_device("x", x, cache.inputs, "the cache")
        check_device("weight", self.weight, x)
        for name, tensor in (("gate", gate), ("residual", residual)):
            if tensor is not None:
                if tensor.shape != x.shape:
                    raise ValueError(f"{name} has shape {list(tensor.shape)}; allowed: x's shape {list(x.shape)}")
                check_device(name, tensor, x)
        begin, end = cache.length, cache.length + x.shape[1]
        if end > self.tokens:
            raise ValueError(f"x has {x.shape[1]} tokens after {begin} in the cache; allowed: {self.tokens} in all")
        with torch.no_grad():
            cache.inputs[:, begin:end].copy_(x)
            cache.length = end
            if begin == 0 and end > 1:
                seen = cache.inputs[:, :end] if x.dtype != cache.inputs.dtype else x
                with prefix_is_meant():
                    return self(seen, gate, residual)
            tensors = cache.inputs, self.weight, self.bias, gate, residual
            options = self.pad, self.diagonal, self.activation or "none"
            if self.form == "dense" and cache.inputs.is_cuda:
                y = decoding.rows(*tensors, self.heads, self.kernel_size, begin, end, *options)
                if y is not None:
                    return y
            elif self.form == "dense" and recording.active is not None:
                decoding.record(*tensors, self.heads, self.kernel_size, end - begin, *options)
            seen = cache.inputs[:, :end]
            features = seen.shape[2] // self.heads
            sizes = Sizes(
                seen.shape[0], self.heads, end, features, self.kernel_size, self.tokens, self.form, self.width or 0
            )
            pad, diagonal, activation = options
            return plain.mixed(seen, *tensors[1:], sizes, pad, self.layout, self.fill, diagonal, activation, begin)[0]

    # ---- state dicts ----------------------------------------------------------------------------------------------------

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        for name in ("weight", "bias"):
            own = getattr(self, name)
            if own is None:
                continue
            split = [f"{prefix}{head}.{name}" for head in range(self.heads)]
            if prefix + name not in state_dict and all(key in state_dict for key in split):
                parts = [state_dict.pop(key) for key in split]
                state_dict[prefix + name] = torch.stack(parts) if self.heads > 1 else parts[0]
            value = state_dict.get(prefix + name)
            if (
                value is not None
                and value.shape != own.shape
                and value.numel() == own.numel()
                and self._same_weight(name, value)
            ):
                state_dict[prefix + name] = value.reshape(own.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _same_weight(self, name: str, value: torch.Tensor) -> bool:
        """Whether a tensor of another shape is this parameter: nn.Linear's, grouped nn.Conv1d's, or one with all axes."""
        h, t, k = self.heads, self.tokens, self.kernel_size
        known = {"weight": [(h, t, t, k), (h * t, t, k)], "bias": [(h, t), (h * t,)]}
        if self.form != "dense":
            known["weight"] = [(t,)] if self.form == "toeplitz" else [(h, t, self.width)]
        elif k == 1:
            known["weight"] += [(h, t, t), (h * t, t)]
        return tuple(value.shape) in known[name]

    def extra_repr(self) -> str:
        text = f"{self.tokens}, kernel_size={self.kernel_size}, heads={self.heads}, bias={self.bias is not None}, pad={self.pad}"
        for name, usual in (
            ("activation", None),
            ("layout", "btd"),
            ("fill", "lower"),
            ("diagonal", 0),
            ("math", "default"),
            ("form", "dense"),
            ("width", None),
            ("heads_in_batch", False),
        ):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text


def _save_split_heads(module, state_dict, prefix, local_metadata) -> None:
    if not module.split_heads:
        return
    for name in ("weight", "bias"):
        value = state_dict.pop(prefix + name, None)
        if value is not None:
            for head, part in enumerate(value if module.heads > 1 else [value]):
                state_dict[f"{prefix}{head}.{name}"] = part


class TriangularLinear(TriangularConv1d):
    """nn.Linear(tokens, tokens) on the last axis with a triangular weight: y[..., t] = act(bias[t] + sum over s <= t of W[t, s] x[..., s]).

    Parameters: weight [T, T], bias [T], as nn.Linear has them. x[..., n] with n <= T and any leading axes."""

    @_in_words
    def __init__(
        self,
        tokens: int,
        bias: bool = True,
        activation: ActivationLike = None,
        *,
        fill: Fill = "lower",
        diagonal: int = 0,
        math: Math = "default",
        device: Device = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__(
            tokens,
            bias=bias,
            activation=activation,
            layout="bdt",
            fill=fill,
            diagonal=diagonal,
            math=math,
            device=device,
            dtype=dtype,
        )

    def _weight_shape(self):
        return (self.tokens, self.tokens)

    def forward(
        self, x: torch.Tensor, gate: Optional[torch.Tensor] = None, residual: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        check_tensor(x, "x")
        if x.dim() == 3:
            return super().forward(x, gate, residual)
        shape = x.shape
        flat = [None if tensor is None else tensor.reshape(1, -1, shape[-1]) for tensor in (x, gate, residual)]
        return super().forward(*flat).reshape(shape)


class CausalSpatialGatingUnit(nn.Module):
    """u, v = x.chunk(2, -1);  returns act(tril(W) norm(v) + b [+ gate_residual]) * u

    dim         features of x; the output has dim // 2
    tokens      T; x may have fewer tokens
    heads       H weights, each on its slice of the features of v
    activation  None, "gelu" or "silu"
    init_eps    weights start uniform in +-init_eps / tokens and biases at one, so that the unit starts as u itself

    Parameters: norm.weight, norm.bias, weight [H, T, T], bias [H, T]. Loading also takes weight [T, T] / [T, T, 1] and bias [T], under
    these names or under "proj." (the form with an nn.Conv1d inside). A causal mask among the buffers is accepted and dropped.
    """

    def __init__(
        self,
        dim: int,
        tokens: int,
        heads: int = 1,
        activation: ActivationLike = None,
        init_eps: float = 1e-3,
        device: Device = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        if dim % (2 * heads) != 0:
            raise ValueError(f"dim={dim} with heads={heads}; allowed: a multiple of 2 * heads")
        self.tokens, self.heads, self.activation = tokens, heads, activation_name(activation)
        self.norm = nn.LayerNorm(dim // 2, device=device, dtype=dtype)
        bound = init_eps / tokens
        self.weight = nn.Parameter(
            torch.empty(heads, tokens, tokens, device=device, dtype=dtype).uniform_(-bound, bound)
        )
        self.bias = nn.Parameter(torch.ones(heads, tokens, device=device, dtype=dtype))

    def forward(self, x: torch.Tensor, gate_residual: Optional[torch.Tensor] = None) -> torch.Tensor:
        """x [B, n, dim]; gate_residual [B, n, dim // 2] is added before the activation (gMLP's tiny attention)."""
        u, v = x.chunk(2, dim=-1)
        v = self.norm(v)
        weight = self.weight.unsqueeze(-1)
        if gate_residual is None:
            return triangular_conv1d(
                v,
                weight,
                self.bias,
                gate=u if u.dtype == v.dtype else u.to(v.dtype),
                padding=0,
                activation=self.activation,
            )
        q = triangular_conv1d(v, weight, self.bias, padding=0)
        return plain.activate(q + gate_residual, self.activation) * u

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        state_dict.pop(prefix + "mask", None)
        for name in ("weight", "bias"):
            if prefix + name not in state_dict and prefix + "proj." + name in state_dict:
                state_dict[prefix + name] = state_dict.pop(prefix + "proj." + name)
            own, value = getattr(self, name), state_dict.get(prefix + name)
            allowed = {"weight": [(self.tokens, self.tokens), (self.tokens, self.tokens, 1)], "bias": [(self.tokens,)]}[
                name
            ]
            if value is not None and self.heads == 1 and tuple(value.shape) in allowed:
                state_dict[prefix + name] = value.reshape(own.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        return f"tokens={self.tokens}, heads={self.heads}, activation={self.activation}"
