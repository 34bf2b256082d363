"""Tests of the Python package. Run with `pytest tests/python` where torch is installed; tests that need torch, libtrigen.so or the
emulated device say [SKIP] and why when it is not there. The package is taken from python/ of this tree, the library from
TRIGEN_LIBRARY or build/."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
BUILD = Path(os.environ.get("TRIGEN_BUILD", ROOT / "build"))
if "TRIGEN_LIBRARY" not in os.environ and (BUILD / "libtrigen.so").exists():
    os.environ["TRIGEN_LIBRARY"] = str(BUILD / "libtrigen.so")
if "TRIGEN_PROGRAM" not in os.environ and (BUILD / "trigen").exists():
    os.environ["TRIGEN_PROGRAM"] = str(BUILD / "trigen")


@pytest.fixture(scope="session")
def library():
    """The loaded libtrigen.so's module."""
    from trigen import errors, library

    try:
        library.load()
    except errors.LibraryMissing as error:
        if Path(os.environ.get("TRIGEN_LIBRARY", "")).is_file():  # it is there, and not the one that the package needs
            raise
        pytest.skip(f"[SKIP] {error}")
    return library


@pytest.fixture(scope="session")
def repository():
    return ROOT


def pytest_configure(config):
    """One thread: the tensors are small, and several test programs share the machine."""
    os.environ.pop("COLUMNS", None)  # pytest-xdist's workers have it: programs would print as narrowly
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def emulated_device(library, tmp_path_factory):
    """(the emulated device, a function that makes the operators' runtime on it, with a cache of its own)."""
    import emulated as module

    file = module.emulator_file(library.load()._name)
    if file is None:
        pytest.skip("[SKIP] no libtrigen_emulator.so beside libtrigen.so")
    device = module.EmulatedDevice(file)
    cache = os.environ.get("TRIGEN_TEST_CACHE", str(tmp_path_factory.mktemp("cache") / "cache.db"))

    def runtime():
        return library.Runtime(driver=f"emulated:{module.TARGET}", layers=[cache])

    library._shared = runtime()
    library._shared.plan("forward,dtype=f32,B=1,T=8,D=8", 0).destroy()
    yield device, runtime
    library.close_shared_runtime()


@pytest.fixture()
def emulated(emulated_device, library):
    """The emulated device, with the operators' runtime on it whatever the tests before did with theirs."""
    device, runtime = emulated_device
    if library._shared is None:
        library._shared = runtime()
    return device
