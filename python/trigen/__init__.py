"""trigen: triangular convolutions on NVIDIA GPUs.

`import trigen` needs neither PyTorch nor a GPU. `import trigen.torch` brings the PyTorch operators and modules.
"""

from ._version import __version__
from .errors import (BadRequest, BuildError, CacheMiss, DeviceError, InternalError, LibraryMissing, NoCompiler,
                     TrigenError, TrigenWarning, Unsupported)
from .library import Availability, DeviceTensor, Plan, PlanInfo, Runtime, configure, format_problem, is_available, parse_problem
from .model_tuning import tune
from .recording import Recorder, record
from .tuning import TuneResult, program, tune_problems

__all__ = [
    "__version__", "Availability", "BadRequest", "BuildError", "CacheMiss", "DeviceError", "DeviceTensor", "InternalError", "LibraryMissing",
    "NoCompiler", "Plan", "PlanInfo",
    "Recorder", "Runtime", "TrigenError", "TrigenWarning", "TuneResult", "Unsupported", "configure", "format_problem",
    "is_available", "parse_problem", "program", "record", "tune", "tune_problems",
]
