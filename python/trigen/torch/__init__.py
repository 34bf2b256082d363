"""trigen in PyTorch: operators (torch.ops.trigen.*), the functional form, modules and the converter. docs/pytorch.md is the guide."""

from . import flops, ops  # noqa: F401  (flops registers itself)
from .convert import ConversionError, Report, convert
from .frozen import FrozenMixer, freeze
from .functional import triangular_conv1d
from .gating import CausalSpatialGatingUnit
from .launch import forget_plans, plans, set_fallback
from .modules import DecodeCache, TriangularConv1d, TriangularLinear
from .operators import forward, forward_pre, grad_input, grad_weight

__all__ = [
    "CausalSpatialGatingUnit", "ConversionError", "DecodeCache", "FrozenMixer", "Report", "TriangularConv1d", "TriangularLinear", "convert",
    "forget_plans", "forward", "forward_pre", "freeze", "grad_input", "grad_weight", "plans", "set_fallback", "triangular_conv1d",
]
