"""The library's log lines in Python's logging, under the logger ``trigen``; what a process did, in numbers.

Lines of a plan come at INFO, as trigen.h describes them; each compile at DEBUG; "untuned" and "near" once in a process at WARNING;
a cache that cannot be used at WARNING. Show them with ``logging.basicConfig(level=logging.INFO)``, or with TRIGEN_LOG=info.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
from typing import NamedTuple

logger = logging.getLogger("trigen")
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
OFF, WARNING, NOTICE, INFO, DEBUG = range(5)  # trigen_log_level
levels = {WARNING: logging.WARNING, NOTICE: logging.WARNING, INFO: logging.INFO, DEBUG: logging.DEBUG}
_NAMES = {
    "off": logging.CRITICAL + 1,
    "warning": logging.WARNING,
    "notice": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class CCounts(ctypes.Structure):
    """trigen_counts."""

    NUMBERS = ("exact", "near", "predicted", "misses", "compiles", "canaries")
    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, ctypes.c_uint64) for name in NUMBERS]
        + [("plan_ms", ctypes.c_double), ("compile_ms", ctypes.c_double)]
    )


class Counters(NamedTuple):
    """Counters of this process so far. Every plan made is one of exact, near, predicted and misses."""

    exact: int  # plans from a record measured on such a device
    near: int  # measured on another device, SM count or driver
    predicted: int  # the cost model's choice, stored earlier
    misses: int  # without a record: compiled, or the generic kernel
    compiles: int  # kernels that NVRTC made in this process
    canaries: int  # kernels that no tune checked here, tried before their first use
    plan_ms: float  # spent making plans, compiling included
    compile_ms: float  # spent in NVRTC, of all threads together


def read_counters(library: ctypes.CDLL) -> Counters:
    counts = CCounts(struct_size=ctypes.sizeof(CCounts))
    if library.trigen_counters(ctypes.byref(counts)) != 0:
        raise RuntimeError(library.trigen_last_error().decode())
    return Counters(*(getattr(counts, name) for name in Counters._fields))


def notices_are_said() -> None:
    """ "Untuned" and "near" come as TrigenWarning (the PyTorch operators): here they are for those who read along."""
    levels[NOTICE] = logging.INFO


def _line(level: int, line: bytes, user) -> None:
    try:
        logger.log(levels.get(level, logging.DEBUG), "%s", line.decode("utf-8", "replace"))
    except Exception:  # nothing may leave a callback of C; logging reports its handlers' errors itself
        pass


_callback = FUNCTION(_line)  # kept for the process's life


def connect(library: ctypes.CDLL) -> None:
    """Sends the library's lines to the logger."""
    named = os.environ.get("TRIGEN_LOG", "").strip().lower()
    if named:
        off = named in ("0", "false", "no", "off")
        logger.setLevel(_NAMES["off"] if off else _NAMES.get(named, logging.INFO))
        if not logger.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            logger.addHandler(handler)
    # Python has no level between WARNING and INFO: who asks for warnings alone is given no notices.
    library.trigen_set_log(WARNING if named == "warning" else DEBUG, _callback, None)
    # Threads that still make plans while the interpreter ends must not call into it.
    atexit.register(library.trigen_set_log, OFF, FUNCTION(), None)
