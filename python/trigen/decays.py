"""What is asked of a decay's range and root, in every framework."""

from __future__ import annotations

import math
from typing import Optional, Tuple, Union


def check_decay(
    decay_range: Optional[Tuple[float, float]], decay_constant: Union[float, Tuple[float, float]]
) -> Optional[Tuple[float, float]]:
    """decay_range as two floats, None where it clips nothing. ValueError for what is none, and for a constant (or a pair) of 0 or below."""
    constants = decay_constant if isinstance(decay_constant, (tuple, list)) else (decay_constant,)
    roots = any(constant != 1 for constant in constants)
    try:
        lowest, highest = (-math.inf, math.inf) if decay_range is None else decay_range
        sound = lowest <= highest and highest > 0 and (lowest >= 0 or not roots or decay_range is None)
    except (TypeError, ValueError):  # no pair of numbers
        sound = False
    if not sound:
        raise ValueError(
            f"decay_range={decay_range} with decay_constant={decay_constant}; allowed: (smallest, largest), the largest above 0, and the "
            f"smallest not below 0 where decays are taken to a power"
        )
    if min(constants) <= 0:
        raise ValueError(f"decay_constant={decay_constant}; allowed: numbers above 0")
    return None if (lowest, highest) == (-math.inf, math.inf) else (float(lowest), float(highest))
