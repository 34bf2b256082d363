"""libtrigen.so's XLA handler: its declarations against jaxlib's header, calls from the XLA of this jaxlib with the emulated device's kernels
behind them, and what a program for CUDA looks like."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

jax = pytest.importorskip("jax", "0.6", reason="[SKIP] jax 0.6 or later is not installed")

HERE = Path(__file__).resolve().parent
# (theirs, ours, {their field: ours}); the structures' own names differ.
STRUCTURES = (
    ("XLA_FFI_Extension_Base", "xla_extension", "struct_size type next"),
    (
        "XLA_FFI_Api_Version",
        "xla_version",
        "struct_size extension_start:extensions major_version:major minor_version:minor",
    ),
    ("XLA_FFI_Metadata", "xla_metadata", "struct_size api_version:version traits"),
    ("XLA_FFI_Metadata_Extension", "xla_metadata_extension", "extension_base:base metadata"),
    ("XLA_FFI_Buffer", "xla_buffer", "struct_size extension_start:extensions dtype data rank dims"),
    ("XLA_FFI_ByteSpan", "xla_text", "ptr:data len:size"),
    ("XLA_FFI_Scalar", "xla_scalar", "dtype value"),
    ("XLA_FFI_Args", "xla_values", "struct_size extension_start:extensions size types args:values"),
    ("XLA_FFI_Rets", "xla_values", "struct_size extension_start:extensions size types rets:values"),
    ("XLA_FFI_Attrs", "xla_attributes", "struct_size extension_start:extensions size types names attrs:values"),
    ("XLA_FFI_Error_Create_Args", "xla_error_create", "struct_size extension_start:extensions message errc:code"),
    ("XLA_FFI_Error_Destroy_Args", "xla_error_destroy", "struct_size extension_start:extensions error"),
    ("XLA_FFI_Stream_Get_Args", "xla_stream_get", "struct_size extension_start:extensions ctx:context stream"),
    (
        "XLA_FFI_DeviceOrdinal_Get_Args",
        "xla_ordinal_get",
        "struct_size extension_start:extensions ctx:context device_ordinal:ordinal",
    ),
    (
        "XLA_FFI_Api",
        "xla_api",
        "struct_size extension_start:extensions api_version:version internal_api:internal XLA_FFI_Error_Create:error_create "
        "XLA_FFI_Error_Destroy:error_destroy XLA_FFI_Stream_Get:stream_get XLA_FFI_DeviceOrdinal_Get:ordinal_get",
    ),
    (
        "XLA_FFI_CallFrame",
        "xla_frame",
        "struct_size extension_start:extensions api ctx:context stage args:arguments rets:results attrs:attributes",
    ),
)
VALUES = {
    "XLA_FFI_DataType_F16": "XLA_F16",
    "XLA_FFI_DataType_BF16": "XLA_BF16",
    "XLA_FFI_DataType_F32": "XLA_F32",
    "XLA_FFI_DataType_U8": "XLA_U8",
    "XLA_FFI_ArgType_BUFFER": "XLA_BUFFER",
    "XLA_FFI_RetType_BUFFER": "XLA_BUFFER",
    "XLA_FFI_AttrType_SCALAR": "XLA_ATTRIBUTE_SCALAR",
    "XLA_FFI_AttrType_STRING": "XLA_ATTRIBUTE_TEXT",
    "XLA_FFI_Extension_Metadata": "XLA_EXTENSION_METADATA",
    "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE": "XLA_TRAIT_COMMAND_BUFFER",
    "XLA_FFI_ExecutionStage_INITIALIZE": "XLA_INITIALIZE",
    "XLA_FFI_ExecutionStage_EXECUTE": "XLA_EXECUTE",
    "XLA_FFI_API_MAJOR": "XLA_ABI_MAJOR",
    "XLA_FFI_Error_Code_INVALID_ARGUMENT": "XLA_INVALID_ARGUMENT",
    "XLA_FFI_Error_Code_FAILED_PRECONDITION": "XLA_FAILED_PRECONDITION",
    "XLA_FFI_Error_Code_UNIMPLEMENTED": "XLA_UNIMPLEMENTED",
    "XLA_FFI_Error_Code_INTERNAL": "XLA_INTERNAL",
}


def compiler():
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("[SKIP] no C compiler")
    return found


def agrees(folder, ours: Path, include: str):
    lines = ['#include "xla/ffi/api/c_api.h"', f'#include "{ours}"']
    for theirs, mine, fields in STRUCTURES:
        for field in fields.split():
            one, _, two = field.partition(":")
            lines.append(
                f'_Static_assert(offsetof({theirs}, {one}) == offsetof({mine}, {two or one}), "{theirs}.{one}");'
            )
            lines.append(
                f'_Static_assert(sizeof((({theirs}*)0)->{one}) == sizeof((({mine}*)0)->{two or one}), "size of {theirs}.{one}");'
            )
    lines += [f'_Static_assert((int){theirs} == (int){mine}, "{theirs}");' for theirs, mine in VALUES.items()]
    lines.append('_Static_assert(XLA_FFI_API_MINOR >= XLA_ABI_MINOR, "the oldest version");')
    source = folder / "layout.c"
    source.write_text("\n".join(lines))
    return subprocess.run(
        [compiler(), "-std=c11", "-fsyntax-only", f"-I{include}", str(source)], capture_output=True, text=True
    )


def test_the_layouts_are_jaxlibs(repository, tmp_path):
    """TRIGEN_TEST_XLA_INCLUDE: another jaxlib's include folder."""
    include = os.environ.get("TRIGEN_TEST_XLA_INCLUDE", jax.ffi.include_dir())
    header = repository / "abi" / "xla_ffi.h"
    done = agrees(tmp_path, header, include)
    assert done.returncode == 0, done.stderr
    moved = tmp_path / "moved.h"
    moved.write_text(header.read_text().replace("  int dtype;\n  void* data;\n", "  void* data;\n  int dtype;\n"))
    assert "XLA_FFI_Buffer.dtype" in agrees(tmp_path, moved, include).stderr  # the test can fail


SCRIPT = """
import ctypes, sys, threading
import jax, jax.numpy as jnp, numpy as np
import trigen, trigen.jax as tj
from trigen.jax import functional, handler, matrices, plain, primitive
from jax.interpreters import mlir

shim, emulator, cache, target = sys.argv[1:5]
trigen.configure(driver="emulated:" + target, layers=[cache])
def behind(call):  # the calls of XLA's CPU
    library = ctypes.CDLL(shim)
    address = ctypes.cast(handler._library().trigen_xla_call, ctypes.c_void_p)
    assert library.shim_open(emulator.encode(), address) == 0
    capsule = jax.ffi.pycapsule(library.shim_call)
    for stages in ({"initialize": capsule, "execute": capsule}, capsule):
        try:
            jax.ffi.register_ffi_target(handler.NAME, stages, platform="cpu")
            return library
        except Exception as error:
            print("stages:", error)
primitive._lower_plain = mlir.lower_fun(primitive.plain_results, multiple_results=True)
matrices._lower_plain = mlir.lower_fun(matrices._plain, multiple_results=False)
trigen.library.load()
handler.workspace_size("forward,dtype=f16,B=1,T=8,D=8", 0)
library = behind(handler)
handler.register = lambda: None

def both(f, *given):
    "What the kernels and what lax operations give."
    mlir.register_lowering(primitive.product_p, primitive.lower_call, platform="cpu")
    mlir.register_lowering(matrices.gram_p, matrices.lower_call, platform="cpu")
    mlir.register_lowering(matrices.newton_schulz_p, matrices.lower_steps, platform="cpu")
    mlir.register_lowering(matrices.iterations_p, matrices.lower_iterations, platform="cpu")
    kernels = jax.jit(lambda *given: f(*given))(*given)
    jax.block_until_ready(kernels)
    jax.clear_caches()
    mlir.register_lowering(primitive.product_p, primitive._lower_elsewhere, platform="cpu")
    mlir.register_lowering(matrices.gram_p, matrices._lower_elsewhere, platform="cpu")
    mlir.register_lowering(matrices.newton_schulz_p, matrices.lower_steps_elsewhere, platform="cpu")
    mlir.register_lowering(matrices.iterations_p, matrices.lower_iterations_elsewhere, platform="cpu")
    return kernels, jax.jit(lambda *given: f(*given))(*given)

def normal(seed, *shape, dtype=jnp.float16):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)

"""

CALLS = (
    SCRIPT
    + """
def check(name, f, *given, tolerance=2e-2):
    before = library.shim_executed()
    kernels, want = both(f, *given)
    assert library.shim_executed() > before, "no kernel ran"
    for one, two in zip(jax.tree.leaves(kernels), jax.tree.leaves(want)):
        assert one.dtype == two.dtype and one.shape == two.shape
        one, two = np.asarray(one, np.float32), np.asarray(two, np.float32)
        assert np.isfinite(one).all() and np.abs(one - two).max() <= tolerance * max(1, np.abs(two).max()), (name, np.abs(one - two).max())
    print(name)

x, w, b, gate, residual = normal(0, 2, 24, 32), normal(1, 2, 24, 24, 3) / 8, normal(2, 2, 24), normal(3, 2, 24, 32), normal(4, 2, 24, 32)
def step_of(form):
    def mix(*a):
        return tj.triangular_conv1d(a[0], a[1], a[2], gate=a[3], residual=a[4], activation="gelu", form=form)
    def step(*given):
        y, back = jax.vjp(mix, *given)
        return y, back(jnp.cos(y))
    return step
check("step", step_of("dense"), x, w, b, gate, residual)
w_nan = jnp.where(jnp.tril(jnp.ones((24, 24)))[:, :, None] > 0, w[0].astype(jnp.float32), jnp.nan)
check("float32 weight, prefix", lambda x, w:
  jax.value_and_grad(lambda x, w: tj.triangular_conv1d(x, w).astype(jnp.float32).sum(), (0, 1))(x, w), x[:, :17], w_nan)
check("bdt, float32", lambda x, w: tj.triangular_conv1d(x, w, layout="bdt", fill="upper", math="simt"),
      normal(5, 2, 16, 24, dtype=jnp.float32), w[0, :, :, 0].astype(jnp.float32), tolerance=1e-5)
t, at = jnp.arange(24)[:, None], jnp.arange(7)
band = jnp.where(t + at < 6, jnp.nan, normal(17, 24, 7, dtype=jnp.float32))
check("toeplitz", step_of("toeplitz"), x, w[:, :, 0, 0], b, gate, residual)
check("band of float32, a prefix", lambda x, w:
  jax.value_and_grad(lambda x, w: tj.triangular_conv1d(x, w, form="band").astype(jnp.float32).sum(), (0, 1))(x, w), x[:, :17], band)
check("vmap of bands", jax.vmap(lambda x, w: tj.triangular_conv1d(x, w, form="band"), (None, 0)), x, w[:, :, :5, 0])
check("vmap of weights", jax.vmap(lambda x, w: tj.triangular_conv1d(x, w), (None, 0)), x[:, :, :16], w)
a = normal(6, 3, 24, 40)
c = tj.gram(normal(7, 3, 24, 8), gamma=1)
check("gram", lambda a, c: (tj.gram(a, c=c, alpha=-0.5, beta=3, gamma=2), tj.gram(a, fill="upper", dtype=jnp.float32),
      tj.gram(c, tj.gram(c, c=c, alpha=0.25), alpha=2)), a, c)
check("gram of one matrix, odd sizes, float32", lambda a: tj.gram(a, alpha=3, math="simt"), normal(8, 19, 21, dtype=jnp.float32), tolerance=1e-5)
check("gram, vmap", jax.vmap(lambda a, c: tj.gram(a, c=c, fill="lower"), (1, None)), a.transpose(1, 0, 2), c[0])
asked, ask = [], handler.workspace_size
handler.workspace_size = lambda problem, device: (asked.append((problem, threading.current_thread())), ask(problem, device))[1]
def check_plans(name, f, *given):
    del asked[:]
    check(name, f, *given)
    first = dict(reversed(asked))
    ahead = [problem for problem, thread in first.items() if thread is not threading.main_thread()]
    print("made ahead", len(ahead), "of", len(first), *sorted({problem.split(",")[0] for problem in first}))
matrices_ = [normal(9, 24, 40, dtype=jnp.float32), normal(10, 2, 40, 24, dtype=jnp.bfloat16), normal(11, 16, 16)]
check_plans("orthogonalize", lambda *given: tj.orthogonalize(given, form="gram"), *matrices_)
check_plans("orthogonalize in one launch", lambda *given: tj.orthogonalize(given, coefficients=tj.POLAR_EXPRESS), *matrices_)
tall = normal(12, 3, 2, 70, 33, dtype=jnp.bfloat16) * 8
check_plans("one launch of tall matrices, vmap", jax.vmap(lambda one: tj.orthogonalize(one * 1, steps=7), 1), tall)
check_plans("few with many columns, and those that vmap makes many of them", lambda a, b: (tj.orthogonalize(a), jax.vmap(tj.orthogonalize)(b)),
    normal(13, 2, 4100), normal(14, 8, 1, 4100))
handler.workspace_size = ask

vectors = [normal(12 + i, 2, 24, dtype=jnp.float32) for i in range(4)]
vectors[2] = jax.nn.sigmoid(vectors[2])
def scanned(x, bias, gate, residual, *vectors):
    y, back = jax.vjp(lambda *a: tj.scan(a[0], *a[4:], a[1], gate=a[2], residual=a[3], activation="silu"), x, bias, gate, residual, *vectors)
    return y, back(jnp.cos(y))
check("scan", scanned, x, b, gate, residual, *vectors)
check("scan of a prefix, bdt", lambda x, v: jax.value_and_grad(lambda x, v: tj.scan(x, v, decay=0.9, layout="bdt").sum(), (0, 1))(x, v),
      normal(16, 2, 16, 21, dtype=jnp.float32), vectors[0], tolerance=1e-5)
by_target = jax.grad(lambda v, x: tj.scan(x, target=v, decay=0.5).astype(jnp.float32).sum())
check("scan, vmap of vectors", jax.vmap(by_target, (0, None)), vectors[1], x)
print("initialized", library.shim_initialized() > 0, "executed", library.shim_executed())
"""
)


@pytest.fixture(scope="module")
def calls(repository, tmp_path_factory, library):
    import emulated

    emulator = emulated.emulator_file(library.load()._name)
    if emulator is None:
        pytest.skip("[SKIP] no libtrigen_emulator.so beside libtrigen.so")
    folder = tmp_path_factory.mktemp("xla")
    shim = folder / "shim.so"
    subprocess.run(
        [
            compiler(),
            "-std=c11",
            "-shared",
            "-fPIC",
            f"-I{repository}",
            "-o",
            str(shim),
            str(HERE / "xla_shim.c"),
            "-ldl",
        ],
        check=True,
    )
    cache = os.environ.get("TRIGEN_TEST_CACHE", str(folder / "cache.db"))

    def run(code):
        environment = {
            **os.environ,
            "PYTHONPATH": str(repository / "python"),
            "JAX_PLATFORMS": "cpu",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", code, str(shim), str(emulator), cache, emulated.TARGET],
            capture_output=True,
            text=True,
            env=environment,
        )
        return done

    return run


def test_kernels_behind_the_xla_of_this_jaxlib(calls):
    """Values, all five gradients, prefixes and batched weights, jitted, with the numbers of lax operations."""
    done = calls(CALLS)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines()[-22:-1] == [
        "step",
        "float32 weight, prefix",
        "bdt, float32",
        "toeplitz",
        "band of float32, a prefix",
        "vmap of bands",
        "vmap of weights",
        "gram",
        "gram of one matrix, odd sizes, float32",
        "gram, vmap",
        "orthogonalize",
        "made ahead 5 of 5 gram",
        "orthogonalize in one launch",
        "made ahead 2 of 2 newton_schulz",
        "one launch of tall matrices, vmap",
        "made ahead 0 of 1 newton_schulz",
        "few with many columns, and those that vmap makes many of them",
        "made ahead 3 of 4 gram newton_schulz",
        "scan",
        "scan of a prefix, bdt",
        "scan, vmap of vectors",
    ], done.stdout


REFUSED = (
    SCRIPT
    + """
def call(problem, *given, results, attribute="problem", **factors):
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    try:
        jax.block_until_ready(jax.jit(lambda *given: jax.ffi.ffi_call("trigen_call", shapes)(*given, **{attribute: problem}, **factors))(*given))
        print("ran")
    except Exception as error:
        print(str(error).splitlines()[0])

x, w = jnp.ones((1, 8, 8), jnp.float16), jnp.ones((8, 8), jnp.float16)
y, none = ((1, 8, 8), jnp.float16), ((0,), jnp.uint8)
forward = "forward,dtype=f16,B=1,T=8,D=8"
call(forward, x, w, results=[y, none])
call(forward, x, w, results=[y, none], attribute="text")
call(forward, x, results=[y, none])
call(forward, x, w, results=[y])
call(forward, x, w.astype(jnp.bfloat16), results=[y, none])
call(forward, x, w[:4], results=[y, none])
call(forward + ",w=toeplitz", x, w, results=[y, none])
call(forward + ",w=band,width=3", x, w[:, :3], results=[y, none])
call("forward,dtype=f61,B=1,T=8,D=8", x, w, results=[y, none])
call("decode,dtype=f16,B=1,T=8,D=8", x, w, results=[y, none])
call("gram,dtype=f16,B=2,T=8,D=8", x, x, results=[y, none])
call("gram,dtype=f16,B=1,T=8,D=8", x, x, results=[y, none], alpha="1")
call("gram,dtype=f16,B=1,T=8,D=8", x, x, results=[y, none], alpha=np.float32(0))
scan = "scan,dtype=f16,B=1,T=8,D=8,wdtype=f32"
vectors = jnp.ones((1, 4, 8))
steps, z = "newton_schulz,dtype=f16,B=1,T=8,D=8,K=1", jnp.ones(4)
call(steps, x, z, results=[y, none])
call(steps, x, z[:3], results=[y, none])
call(steps, x, z.astype(jnp.float16), results=[y, none])
call(steps, x, results=[y, none])
call(scan, x, vectors, results=[y, none])
call(scan, x, w, results=[y, none])
call(scan.replace("scan", "scan_grad_weight"), x, x, results=[((1, 4, 8), jnp.float32), none])
split = "grad_weight,dtype=f16,B=64,T=8,D=64,epilogue=zero_outside"
bytes = handler.workspace_size(split, 0)
print("workspace", bytes)
library.shim_api_size(64)
call(forward, x, w, results=[y, none])
"""
)


TUNED = (
    SCRIPT
    + """
import os, pathlib
traced = []
mlir.register_lowering(primitive.product_p, lambda *given, **named: (traced.append(1), primitive.lower_call(*given, **named))[1], platform="cpu")
step = jax.jit(lambda x, w: tj.triangular_conv1d(x, w))
x, w = jnp.ones((1, 8, 16), jnp.float16), jnp.ones((8, 8), jnp.float16)
with trigen.record() as seen:
    before = step(x, w)
step(x, w)
program = pathlib.Path(cache).parent / "trigen-that-is-done"
program.write_text("#!/bin/sh\\n")
program.chmod(0o755)
os.environ["TRIGEN_PROGRAM"] = str(program)
seen.tune()
assert (step(x, w) == before).all()
print("lowered", len(traced))
"""
)


THREADS = (
    SCRIPT
    + """
import time
from trigen import errors, log

lines, at_a_line = [], lambda text: None
def line(level, text, user):
    if text.startswith(b"plan "):
        lines.append(text)
        at_a_line(text)
callback = log.FUNCTION(line)  # is called while the plan is being made, in the thread that makes it
trigen.library.load().trigen_set_log(log.INFO, callback, None)

def asked(problems, ask=lambda problem: handler.workspace_size(problem, 0)):
    "What each thread got, one a problem."
    got = [None] * len(problems)
    def thread(index):
        try:
            got[index] = ask(problems[index])
        except errors.TrigenError as error:
            got[index] = f"{type(error).__name__}: {error}"
    threads = [threading.Thread(target=thread, args=(index,)) for index in range(len(problems))]
    for one in threads:
        one.start()
    return threads, got

def problem(features):
    return f"scan,dtype=f32,B=1,T=8,D={features}"

meeting = threading.Barrier(2, timeout=60)
at_a_line = lambda text: meeting.wait()
threads, got = asked([problem(8), problem(16)])
for one in threads:
    one.join()
print("side by side", not meeting.broken and all(isinstance(size, int) for size in got), len(lines))

release = threading.Event()
at_a_line = lambda text: release.wait(60)
del lines[:]
threads, got = asked([problem(24)] * 8)
time.sleep(0.5)
print("others wait", sum(one.is_alive() for one in threads), handler.workspace_size(problem(8), 0) == handler.workspace_size(problem(16), 0))
release.set()
for one in threads:
    one.join()
print("one plan", len(set(got)) == 1 and isinstance(got[0], int), len(lines))

at_a_line = lambda text: release.wait(60)
release.clear()
del lines[:]
threads, got = asked([problem(32)])
while not lines:
    time.sleep(0.01)
forgetting = threading.Thread(target=tj.forget_plans)
forgetting.start()
forgetting.join(0.5)
print("a runtime in use stays", forgetting.is_alive() and threads[0].is_alive())
release.set()
threads[0].join()
forgetting.join()
del lines[:]
handler.workspace_size(problem(32), 0)
print("forgotten", len(lines))

trigen.configure(driver="emulated:" + target, layers=["none"], no_jit=True)
handler.forget_plans()
threads, got = asked([problem(40)] * 6)
for one in threads:
    one.join()
print("each has its error", len(set(got)) == 1 and got[0])
trigen.configure(driver="emulated:" + target, layers=[cache])
handler.forget_plans()
print("then made", isinstance(handler.workspace_size(problem(40), 0), int))
"""
)


def test_plans_are_made_side_by_side(calls):
    """Two at once, each problem once, no runtime taken from under them; a failure is told to all who asked, and hinders nobody later."""
    done = calls(THREADS)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if not line.startswith("stages:")]
    assert lines[:5] + lines[6:] == [
        "side by side True 2",
        "others wait 8 True",
        "one plan True 1",
        "a runtime in use stays True",
        "forgotten 1",
        "then made True",
    ], done.stdout
    assert re.match(r"each has its error (CacheMiss|Unsupported): .*scan,dtype=f32,B=1,H=1,T=8,D=40", lines[5]), lines[
        5
    ]


def test_after_tuning_programs_are_compiled_with_the_kernels_of_the_cache(calls):
    """Without a word of the caller's: seen.tune() forgets the plans and JAX's programs, whose workspaces were those of the kernels before."""
    done = calls(TUNED)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "lowered 2"


def test_what_the_handler_refuses(calls):
    done = calls(REFUSED)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if not line.startswith("stages:")]
    for line, wanted in zip(
        lines,
        (
            r"ran$",
            r".*trigen_call has no attribute `problem`; allowed: the text of a problem",
            r".*has 1 arguments and 2 results; allowed: 2 and 2 buffers",
            r".*has 2 arguments and 1 results; allowed: 2 and 2 buffers",
            r".*: w has another size or dtype than the problem",
            r".*: w has another size or dtype",
            r".*: w has another size or dtype",
            r"ran$",
            r".*dtype='f61' is unknown",
            r".*an XLA call has the op decode or grad_epilogue, .*; allowed: forward, grad_input and grad_weight",
            r".*or gram with B or layout; allowed: .* gram with B=1 and layout=btd, scan, scan_grad_input, scan_grad_weight and newton_schulz",
            r".*: alpha, beta or gamma is not an f32 scalar",
            r".*alpha is 0.0+, which leaves nothing to compute",
            r"ran$",
            r".*K=1.*: w has another size or dtype than the problem",
            r".*K=1.*: w has another size or dtype than the problem",
            r".*has 1 arguments and 2 results; allowed: 2 and 2 buffers",
            r"ran$",
            r".*: w has another size or dtype than the problem",
            r".*has 2 arguments and 2 results; allowed: 3 and 2 buffers",
            r"workspace \d+",
            r".*this XLA does not say which device a call runs on; install jaxlib 0.6 or later",
        ),
    ):
        assert re.match(wanted, line), (wanted, line, done.stdout)
    assert len(lines) == 22


LOWERED = """
import sys
import jax, jax.numpy as jnp, trigen, trigen.jax as tj
trigen.configure(driver="emulated:" + sys.argv[4], layers=[sys.argv[3]])
x, w = jnp.ones((2, 24, 32), jnp.float16), jnp.ones((24, 24, 3))
f = jax.jit(jax.grad(lambda x, w: tj.triangular_conv1d(x, w).astype(jnp.float32).sum(), (0, 1)))
text = f.trace(x, w).lower(lowering_platforms=("cuda",)).as_text()
text += jax.jit(lambda x: tj.orthogonalize(x, steps=2)).trace(x.mT).lower(lowering_platforms=("cuda",)).as_text()
print("\\n".join(line.strip() for line in text.splitlines() if "@trigen_call" in line))
print(f.trace(x, w).lower(lowering_platforms=("cpu",)).as_text().count("trigen_call"))
"""


def test_a_program_for_cuda_calls_the_handler_with_the_problem_as_text(calls):
    """Compiled here for a GPU: no kernel is looked up for the CPU's program."""
    done = calls(LOWERED)
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, cpu = done.stdout.splitlines()
    assert len(lines) == 3 and cpu == "0", done.stdout
    sizes = "dtype=f16,B=2,H=1,T=24,D=32,K=3,pad=1,wdtype=f32"
    assert (
        f'problem = "grad_input,{sizes}"' in lines[0]
        and f'problem = "grad_weight,{sizes},epilogue=zero_outside"' in lines[1]
    )
    assert 'problem = "newton_schulz,dtype=f16,B=2,H=1,T=24,D=32,K=2,pad=0,layout=bdt"' in lines[2]
    assert "(tensor<2x32x24xf16>, tensor<7xf32>)" in lines[2]
    assert all(re.search(r"tensor<\d+xui8>\)", line) for line in lines)  # the workspace, known when the program is made
