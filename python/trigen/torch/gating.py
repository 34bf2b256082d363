"""The causal spatial gating unit of gMLP (arXiv 2105.08050), with its gate multiplied inside the mixer's kernel."""

from __future__ import annotations

from typing import Optional

import torch
from torch import nn

from . import plain
from .functional import triangular_conv1d
from .modules import ActivationLike, Device, activation_name


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
