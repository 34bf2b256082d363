"""How float32 is multiplied: PyTorch's own switches for matrix products, all of them.

    torch.set_float32_matmul_precision("high")                 every PyTorch
    torch.backends.cuda.matmul.allow_tf32 = True               every PyTorch
    torch.backends.cuda.matmul.fp32_precision = "tf32"         PyTorch 2.9 and later
    torch.backends.fp32_precision = "tf32"                     PyTorch 2.9 and later

Where the later two exist they decide, as in PyTorch's products: they also hold what the first two set, while the first two raise once the
later ones were used.
"""

from __future__ import annotations

import contextlib
import functools

import torch

# The getter behind torch.backends.cuda.matmul.fp32_precision, at a tenth of its cost; that property; neither before PyTorch 2.9.
_getter = getattr(torch._C, "_get_fp32_precision_getter", None)


def _works(read) -> bool:
    try:
        return read() in ("none", "ieee", "tf32", "bf16")
    except Exception:  # a private interface, or one that is not there
        return False


if _getter is not None and _works(lambda: _getter("cuda", "matmul")):

    def tf32_is_allowed() -> bool:
        """Whether float32 products on a GPU may round to TF32."""
        return _getter("cuda", "matmul") == "tf32"
elif _works(lambda: torch.backends.cuda.matmul.fp32_precision):

    def tf32_is_allowed() -> bool:
        """Whether float32 products on a GPU may round to TF32."""
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
else:

    def tf32_is_allowed() -> bool:
        """Whether float32 products on a GPU may round to TF32."""
        return torch.get_float32_matmul_precision() != "highest"


@functools.lru_cache(maxsize=None)
def has_tf32(device: int) -> bool:
    """Whether that GPU multiplies TF32 (Ampere and later). True for -1, a CPU: what it records is for some GPU."""
    return device < 0 or torch.cuda.get_device_capability(device) >= (8, 0)


def resolve_math(math: str, dtype: torch.dtype, device: int) -> str:
    """float32 follows PyTorch's own switch for matrix products unless the caller says simt, f16x3 or tf32. Like PyTorch, a GPU without
    TF32 multiplies in full precision whatever the switch allows; asked for tf32 by name it refuses."""
    if dtype != torch.float32:
        return "default"
    if math != "default":
        return math
    return "tf32" if tf32_is_allowed() and has_tf32(device) else "simt"


@contextlib.contextmanager
def full_precision():
    """float32 products in full precision, and convolutions, which then are such products."""
    later, cudnn = _works(lambda: torch.backends.cuda.matmul.fp32_precision), torch.backends.cudnn.enabled
    before = torch.backends.cuda.matmul.fp32_precision if later else torch.get_float32_matmul_precision()

    def switch(value):
        if not tf32_was_allowed:
            return
        if later:
            torch.backends.cuda.matmul.fp32_precision = value
        else:
            torch.set_float32_matmul_precision(value)

    tf32_was_allowed = tf32_is_allowed()
    try:
        switch("ieee" if later else "highest")
        torch.backends.cudnn.enabled = False
        yield
    finally:
        switch(before)
        torch.backends.cudnn.enabled = cudnn
