"""trigen in JAX: triangular_conv1d and scan with gradients, batching, jit and shard_map; gram and orthogonalize. docs/jax.md is the guide."""

try:
    import jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError(
        "trigen.jax needs JAX 0.6 or later, which is not installed here: pip install jax, or 'jax[cuda12]' for a GPU",
        name="jax",
    ) from None

if tuple(map(int, jax.__version__.split(".")[:2])) < (0, 6):
    raise ImportError(f"jax {jax.__version__} is here; trigen.jax needs 0.6 or later; pip install -U jax")

from ..newton_schulz import JORDAN, POLAR_EXPRESS  # noqa: E402
from .functional import triangular_conv1d  # noqa: E402
from .handler import forget_plans  # noqa: E402
from .matrices import gram, orthogonalize  # noqa: E402
from .scans import scan, scan_state, scan_step  # noqa: E402

__all__ = [
    "JORDAN",
    "POLAR_EXPRESS",
    "forget_plans",
    "gram",
    "orthogonalize",
    "scan",
    "scan_state",
    "scan_step",
    "triangular_conv1d",
]
