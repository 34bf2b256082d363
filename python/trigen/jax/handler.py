"""libtrigen.so's handler of XLA's FFI (trigen_xla.h): configured, registered and asked from Python."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Iterable

import jax

from .. import errors, library

NAME = "trigen_call"
_lock = threading.Lock()
_configured = False


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    loaded = library.load()
    for name, arguments in (
        ("trigen_xla_configure", [ctypes.c_void_p]),
        ("trigen_xla_workspace_size", [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)]),
    ):
        function = getattr(loaded, name, None)
        if function is None:
            raise errors.LibraryMissing(
                f"{loaded._name} has no {name}; install the library and the package from one wheel"
            )
        function.restype, function.argtypes = ctypes.c_int, arguments
    return loaded


@functools.lru_cache(maxsize=None)
def register(platform: str = "CUDA") -> None:
    """Makes XLA find the handler, by its name. The plan is made when a program is initialised, before anything is captured."""
    capsule = jax.ffi.pycapsule(_library().trigen_xla_call)
    jax.ffi.register_ffi_target(NAME, {"initialize": capsule, "execute": capsule}, platform=platform)


def workspace_size(problem: str, device: int) -> int:
    """Bytes that a call of the problem needs on the device; makes its plan. Options are those of trigen.configure."""
    global _configured
    loaded = _library()
    with _lock:
        if not _configured:
            options = library.runtime_options(**{"skip_pointer_checks": True, **library.configured_options()})
            library.check(loaded.trigen_xla_configure(ctypes.byref(options)))
            _configured = True
    size = ctypes.c_size_t()
    library.check(loaded.trigen_xla_workspace_size(problem.encode(), device, ctypes.byref(size)))
    return size.value


def make_ahead(problems: Iterable[str], device: int) -> None:
    """Makes the plans of these problems side by side, so that workspace_size and the handler find them."""
    library.make_ahead(problems, lambda problem: workspace_size(problem, device))


def forget_plans() -> None:
    """The next call looks into the cache again (after tuning): where programs with kernels were compiled, JAX compiles all of its programs anew,
    since a program has the workspace of the kernels that it was compiled with. One that the caller holds compiled (jit(f).lower(x).compile())
    finds the new kernel, which is refused by name where it needs more."""
    global _configured
    with _lock:
        if _configured:
            jax.clear_caches()
        _configured = False
        if _library.cache_info().currsize:
            library.check(
                _library().trigen_xla_configure(
                    ctypes.byref(
                        library.runtime_options(**{"skip_pointer_checks": True, **library.configured_options()})
                    )
                )
            )
            _configured = True
