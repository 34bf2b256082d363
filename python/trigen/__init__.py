"""trigen: triangular convolutions on NVIDIA GPUs.

`import trigen` needs neither PyTorch nor a GPU. `import trigen.torch` brings the PyTorch operators and modules.
"""

from ._version import __version__
from .errors import (
    BadRequest,
    BuildError,
    CacheMiss,
    DeviceError,
    InternalError,
    LibraryMissing,
    NoCompiler,
    TrigenError,
    TrigenWarning,
    Unsupported,
)
from .library import (
    Availability,
    DeviceTensor,
    DeviceVector,
    Plan,
    PlanInfo,
    Runtime,
    configure,
    counters,
    format_problem,
    is_available,
    parse_problem,
)
from .log import Counters
from .model_tuning import tune
from .recording import Recorder, record
from .tuning import TuneResult, program, tune_problems

__all__ = [  # as docs/reference/python.md shows them: what users call, what that returns, what it raises
    "is_available",
    "configure",
    "tune",
    "record",
    "tune_problems",
    "program",
    "counters",
    "parse_problem",
    "format_problem",
    "Availability",
    "Counters",
    "Recorder",
    "TuneResult",
    "Runtime",
    "Plan",
    "PlanInfo",
    "DeviceTensor",
    "DeviceVector",
    "__version__",
    "TrigenError",
    "BadRequest",
    "Unsupported",
    "BuildError",
    "NoCompiler",
    "DeviceError",
    "CacheMiss",
    "InternalError",
    "LibraryMissing",
    "TrigenWarning",
]
