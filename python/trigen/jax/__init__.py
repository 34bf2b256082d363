"""trigen in JAX: triangular_conv1d with gradients, batching, jit and shard_map. docs/jax.md is the guide."""

from .functional import triangular_conv1d
from .handler import forget_plans

__all__ = ["forget_plans", "triangular_conv1d"]
