"""trigen.tune with the real program, without a GPU: choices are predicted, stored, and found again by a runtime that may not compile."""

import os
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt


@pytest.fixture()
def cache(monkeypatch, tmp_path):
    try:
        program = trigen.program()
    except trigen.LibraryMissing as error:
        pytest.skip(f"[SKIP] {error}")
    monkeypatch.setenv("TRIGEN_CACHE", str(tmp_path / "cache.db"))
    found = subprocess.run([program, "doctor"], capture_output=True, text=True)
    if "libnvrtc" not in found.stdout + found.stderr:
        pytest.skip("[SKIP] no NVRTC here: `trigen doctor` finds none")
    return tmp_path / "cache.db"


def test_what_tune_stores_needs_no_compiler(cache, emulated, library):
    from emulated import TARGET

    mixer = tt.TriangularConv1d(16, 2, activation="silu")
    x = torch.randn(2, 16, 8, requires_grad=True)
    done = trigen.tune(mixer, (x,), arch=TARGET, options=["--no-device", "--candidates", "1"], quiet=True)
    assert [text.split(",")[0] for text in done.problems] == ["forward", "grad_epilogue", "grad_input", "grad_weight"]
    assert "predicted" in done.output and os.path.exists(cache)
    runtime = trigen.Runtime(driver=f"emulated:{TARGET}", layers=[cache], no_jit=True)
    for text in done.problems:
        info = runtime.plan(text, 0).describe()
        assert (info.problem, info.binary_from, info.provenance) == (text, "cache", "predicted")
    with pytest.raises(trigen.CacheMiss, match="T=17"):
        runtime.plan(done.problems[0].replace("T=16", "T=17"), 0)
    runtime.close()


def test_a_bad_request_is_the_programs_message(cache):
    with pytest.raises(trigen.TrigenError, match="sm_12345"):
        trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"], arch="sm_12345", quiet=True)


def test_without_a_device_the_message_is_python_s(cache, emulated, monkeypatch):
    monkeypatch.setenv("TRIGEN_DRIVER", "/no/libcuda.so")
    with pytest.raises(
        trigen.TrigenError, match=r'no device is here .*add --arch, for example --arch sm_70 \(here: arch="sm_70"\)$'
    ):
        trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"], quiet=True)
