"""trigen in PyTorch: operators (torch.ops.trigen.*), the functional form, modules and the converter. docs/pytorch.md is the guide."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "trigen.torch needs PyTorch 2.4 or later, which is not installed here: pip install torch", name="torch"
    ) from None

from ..newton_schulz import JORDAN, POLAR_EXPRESS  # noqa: E402
from .convert import ConversionError, Report, convert  # noqa: E402
from .frozen import FrozenMixer, freeze  # noqa: E402
from .functional import forward, forward_pre, grad_input, grad_weight, triangular_conv1d  # noqa: E402
from .launch import forget_plans, plans, set_fallback  # noqa: E402
from .modules import CausalSpatialGatingUnit, DecodeCache, TriangularConv1d, TriangularLinear  # noqa: E402
from .muon import Muon, orthogonalize  # noqa: E402
from .scan_steps import scan_state, scan_step  # noqa: E402
from .scans import scan  # noqa: E402
from .structured import StructuredMixer  # noqa: E402
from .symmetric import gram  # noqa: E402

__all__ = [
    "TriangularConv1d",
    "TriangularLinear",
    "CausalSpatialGatingUnit",
    "StructuredMixer",
    "convert",
    "Report",
    "triangular_conv1d",
    "plans",
    "forget_plans",
    "set_fallback",
    "freeze",
    "FrozenMixer",
    "DecodeCache",
    "forward",
    "forward_pre",
    "grad_input",
    "grad_weight",
    "gram",
    "scan",
    "scan_state",
    "scan_step",
    "orthogonalize",
    "Muon",
    "JORDAN",
    "POLAR_EXPRESS",
    "ConversionError",
]
