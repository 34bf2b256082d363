"""libtrigen_torch.so in a Python process: the operators are C++ instead of this package's Python, and so are their
derivatives where libtrigen_torch_autograd.so was built for this very PyTorch. TRIGEN_TORCH_LIBRARY names the file; the
other one is looked for beside it. Loading them with torch.ops.load_library before trigen.torch is imported does the same.

What stays Python's: shapes for the compiler, torch.func and forward mode, recording, everything without such a file."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def _load() -> None:
    file = os.environ.get("TRIGEN_TORCH_LIBRARY")
    if not file:
        return
    torch.ops.load_library(file)
    derivatives = Path(file).with_name("libtrigen_torch_autograd.so")
    if derivatives.exists():
        torch.ops.load_library(str(derivatives))


_load()
operators = bool(torch._C._jit_get_schemas_for_operator("trigen::forward"))
derivatives = operators and torch._C._dispatch_has_kernel_for_dispatch_key("trigen::forward", "Autograd")
