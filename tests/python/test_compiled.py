"""libtrigen_torch.so: the operators in C++ over LibTorch's stable interface, without this package: numbers on a CPU and on the emulated device, the
texts of errors, a model that AOTInductor compiled run from C++, and this package over them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", "2.10", reason="[SKIP] PyTorch 2.10 or later is not installed")

import emulated as emulated_module
import numpy as np
import trigen.torch as tt
from trigen.torch import ops

TORCH = Path(torch.__path__[0])


@pytest.fixture(scope="session")
def built(repository, library):
    """The folder with libtrigen_torch.so and the program `serve`, built against this PyTorch."""
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which("c++") is None:
        pytest.skip("[SKIP] no CMake or no C++ compiler")
    build = Path(library.load()._name).resolve().parent
    folder = build / "libtorch"
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []
    for command in (
        [
            cmake,
            "-S",
            repository / "libtorch",
            "-B",
            folder,
            f"-DTRIGEN_BUILD={build}",
            f"-DTRIGEN_TORCH={TORCH}",
            "-DTRIGEN_TORCH_TESTS=ON",
            *launcher,
        ],
        [cmake, "--build", folder, "-j2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def run(source, *arguments, **environment):
    """Python without this package's trigen.torch, unless the source imports it."""
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


CASES = """
import itertools, sys
import numpy as np
import torch
import reference
torch.ops.load_library(sys.argv[1])
assert "trigen.torch" not in sys.modules
ops, kernels = torch.ops.trigen, sys.argv[2] == "kernels"
generator = torch.Generator().manual_seed(0)
random = lambda *size: torch.randn(*size, generator=generator)
near = lambda got, want, tolerance: np.testing.assert_allclose(got.double().numpy(), want, rtol=tolerance, atol=tolerance)
cases = [  # B, H, n, T, D, K, pad, layout, fill, diag, dtype, weight's dtype
    (2, 1, 9, 9, 6, 1, 0, "btd", "lower", 0, torch.float32, torch.float32),
    (2, 2, 8, 8, 8, 3, 1, "btd", "upper", 1, torch.float16, torch.float16),
    (1, 2, 7, 10, 5, 2, 0, "bdt", "lower", -1, torch.bfloat16, torch.float32),
    (2, 1, 5, 8, 3, 5, 4, "btd", "lower", 2, torch.float32, torch.float32),
    (2, 1, 5, 5, 4, 1, 0, "btd", "lower", -5, torch.float32, torch.float32),
    (1, 1, 3, 3, 4, 1, 0, "bdt", "lower", 0, torch.float64, torch.float64),
]
for B, H, n, T, D, K, pad, layout, fill, diag, dtype, wdtype in cases:
    x, dy, gate, residual = (random(*((B, n, H * D) if layout == "btd" else (B, H * D, n))).to(dtype) for _ in range(4))
    weight = (random(H, T, T, K) / (n * K) ** 0.5).to(wdtype)
    bias = random(H, T).to(wdtype)
    options = dict(pad=pad, layout=layout, fill=fill, diag=diag)
    rounded, tolerance = weight.to(dtype).double(), {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[dtype]
    t, s = np.indices((T, T))
    poisoned = weight.clone()
    poisoned[:, torch.from_numpy(~reference.in_triangle(t, s, fill, diag))] = float("nan")
    sliced = torch.cat([x, x], 0)[::2][:B] if B == 1 else x.repeat(1, 1, 2)[..., : x.shape[2]]  # read where it lies, or copied
    sliced.copy_(x)
    pre = reference.forward(x.double(), rounded[:, :n, :n], bias.double()[:, :n], **options)
    near(ops.forward(x, poisoned, bias, None, None, pad, layout, fill, diag), pre, tolerance)
    near(ops.forward(sliced, poisoned, bias, None, None, pad, layout, fill, diag), pre, tolerance)
    silu = pre / (1 + np.exp(-pre))
    y, kept = ops.forward_pre(x, poisoned, bias, gate, residual, pad, layout, fill, diag, "silu")
    near(y, silu * gate.double().numpy() + residual.double().numpy(), 3 * tolerance)
    near(kept, pre, tolerance)
    y, kept = ops.forward_pre(x, poisoned, bias, None, residual, pad, layout, fill, diag)
    near(y, pre + residual.double().numpy(), 3 * tolerance)
    assert kept.data_ptr() != y.data_ptr() and y.is_contiguous() and y.dtype == dtype
    near(ops.grad_input(dy, poisoned, residual, pad, layout, fill, diag),
         reference.grad_input(dy.double(), rounded[:, :n, :n], **options) + residual.double().numpy(), 3 * tolerance)
    dw, db = ops.grad_weight(dy, x, weight.shape, wdtype, True, pad, layout, fill, diag)
    want_w, want_b = reference.grad_weight(dy.double(), x.double(), H, K, **options)
    near(dw[:, :n, :n], want_w, 8 * tolerance)
    near(db[:, :n], want_b, 8 * tolerance)
    assert dw.shape == weight.shape and dw.dtype == wdtype and db.shape == bias.shape
    assert dw[:, n:].count_nonzero() == dw[:, :, n:].count_nonzero() == db[:, n:].count_nonzero() == 0
    assert dw[:, torch.from_numpy(~reference.in_triangle(t, s, fill, diag))].count_nonzero() == 0
    assert ops.grad_weight(dy, x, weight.shape, wdtype, False, pad, layout, fill, diag)[1].numel() == 0
forms = [  # form, B, H, n, T, D, width, layout, dtype, weight's dtype
    ("toeplitz", 2, 1, 9, 9, 6, 9, "btd", torch.float32, torch.float32),
    ("toeplitz", 2, 2, 7, 10, 5, 7, "bdt", torch.bfloat16, torch.float32),
    ("toeplitz", 1, 1, 3, 4, 4, 3, "btd", torch.float64, torch.float64),
    ("band", 2, 2, 8, 8, 8, 3, "btd", torch.float16, torch.float16),
    ("band", 2, 1, 5, 8, 3, 5, "bdt", torch.float32, torch.float32),
    ("band", 1, 2, 4, 6, 4, 1, "btd", torch.float64, torch.float64),
]
for form, B, H, n, T, D, width, layout, dtype, wdtype in forms:
    x, dy = (random(*((B, n, H * D) if layout == "btd" else (B, H * D, n))).to(dtype) for _ in range(2))
    weight = (random(H, T, *((width,) if form == "band" else ())) / n ** 0.5).to(wdtype)
    bias, options = random(H, T).to(wdtype), dict(layout=layout)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[dtype]
    full, inside = np.zeros((H, n, n, 1)), [(t, s) for t in range(n) for s in range(max(0, t - width + 1), t + 1)]
    at = (lambda t, s: (t - s,)) if form == "toeplitz" else (lambda t, s: (t, s - t + width - 1))
    poisoned = weight.clone()
    for t, s in inside:
        full[:, t, s, 0] = weight.to(dtype).double()[(slice(None), *at(t, s))]
    if form == "band":
        poisoned[:, torch.arange(T)[:, None] + torch.arange(width) < width - 1] = float("nan")
    given = "lower", 0, "none", "default", form
    want = reference.forward(x.double(), full, bias.double()[:, :n], **options)
    near(ops.forward(x, poisoned, bias, None, None, 0, layout, *given), want, tolerance)
    if H == 1:  # the axis of one head is left out
        near(ops.forward(x, poisoned[0], bias[0], None, None, 0, layout, *given), want, tolerance)
        near(ops.forward(x, poisoned, bias[0], None, None, 0, layout, *given), want, tolerance)
    wide = torch.cat([poisoned, poisoned], -1)[..., : poisoned.shape[-1]]  # rows that lie apart
    near(ops.grad_input(dy, wide, None, 0, layout, "lower", 0, "default", form), reference.grad_input(dy.double(), full, **options), 3 * tolerance)
    dw, db = ops.grad_weight(dy, x, weight.shape, wdtype, True, 0, layout, "lower", 0, "default", form)
    dense, want_b = reference.grad_weight(dy.double(), x.double(), H, 1, **options)
    want = np.zeros(tuple(weight.shape))
    for t, s in inside:
        want[(slice(None), *at(t, s))] += dense[:, t, s, 0]
    near(dw, want, 8 * tolerance)
    near(db[:, :n], want_b, 8 * tolerance)
x, w = torch.ones(2, 4, 6), torch.ones(4, 4)
of = lambda size, form, *rest: ops.forward(x, torch.ones(size), None, None, None, 0, "btd", *(rest or ("lower", 0)), "none", "default", form)
for call in (lambda: of((4, 4), "ring"), lambda: of((4, 4, 1), "toeplitz"), lambda: of((4, 5), "band"), lambda: of(4, "toeplitz", "upper", 0),
             lambda: of((6, 5), "band"),
             lambda: ops.forward(x, w, None, None, None, 1), lambda: ops.forward(x, w, None, None, None, 0, "dtb"), lambda: ops.forward(x, torch.ones(3, 3)),
             lambda: ops.forward(x, w, torch.ones(5)), lambda: ops.forward(x, w.half()), lambda: ops.forward(x, w, None, x[:1]),
             lambda: ops.grad_input(x, torch.ones(4, 3))):
    try:
        call()
        print("passed")
    except RuntimeError as error:
        print("refused", str(error).splitlines()[0])
"""


def refusals():
    """The texts of the same calls from Python's operators."""
    x, w = torch.ones(2, 4, 6), torch.ones(4, 4)

    def of(size, form, *rest):
        where = rest or ("lower", 0)
        return ops._forward(x, torch.ones(size), None, None, None, 0, "btd", *where, "none", "default", form)

    for call in (
        lambda: of((4, 4), "ring"),
        lambda: of((4, 4, 1), "toeplitz"),
        lambda: of((4, 5), "band"),
        lambda: of(4, "toeplitz", "upper", 0),
        lambda: of((6, 5), "band"),
        lambda: ops._forward(x, w, None, None, None, 1),
        lambda: ops._forward(x, w, None, None, None, 0, "dtb"),
        lambda: ops._forward(x, torch.ones(3, 3)),
        lambda: ops._forward(x, w, torch.ones(5)),
        lambda: ops._forward(x, w.half()),
        lambda: ops._forward(x, w, None, x[:1]),
        lambda: ops._grad_input(x, torch.ones(4, 3)),
    ):
        with pytest.raises((ValueError, TypeError)) as error:
            call()
        yield str(error.value).replace(", or call under torch.autocast", "")


def test_numbers_and_texts_on_a_cpu(built):
    said = [
        line[8:]
        for line in run(CASES, built / "libtrigen_torch.so", "plain").splitlines()
        if line.startswith("refused")
    ]
    assert said == list(refusals())


def test_kernels_on_the_emulated_device(built, emulated_device, tmp_path):
    """The code that a GPU's tensors take, plans and argument blocks included, under CPU tensors."""
    cache = os.environ.get("TRIGEN_TEST_CACHE", str(tmp_path / "cache.db"))
    said = run(
        CASES,
        built / "libtrigen_torch_emulated.so",
        "kernels",
        TRIGEN_DRIVER=f"emulated:{emulated_module.TARGET}",
        TRIGEN_CACHE=cache,
        TRIGEN_LOG="info",
    )
    plans = set(re.findall(r"problem=(\w+),", said))
    assert (
        plans == {"forward", "grad_input", "grad_weight"}
        and all(part in said for part in ("diag=1", "w=toeplitz", "w=band,width=3"))
        and "epilogue=bias+silu+pre+gate+residual" in said
    )


def test_a_compiled_model_runs_from_cpp(built, emulated_device, tmp_path):
    """torch.export and AOTInductor here; then a process without Python, on the CPU's operators and on the emulated device's kernels."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.out = tt.TriangularConv1d(8, 3, activation="gelu"), torch.nn.Linear(16, 4)

        def forward(self, x):
            return self.out(self.mix(x))

    net, x = Net().eval(), torch.randn(2, 8, 16)
    with torch.no_grad():
        want = net(x).numpy()
        exported = torch.export.export(net, (x,))
    package = tmp_path / "net.pt2"
    torch._inductor.aoti_compile_and_package(
        exported, package_path=str(package), inductor_configs={"aot_inductor.compile_wrapper_opt_level": "O0"}
    )
    program = built / "serve"
    assert "python" not in subprocess.run(["ldd", program], capture_output=True, text=True).stdout.replace(
        str(TORCH), ""
    )

    def serve(library, **environment):
        return subprocess.run(
            [program, library, package, "cpu", "float32", "2x8x16"],
            input=x.numpy().tobytes(),
            capture_output=True,
            env={**os.environ, **environment},
        )

    on_cpu = serve(built / "libtrigen_torch.so")
    assert on_cpu.returncode == 0, on_cpu.stderr.decode()
    np.testing.assert_allclose(np.frombuffer(on_cpu.stdout, np.float32).reshape(want.shape), want, rtol=1e-5, atol=1e-5)
    kernels = serve(
        built / "libtrigen_torch_emulated.so",
        TRIGEN_DRIVER=f"emulated:{emulated_module.TARGET}",
        TRIGEN_LOG="info",
        TRIGEN_CACHE=os.environ.get("TRIGEN_TEST_CACHE", str(tmp_path / "cache.db")),
    )
    assert kernels.returncode == 0, kernels.stderr.decode()
    assert b"plan problem=forward,dtype=f32,B=2,H=1,T=8,D=16,K=3" in kernels.stderr
    np.testing.assert_allclose(
        np.frombuffer(kernels.stdout, np.float32).reshape(want.shape), want, rtol=1e-5, atol=1e-5
    )
    without = serve("libm.so.6")  # the operators are the library's, nobody else's
    assert without.returncode == 1 and b"Could not find schema for trigen::forward" in without.stderr


def test_the_schemas_are_pythons(built):
    names = [schema[: schema.index("(")] for schema in ops.SCHEMAS]
    said = run(
        "import sys, torch; torch.ops.load_library(sys.argv[1]); print(*(getattr(torch.ops.trigen, name).default._schema for name in sys.argv[2:]), sep='\\n')",
        built / "libtrigen_torch.so",
        *names,
    )
    assert said.splitlines() == [str(getattr(torch.ops.trigen, name).default._schema) for name in names]


DERIVATIVES = """
import sys
import torch
torch.ops.load_library(sys.argv[1])
import trigen.torch as tt
from trigen.torch import ops
generator = torch.Generator().manual_seed(0)
random = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()
inputs = random(2, 3, 6), random(2, 4, 4, 2), random(2, 4), random(2, 3, 6), random(2, 3, 6)
call = lambda *tensors: ops._forward(*tensors, 1, "btd", "lower", 0, "silu")
assert torch.autograd.gradcheck(call, inputs, fast_mode=True) and torch.autograd.gradgradcheck(call, inputs, fast_mode=True)
single = [tensor.detach().float().requires_grad_() for tensor in inputs]
torch.library.opcheck(ops._forward, (*single, 1, "btd", "lower", 0, "gelu"))
torch.library.opcheck(ops._grad_weight, (single[0], single[0], (2, 4, 4, 2), torch.float32, True, 1))
module = tt.TriangularConv1d(8, 3, activation="gelu")
x = torch.randn(2, 8, 16)
assert torch.allclose(torch.compile(module, fullgraph=True, backend="aot_eager")(x), module(x), rtol=1e-5, atol=1e-5)
"""


def test_pythons_derivatives_over_these_operators(built):
    """Loaded before this package."""
    run(DERIVATIVES, built / "libtrigen_torch.so")


def test_loaded_after_python(built):
    """The operators that are there stay; the process goes on."""
    said = run(
        "import sys, torch, trigen.torch as tt; torch.ops.load_library(sys.argv[1]); tt.TriangularConv1d(8)(torch.ones(1, 8, 4)); print('ran')",
        built / "libtrigen_torch.so",
    )
    assert "this process has the operators torch.ops.trigen already" in said and said.splitlines()[-1].startswith(
        ("ran", "trigen:")
    )


def test_another_folder_is_refused(repository, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("[SKIP] no CMake")
    done = subprocess.run(
        [
            "cmake",
            "-S",
            repository / "libtorch",
            "-B",
            tmp_path,
            f"-DTRIGEN_TORCH={tmp_path}",
            f"-DTRIGEN_BUILD={tmp_path}",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and "holds no PyTorch of 2.10 or later" in done.stderr.replace("\n", " ").replace(
        "  ", " "
    )
