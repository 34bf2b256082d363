"""trigen: triangular convolutions on NVIDIA GPUs.

`import trigen` needs neither PyTorch nor a GPU. `import trigen.torch` brings the PyTorch operators and modules.
"""

from ._version import __version__
from .errors import (BadRequest, BuildError, CacheMiss, DeviceError, InternalError, LibraryMissing, NoCompiler,
                     TrigenError, TrigenWarning, Unsupported)
from .library import Availability, DeviceTensor, Plan, PlanInfo, Runtime, configure, counters, format_problem, is_available, parse_problem
from .log import Counters
from .model_tuning import tune
from .recording import Recorder, record
from .tuning import TuneResult, program, tune_problems

__all__ = [
    "__version__", "Availability", "BadRequest", "BuildError", "CacheMiss", "Counters", "DeviceError", "DeviceTensor", "InternalError", "LibraryMissing",
    "NoCompiler", "Plan", "PlanInfo",
    "Recorder", "Runtime", "TrigenError", "TrigenWarning", "TuneResult", "Unsupported", "configure", "counters",
    "format_problem", "is_available", "parse_problem", "program", "record", "tune", "tune_problems",
]
