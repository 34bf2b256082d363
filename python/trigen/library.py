"""libtrigen.so through ctypes: the C interface of trigen.h, one to one, with statuses as exceptions.

ctypes and not an extension module: one wheel serves every Python and every PyTorch, and a run costs one foreign call with three
arguments (the argument block is packed by struct.Struct, the plan is an integer). bench/torch_ops.py measures it.

The library is looked for in TRIGEN_LIBRARY (a file), beside this package (where the wheel puts it), in the environment's lib (where
conda puts it), then on the loader path. It is loaded at first use, not at import.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import errors, fields, log
from .fields import CProblem
from .options import Miss

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class RuntimeOptions(TypedDict, total=False):
        layers: Optional[Sequence[Union[str, os.PathLike[str]]]]
        read_only: bool
        miss: Miss
        no_jit: bool
        skip_pointer_checks: bool
        skip_canary: bool
        target: Optional[str]
        driver: Optional[str]
        trusted_keys: Optional[str]


_c = ctypes
_pointer = _c.c_void_p


class CRuntimeOptions(_c.Structure):
    """trigen_runtime_options."""

    _fields_ = [
        ("struct_size", _c.c_size_t),
        ("layers", _c.POINTER(_c.c_char_p)),
        ("layer_count", _c.c_size_t),
        ("read_only", _c.c_int),
        ("miss", _c.c_int),
        ("no_jit", _c.c_int),
        ("skip_pointer_checks", _c.c_int),
        ("skip_canary", _c.c_int),
        ("target", _c.c_char_p),
        ("driver", _c.c_char_p),
        ("trusted_keys", _c.c_char_p),
    ]


class CPlanInfo(_c.Structure):
    """trigen_plan_info."""

    TEXTS = (
        "problem",
        "device",
        "target",
        "candidate",
        "provenance",
        "match",
        "difference",
        "layer",
        "binary_from",
        "compiler",
        "slow",
        "dense",
    )
    _fields_ = (
        [("struct_size", _c.c_size_t)]
        + [(name, _c.c_char_p) for name in TEXTS]
        + [
            ("expected_us", _c.c_double),
            ("dense_us", _c.c_double),
            ("workspace_bytes", _c.c_size_t),
            ("loaded_ptx", _c.c_int),
            ("device_ordinal", _c.c_int),
            ("prepared_bytes", _c.c_size_t),
            ("prepared", _c.c_char_p),
        ]
    )


# trigen_args: struct_size; x, y, pre, gate, residual as (data, batch, head, row); w, w_head, w_row, bias, workspace, its size,
# first_row, rows; source, target, decay, diagonal as (data, head, token); alpha, beta, gamma, decay_low, decay_high; w_unchanged.
ARGS = struct.Struct("41q5fi")
# The same block with what is no address made beforehand, as bytes: a third of the values to convert in each run. x and its strides; y; y's
# strides, pre, gate and residual; w and its strides; bias, workspace, its size; all behind these: the rows, vectors and factors.
ARGS_END = 16 + 4 * 24 + 24
ARGS_PREPARED = struct.Struct(f"qq24sq120sq16sqqq{ARGS_END}s")
assert ARGS_PREPARED.size == ARGS.size
OPS, DTYPES, MATHS = (fields.numbers(name) for name in ("op", "dtype", "math"))
LAYOUTS, FILLS, ACTIVATIONS = (fields.numbers(name) for name in ("layout", "fill", "activation"))
MISS = {"first_choice": 0, "generic": 1, "error": 2}
CURRENT_DEVICE = -1

_lock = threading.Lock()
_library: Optional[_c.CDLL] = None
VERSION = (0, 1)  # major and minor of the interface that this module speaks


def candidates() -> List[str]:
    """Files and names that load() tries, in order."""
    chosen = os.environ.get("TRIGEN_LIBRARY")
    if chosen:
        return [chosen]
    name = f"libtrigen.so.{VERSION[0]}.{VERSION[1]}"
    files = [Path(__file__).resolve().parent / "lib" / "libtrigen.so", Path(sys.prefix) / "lib" / name]
    return [str(file) for file in files if file.exists()] + [name, "libtrigen.so"]


def load() -> _c.CDLL:
    """The loaded library; LibraryMissing says what was tried. Any thread."""
    global _library
    if _library is not None:
        return _library
    with _lock:
        if _library is None:
            tried = []
            for name in candidates():
                try:
                    library = _c.CDLL(name)
                except OSError as error:
                    tried.append(str(error))
                    continue
                _declare(library)
                log.connect(library)
                _library = library
                break
            else:
                raise errors.LibraryMissing(
                    "libtrigen.so does not load: "
                    + "; ".join(tried)
                    + "; install the trigen wheel, or set TRIGEN_LIBRARY to the file"
                )
    return _library


def _declare(library: _c.CDLL) -> None:
    signatures = {
        "trigen_version": (_c.c_int, []),
        "trigen_version_string": (_c.c_char_p, []),
        "trigen_status_name": (_c.c_char_p, [_c.c_int]),
        "trigen_last_error": (_c.c_char_p, []),
        "trigen_problem_fields": (_c.c_char_p, []),
        "trigen_problem_parse": (_c.c_int, [_c.c_char_p, _c.POINTER(CProblem)]),
        "trigen_problem_format": (_c.c_int, [_c.POINTER(CProblem), _c.c_char_p, _c.c_size_t, _c.POINTER(_c.c_size_t)]),
        "trigen_runtime_create": (_c.c_int, [_c.POINTER(CRuntimeOptions), _c.POINTER(_pointer)]),
        "trigen_runtime_destroy": (None, [_pointer]),
        "trigen_plan_create": (_c.c_int, [_pointer, _c.POINTER(CProblem), _c.c_int, _c.POINTER(_pointer)]),
        "trigen_plan_destroy": (None, [_pointer]),
        "trigen_plan_workspace_size": (_c.c_size_t, [_pointer]),
        "trigen_plan_describe": (_c.c_int, [_pointer, _c.POINTER(CPlanInfo)]),
        "trigen_plan_run": (_c.c_int, [_pointer, _c.c_char_p, _pointer]),
        "trigen_set_log": (_c.c_int, [_c.c_int, log.FUNCTION, _pointer]),
        "trigen_counters": (_c.c_int, [_c.POINTER(log.CCounts)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name, None)
        if function is None:
            raise errors.LibraryMissing(
                f"{library._name} has no {name}; it is no libtrigen.so of version {VERSION[0]}.{VERSION[1]}"
            )
        function.restype, function.argtypes = result, arguments
    version = library.trigen_version()
    if (version // 10000, version // 100 % 100) != VERSION:
        raise errors.LibraryMissing(
            f"{library._name} is version {library.trigen_version_string().decode()}; this package needs {VERSION[0]}.{VERSION[1]}; "
            f"install both from one wheel"
        )
    differences = fields.differences(json.loads(library.trigen_problem_fields()))
    if differences:
        raise errors.LibraryMissing(
            f"{library._name} has other problems than this package: "
            + "; ".join(differences)
            + "; install both from one wheel"
        )


def check(status: int) -> None:
    """Raises the exception of a failed call of this thread."""
    if status != 0:
        text = load().trigen_last_error()
        raise errors.BY_STATUS.get(status, errors.InternalError)(
            text.decode("utf-8", "replace") if text else f"status {status}"
        )


def parse_problem(text: str) -> CProblem:
    """The problem of a text such as "forward,dtype=bf16,B=32,T=512,D=1024,epilogue=bias+gelu", with every default filled in: its fields are
    attributes (problem.T, problem.bias; names of enumerations by number). BadRequest names the token that is wrong and what is allowed.
    Needs libtrigen.so, no GPU."""
    problem = CProblem(struct_size=_c.sizeof(CProblem))
    check(load().trigen_problem_parse(text.encode(), _c.byref(problem)))
    return problem


def format_problem(problem: CProblem) -> str:
    """The canonical text."""
    needed = _c.c_size_t()
    buffer = _c.create_string_buffer(512)
    check(load().trigen_problem_format(_c.byref(problem), buffer, len(buffer), _c.byref(needed)))
    if needed.value > len(buffer):
        buffer = _c.create_string_buffer(needed.value)
        check(load().trigen_problem_format(_c.byref(problem), buffer, len(buffer), None))
    return buffer.value.decode()


def make_ahead(texts: Iterable[str], make: Callable[[str], None]) -> None:
    """Calls make(text), which makes the plan of a problem, for all of these side by side, one thread a core at most: compiling takes a core a
    second or two for each. What cannot be made is left to who asks for it again, who is told why."""
    wanted = list(dict.fromkeys(texts))
    if len(wanted) < 2:
        return

    def tried(text: str) -> None:
        try:
            make(text)
        except errors.TrigenError:
            pass

    with ThreadPoolExecutor(min(len(wanted), len(os.sched_getaffinity(0)))) as pool:
        list(pool.map(tried, wanted))


def counters() -> log.Counters:
    """Counters of this process so far: plans by answer, compiles, milliseconds."""
    return log.read_counters(load())


class PlanInfo(NamedTuple):
    """trigen_plan_info: what a plan runs and where it came from."""

    problem: str
    device: str
    target: str
    candidate: str
    provenance: str  # "measured" or "predicted"
    match: str  # "exact", "near" or "none"
    difference: str
    layer: str
    binary_from: str  # "cache" or "compiled"
    compiler: str
    slow: str  # why it is far slower than the GPU could be, and what to use instead; else ""
    dense: str  # that a dense product is faster, or may be, with both times; else ""
    expected_us: float  # measured or predicted, as provenance says
    dense_us: float  # estimate of a library's dense product on the masked weight (gram: of both triangles), epilogue included; 0: unknown
    workspace_bytes: int
    loaded_ptx: bool
    device_ordinal: int
    prepared_bytes: int = 0  # of the workspace: what runs make of w there, which w_unchanged spares later ones
    prepared: str = ""  # what that is, in words


class DeviceTensor(NamedTuple):
    """An activation tensor: a device pointer and its strides in elements (zeros: contiguous)."""

    data: int = 0
    batch: int = 0
    head: int = 0
    row: int = 0


NO_TENSOR = DeviceTensor()


class DeviceVector(NamedTuple):
    """A scan's vector: a device pointer and its strides in elements, of which 0 repeats."""

    data: int = 0
    head: int = 0
    token: int = 0


NO_VECTOR = DeviceVector()


class Plan:
    """A problem resolved for one device. Keep it while runs are in flight; run() may be called from several threads."""

    def __init__(self, runtime: "Runtime", problem: CProblem, device: int) -> None:
        self._library = load()
        handle = _pointer()
        check(self._library.trigen_plan_create(runtime.handle, _c.byref(problem), device, _c.byref(handle)))
        self.handle: Optional[int] = handle.value
        self.workspace_size: int = self._library.trigen_plan_workspace_size(self.handle)

    def run(
        self,
        *,
        x: DeviceTensor = NO_TENSOR,
        y: DeviceTensor = NO_TENSOR,
        pre: DeviceTensor = NO_TENSOR,
        gate: DeviceTensor = NO_TENSOR,
        residual: DeviceTensor = NO_TENSOR,
        w: int = 0,
        w_head: int = 0,
        w_row: int = 0,
        bias: int = 0,
        workspace: int = 0,
        workspace_size: int = 0,
        first_row: int = 0,
        rows: int = 0,
        source: DeviceVector = NO_VECTOR,
        target: DeviceVector = NO_VECTOR,
        decay: DeviceVector = NO_VECTOR,
        diagonal: DeviceVector = NO_VECTOR,
        alpha: float = 1,
        beta: float = 1,
        gamma: float = 0,
        decay_range: Tuple[float, float] = (0, 0),
        w_unchanged: bool = False,
        stream: int = 0,
    ) -> None:
        """Launches; asynchronous as CUDA is. Roles of the tensors for each op: trigen_args in trigen.h."""
        packed = ARGS.pack(
            ARGS.size,
            *x,
            *y,
            *pre,
            *gate,
            *residual,
            w,
            w_head,
            w_row,
            bias,
            workspace,
            workspace_size,
            first_row,
            rows,
            *source,
            *target,
            *decay,
            *diagonal,
            alpha,
            beta,
            gamma,
            *decay_range,
            w_unchanged,
        )
        check(self._library.trigen_plan_run(self.handle, packed, stream))

    def __repr__(self) -> str:
        if not self.handle:
            return "<trigen.Plan, destroyed>"
        info = self.describe()
        return f"<trigen.Plan of {info.problem}: {info.candidate} for {info.target}, {info.provenance}, on device {info.device_ordinal}>"

    def describe(self) -> PlanInfo:
        """The plan's kernel and its origin."""
        info = CPlanInfo(struct_size=_c.sizeof(CPlanInfo))
        check(self._library.trigen_plan_describe(self.handle, _c.byref(info)))
        texts = {name: (getattr(info, name) or b"").decode() for name in CPlanInfo.TEXTS}
        return PlanInfo(
            **texts,
            expected_us=info.expected_us,
            dense_us=info.dense_us,
            workspace_bytes=info.workspace_bytes,
            loaded_ptx=bool(info.loaded_ptx),
            device_ordinal=info.device_ordinal,
            prepared_bytes=info.prepared_bytes,
            prepared=(info.prepared or b"").decode(),
        )

    def destroy(self) -> None:
        """Releases the plan. The caller waits for its runs to finish first."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._library.trigen_plan_destroy(handle)


def _check_miss(miss: str) -> None:
    if miss not in MISS:
        raise ValueError(f"miss={miss!r} is not known; allowed: {', '.join(MISS)}")


def runtime_options(
    *,
    layers: Optional[Sequence[Union[str, os.PathLike[str]]]] = None,
    read_only: bool = False,
    miss: Miss = "first_choice",
    no_jit: bool = False,
    skip_pointer_checks: bool = False,
    skip_canary: bool = False,
    target: Optional[str] = None,
    driver: Optional[str] = None,
    trusted_keys: Optional[str] = None,
) -> CRuntimeOptions:
    """Options as trigen_runtime_create takes them."""
    _check_miss(miss)
    options = CRuntimeOptions(
        struct_size=_c.sizeof(CRuntimeOptions),
        read_only=read_only,
        miss=MISS[miss],
        no_jit=no_jit,
        skip_pointer_checks=skip_pointer_checks,
        skip_canary=skip_canary,
        target=target.encode() if target else None,
        driver=driver.encode() if driver else None,
        trusted_keys=None if trusted_keys is None else trusted_keys.encode(),
    )
    if layers is not None and len(layers) == 0:
        raise ValueError("layers is empty; allowed: cache files, ['none'] for no cache, or None for the default order")
    if layers is not None:
        array = (_c.c_char_p * len(layers))(*[os.fspath(layer).encode() for layer in layers])
        options.layers, options.layer_count = array, len(layers)
    return options


class Runtime:
    """Cache layers, compile policy and the plans made so far (trigen_runtime).

    layers: cache files in lookup order, None for the default order, ["none"] for no cache. miss: "first_choice", "generic" or "error". driver: a
    driver library or "emulated:sm_70"; None for the system's. target: e.g. "sm_70" for kernels of that target; None for the
    device's own. skip_canary: give kernels that no tune checked here out unseen. trusted_keys: whose signatures cache files
    of others need, as TRIGEN_TRUSTED_KEYS has them (the default); "" names no key, and no such file is read.
    """

    def __init__(
        self,
        *,
        layers: Optional[Sequence[Union[str, os.PathLike[str]]]] = None,
        read_only: bool = False,
        miss: Miss = "first_choice",
        no_jit: bool = False,
        skip_pointer_checks: bool = False,
        skip_canary: bool = False,
        target: Optional[str] = None,
        driver: Optional[str] = None,
        trusted_keys: Optional[str] = None,
    ) -> None:
        options = runtime_options(
            layers=layers,
            read_only=read_only,
            miss=miss,
            no_jit=no_jit,
            skip_pointer_checks=skip_pointer_checks,
            skip_canary=skip_canary,
            target=target,
            driver=driver,
            trusted_keys=trusted_keys,
        )
        self._library = load()
        self._said = [
            f"{name}={value!r}"
            for name, value, usual in (
                ("layers", layers and [os.fspath(layer) for layer in layers], None),
                ("read_only", read_only, False),
                ("miss", miss, "first_choice"),
                ("no_jit", no_jit, False),
                ("target", target, None),
                ("driver", driver, None),
                ("trusted_keys", trusted_keys, None),
            )
            if value != usual
        ]
        handle = _pointer()
        check(self._library.trigen_runtime_create(_c.byref(options), _c.byref(handle)))
        self.handle: Optional[int] = handle.value

    def __repr__(self) -> str:
        return f"<trigen.Runtime({', '.join(self._said)}){'' if self.handle else ', closed'}>"

    def plan(self, problem: Union[str, CProblem], device: int = CURRENT_DEVICE) -> Plan:
        """problem: canonical text or a CProblem. Slow the first time (a load, perhaps a compile), a lookup afterwards."""
        return Plan(self, parse_problem(problem) if isinstance(problem, str) else problem, device)

    def close(self) -> None:
        """Releases it; plans that it made stay valid."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._library.trigen_runtime_destroy(handle)


# ---- the runtime that operators share ------------------------------------------------------------------------------------

_shared: Optional[Runtime] = None
_shared_options: dict = {}


def configure(**options: Unpack[RuntimeOptions]) -> None:
    """Options (as of Runtime) for the runtime that the operators use. Before the first operator on a GPU."""
    global _shared_options
    allowed = inspect.signature(Runtime).parameters
    for name in options:
        if name not in allowed:
            raise TypeError(f"configure has no option {name!r}; allowed: {', '.join(allowed)}")
    _check_miss(options.get("miss", "first_choice"))
    with _lock:
        if _shared is not None:
            raise RuntimeError("trigen is in use already; call trigen.configure before the first operator on a GPU")
        _shared_options = dict(options)


def configured_options() -> RuntimeOptions:
    """The options given to configure."""
    return {**_shared_options}


def configured_layers() -> List[str]:
    """The cache files given to configure, as text."""
    return [os.fspath(layer) for layer in _shared_options.get("layers") or ()]


def shared_runtime() -> Runtime:
    """The operators' runtime. Pointer ownership is not asked of the driver at each run: tensors say their device."""
    global _shared
    if _shared is None:
        load()
        with _lock:
            if _shared is None:
                _shared = Runtime(**{"skip_pointer_checks": True, **_shared_options})
    return _shared


def close_shared_runtime() -> None:
    """The next operator makes a new runtime, which reads the caches again. Plans made so far stay valid."""
    global _shared
    with _lock:
        runtime, _shared = _shared, None
    if runtime is not None:
        runtime.close()


class Availability:
    """True or false, with the reason when false."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return not self.reason

    def __repr__(self) -> str:
        return f"trigen is not available: {self.reason}" if self.reason else "trigen is available"


def _driver_devices(name: str) -> Tuple[int, str]:
    """(device count, reason why it is 0)."""
    try:
        driver = _c.CDLL(name)
    except OSError:
        return 0, f"no NVIDIA driver here ({name} does not load); install it, or start the container with its GPUs"
    status = driver.cuInit(0)
    if status == 100:
        return 0, "the NVIDIA driver finds no device; in a container, check that it was started with its GPUs"
    if status != 0:
        return 0, f"the NVIDIA driver does not start (cuInit returned {status}); run nvidia-smi"
    count = _c.c_int()
    driver.cuDeviceGetCount(_c.byref(count))
    if count.value == 0:
        return 0, "the NVIDIA driver shows no device; check CUDA_VISIBLE_DEVICES"
    return count.value, ""


def is_available() -> Availability:
    """Whether kernels can run here: libtrigen.so, the driver and a device. `bool()` of the answer, `.reason` when it is no.
    Creates no context and compiles nothing."""
    try:
        load()
    except errors.LibraryMissing as error:
        return Availability(str(error))
    driver = os.environ.get("TRIGEN_DRIVER", "")
    if driver.startswith("emulated"):
        return Availability()
    return Availability(_driver_devices(driver or "libcuda.so.1")[1])
