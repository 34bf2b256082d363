"""Exceptions, sorted by who must act, as the statuses of the C interface are (trigen.h).

Wrong tensors given to an operator raise the built-in ``ValueError`` (shape, size, stride) or ``TypeError`` (dtype, rank of the
wrong kind of object) with the argument's name, its shape and what is allowed; the classes here carry what libtrigen reports.
"""

import warnings


class TrigenError(RuntimeError):
    """Base of every error that libtrigen reports."""


class BadRequest(TrigenError, ValueError):
    """The caller: a wrong problem, argument or option."""


class Unsupported(TrigenError, NotImplementedError):
    """No kernel of this version serves that problem on that device."""


class BuildError(TrigenError):
    """A compile that failed, or no compiler for the target (NoCompiler)."""


class NoCompiler(BuildError):
    """No NVRTC of this machine makes the target."""


class DeviceError(TrigenError):
    """Driver, device, or a failed launch."""


class CacheMiss(TrigenError, LookupError):
    """The cache has no kernel for a problem and compiling is forbidden (TRIGEN_NO_JIT=1)."""


class InternalError(TrigenError):
    """A defect of trigen."""


class LibraryMissing(TrigenError, ImportError):
    """libtrigen.so was not found or does not load."""


BY_STATUS = {
    1: BadRequest,
    2: Unsupported,
    3: BuildError,
    4: DeviceError,
    5: CacheMiss,
    6: InternalError,
    7: NoCompiler,
}


class TrigenWarning(UserWarning):
    """Given once per process and cause, never per call."""


said = set()  # causes


def warn_of_transposed(shape, tokens: int, layout: str, name: str = "x") -> None:
    """A transposed tensor, which nn.Conv1d(T, T, K) refuses, is a prefix to a mixer: of fewer tokens than the weight's,
    with as many features as the weight has tokens."""
    axes, other = ("[batch, tokens, features]", "bdt") if layout == "btd" else ("[batch, features, tokens]", "btd")
    n = shape[1] if layout == "btd" else shape[2]
    warn_once(
        "transposed",
        (
            f"{name} has shape {list(shape)}, taken as {axes} (layout={layout}): a prefix of {n} of weight's {tokens} tokens, with {tokens} features; if its "
            f"axes are the other way round, transpose it or give layout={other!r} (this is said once)"
        ),
    )


def warn_once(cause: str, text: str) -> None:
    if cause not in said:
        said.add(cause)
        warnings.warn(text, TrigenWarning, stacklevel=4)
