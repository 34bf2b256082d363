"""What a first call does: availability and its reasons, the first-choice and the generic kernel at once, warnings once, TRIGEN_NO_JIT, cache order."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
from emulated import TARGET
from test_cuda_path import device, make  # noqa: F401
from trigen import library as library_module
from trigen.torch import cuda, launch


def driver(folder, init: int, count: int):
    """A libcuda.so that answers cuInit and cuDeviceGetCount so."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("[SKIP] no C compiler to make a driver library with")
    source, file = folder / "driver.c", folder / f"libcuda_{init}_{count}.so"
    source.write_text(
        f"int cuInit(unsigned flags) {{ return {init}; }}\nint cuDeviceGetCount(int* count) {{ *count = {count}; return 0; }}\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", file, source], check=True)
    return str(file)


def test_availability_says_why_not(monkeypatch, library, tmp_path):
    for chosen, reason in (
        (str(tmp_path / "none.so"), "no NVIDIA driver here"),
        (driver(tmp_path, 100, 0), "the NVIDIA driver finds no device"),
        (driver(tmp_path, 999, 0), r"cuInit returned 999\); run nvidia-smi"),
        (driver(tmp_path, 0, 0), "check CUDA_VISIBLE_DEVICES"),
    ):
        monkeypatch.setenv("TRIGEN_DRIVER", chosen)
        answer = trigen.is_available()
        assert not answer and answer.reason in repr(answer)
        assert re.search(reason, answer.reason), answer.reason
    for chosen in (driver(tmp_path, 0, 2), "emulated:sm_80"):
        monkeypatch.setenv("TRIGEN_DRIVER", chosen)
        answer = trigen.is_available()
        assert answer and repr(answer) == "trigen is available" and answer.reason == ""


def test_an_untuned_problem_is_said_once_not_per_call(device, library, monkeypatch, tmp_path):  # noqa: F811
    runtime = library.Runtime(driver=f"emulated:{TARGET}", layers=[tmp_path / "cache.db"])
    monkeypatch.setattr(library, "_shared", runtime)
    monkeypatch.setattr(trigen.errors, "said", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for tokens in (8, 16):
            x, _, _, weight, bias = make(n=tokens, D=16)
            for _ in range(2):
                cuda.forward(*map(device.put, (x, weight, bias)))
    said = [str(one.message) for one in caught if issubclass(one.category, trigen.TrigenWarning)]
    assert (
        len(said) == 1
        and "the cache has no tuned kernel for forward,dtype=f16,B=2,H=1,T=8,D=16,K=1,pad=0,epilogue=bias: the model's choice runs, which was not measured"
        in said[0]
    )
    infos = launch.plans()
    assert [(info.provenance, info.match, info.binary_from) for info in infos] == [
        ("predicted", "none", "compiled")
    ] * 2
    runtime.close()


SECOND = """
import json, warnings, sys
sys.path.insert(0, {tests!r})
import test_cuda_path, emulated, torch, trigen
from trigen import library
from trigen.torch import cuda, launch
device = emulated.EmulatedDevice(emulated.emulator_file(library.load()._name))
launch.empty_like, launch.empty = lambda tensor: device.empty(tensor.shape, tensor.dtype), device.empty
launch.raw_stream, launch.is_capturing = lambda index: 0, lambda: False
library._shared = library.Runtime(driver="emulated:{target}", layers=[{cache!r}])
x, _, _, weight, bias = test_cuda_path.make(n=8, D=16)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for rows in (2, 1, 2):
        cuda.forward(*map(device.put, (x[:rows], weight, bias)))
print(json.dumps([[str(one.message) for one in caught], [info.binary_from for info in launch.plans()]]))
"""


def test_every_process_that_runs_untuned_says_so(emulated, repository, tmp_path):  # noqa: F811
    """The first one stores the kernel of the model's choice; the next ones find it there, as untuned as before."""
    code = SECOND.format(tests=str(repository / "tests/python"), target=TARGET, cache=str(tmp_path / "cache.db"))
    for origin in ("compiled", "cache"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(repository / "python")},
        )
        assert done.returncode == 0, done.stderr
        said, origins = json.loads(done.stdout)
        assert (
            origins[0] == origin
            and len(said) == 1
            and "the cache has no tuned kernel for forward,dtype=f16,B=2" in said[0]
        ), (said, origins)


INFO = library_module.PlanInfo(
    "forward,dtype=bf16,B=2,T=8",
    "V100",
    "sm_70",
    "simt:tile=64x64x16",
    "measured",
    "exact",
    "",
    "",
    "cache",
    "",
    "",
    "",
    1.0,
    2.0,
    0,
    False,
    0,
)


def test_what_a_user_of_a_plan_is_told():
    """Near and slow choices, each by a cause of its own; nothing about a tuned kernel that is where it was tuned."""

    def told(**change):
        return dict(launch.notes(INFO._replace(**change)))

    tensor_cores = dict(candidate="mma_sm80:tile=64x64x32", target="sm_80")
    assert not told(**tensor_cores)
    near = told(match="near", difference="GPU V100-PCIE, not V100", **tensor_cores)
    assert list(near) == ["near"] and "measured elsewhere than on this V100: GPU V100-PCIE, not V100" in near["near"]
    assert list(told(provenance="predicted", match="near", **tensor_cores)) == ["untuned"]
    reason = "bf16 runs without tensor cores on sm_70"
    assert told(slow=reason) == {reason: f"{reason} (forward,dtype=bf16,B=2,T=8; this is said once)"} and not told()


def test_bfloat16_without_tensor_cores_is_said(device, monkeypatch):  # noqa: F811
    monkeypatch.setattr(trigen.errors, "said", {"untuned"})
    x, _, _, weight, bias = make(n=128, D=64, dtype=torch.bfloat16)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows in (2, 1):
            cuda.forward(*map(device.put, (x[:rows], weight, bias)))
    said = [str(one.message) for one in caught if issubclass(one.category, trigen.TrigenWarning)]
    assert len(said) == (TARGET in ("sm_70", "sm_75")) and all(
        "bf16 runs without tensor cores" in text for text in said
    )


def test_the_generic_kernel_serves_every_shape_by_one_compile(device, library, monkeypatch, tmp_path):  # noqa: F811
    """miss="generic": the second shape needs no compiler."""
    cache = tmp_path / "cache.db"
    x, _, weight, poisoned, bias = make(n=24, D=16)
    runtime = library.Runtime(driver=f"emulated:{TARGET}", layers=[cache], miss="generic")
    monkeypatch.setattr(library, "_shared", runtime)
    first = cuda.forward(*map(device.put, (x, poisoned, bias))).clone()
    torch.testing.assert_close(
        first,
        torch.tril(weight.squeeze(-1).float()).matmul(x.float()).add(bias.float()[:, None]).half(),
        rtol=4e-3,
        atol=4e-3,
    )
    generic = launch.plans()[0].candidate
    runtime.close()
    runtime = library.Runtime(driver=f"emulated:{TARGET}", layers=[cache], miss="generic", no_jit=True)
    monkeypatch.setattr(library, "_shared", runtime)
    x, _, weight, poisoned, bias = make(n=40, D=8, B=3)
    got = cuda.forward(*map(device.put, (x, poisoned, bias))).clone()
    torch.testing.assert_close(
        got,
        torch.tril(weight.squeeze(-1).float()).matmul(x.float()).add(bias.float()[:, None]).half(),
        rtol=4e-3,
        atol=4e-3,
    )
    assert launch.plans()[1].candidate == generic and launch.plans()[1].binary_from == "cache"
    runtime.close()


NO_JIT = """
import trigen
runtime = trigen.Runtime(driver="emulated:%s")
try:
    runtime.plan("forward,dtype=f16,B=1,T=8,D=8", 0)
except trigen.CacheMiss as error:
    print("miss:", error)
"""


def test_no_jit_and_the_cache_of_the_environment(emulated, library, repository, tmp_path):  # noqa: F811
    """TRIGEN_NO_JIT and TRIGEN_CACHE as a program of its own meets them."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(repository / "python"),
        "TRIGEN_NO_JIT": "1",
        "TRIGEN_CACHE": str(tmp_path / "named.db"),
        "XDG_CACHE_HOME": str(tmp_path / "user"),
    }
    done = subprocess.run([sys.executable, "-c", NO_JIT % TARGET], env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("miss: the cache has no kernel for forward,dtype=f16,B=1,H=1,T=8,D=8,K=1,pad=0"), (
        done.stdout + done.stderr
    )
    assert "compiling is forbidden (TRIGEN_NO_JIT)" in done.stdout
    assert f"looked in {tmp_path}/named.db, {tmp_path}/user/trigen/cache.db" in done.stdout


NO_CACHE = """
import trigen
for options in ({}, {"layers": ["none"]}):
    runtime = trigen.Runtime(driver="emulated:%s", **options)
    print(runtime.plan("forward,dtype=f16,B=1,T=8,D=8", 0).describe().binary_from)
"""


def test_no_cache_is_said_in_one_word(emulated, library, repository, tmp_path):  # noqa: F811
    """TRIGEN_CACHE=none, and layers=["none"]: no file, no warning."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(repository / "python"),
        "TRIGEN_CACHE": "none",
        "XDG_CACHE_HOME": str(tmp_path),
        "TRIGEN_LOG": "warning",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NO_CACHE % TARGET], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["compiled", "compiled"] and "cache" not in done.stderr, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_trusted_keys_are_an_option(emulated_device, library, tmp_path):
    problem, driver_name = "forward,dtype=f32,B=1,T=8,D=8", f"emulated:{TARGET}"
    shipped = tmp_path / "shipped.db"
    maker = library.Runtime(driver=driver_name, layers=[shipped], miss="generic")
    maker.plan(problem, 0).destroy()
    maker.close()
    for keys, works in ((None, True), ("", False), ("RWSei/qHLhK/MtUmArTQjq/NDGCXHhyTt2pKjzdeVTF+aJa/TWyWHvBC", False)):
        runtime = library.Runtime(
            driver=driver_name, layers=[tmp_path / "own.db", shipped], miss="generic", no_jit=True, trusted_keys=keys
        )
        if works:
            runtime.plan(problem, 0).destroy()
        else:
            with pytest.raises(trigen.TrigenError):
                runtime.plan(problem, 0)
        runtime.close()
