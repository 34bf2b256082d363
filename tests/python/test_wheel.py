"""The wheel: its tag, what is inside, and that it works from where pip puts it, without this tree."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import BUILD


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    if not (BUILD / "libtrigen.so").exists():
        pytest.skip(f"[SKIP] no {BUILD}/libtrigen.so")
    for name in ("pip", "setuptools", "wheel"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"[SKIP] {name} is not installed")
    version = importlib.metadata.version("setuptools")
    if int(version.split(".")[0]) < 61:
        pytest.skip(f"[SKIP] setuptools {version} is older than 61, which pyproject.toml needs")
    dist = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [str(repository / "scripts/build_wheel.sh"), str(BUILD), str(dist)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = dist.glob("*.whl")
    return file


def test_one_wheel_for_every_python(wheel):
    match = re.fullmatch(r"trigen-[\d.]+-py3-none-manylinux_2_(\d+)_(x86_64|aarch64)\.whl", wheel.name)
    assert match, wheel.name
    assert int(match[1]) <= 35, "the wheel must install on Ubuntu 22.04 (glibc 2.35)"
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "trigen/lib/libtrigen.so",
        "trigen/lib/libtrigen_emulator.so",
        "trigen/torch/ops.py",
        "trigen/py.typed",
    } <= set(names)
    assert not [name for name in names if "libcuda" in name or "__pycache__" in name]


def test_what_pypi_shows(wheel):
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    text = archive.read(metadata).decode()
    assert "Provides-Extra: nvrtc" in text and "Provides-Extra: torch" in text and "Requires-Python: >=3.9" in text
    required = re.findall(r"Requires-Dist: (.*)", text)
    assert required and all("extra ==" in requirement for requirement in required), (
        "what is required comes by extras alone"
    )
    assert "Classifier: Operating System :: POSIX :: Linux" in text and "-*.whl)[nvrtc]" in text
    for licence in ("LICENSE", "THIRD_PARTY_NOTICES"):
        assert [name for name in names if ".dist-info/" in name and name.endswith(licence)], licence


def test_it_works_where_pip_puts_it(wheel, tmp_path):
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel)],
        check=True,
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRIGEN_")}
    environment["PYTHONPATH"] = str(site)
    code = "import trigen; print(trigen.library.load()._name); print(trigen.format_problem(trigen.parse_problem('forward,dtype=f16,B=1,T=5,D=3')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        str(site / "trigen/lib/libtrigen.so"),
        "forward,dtype=f16,B=1,H=1,T=5,D=3,K=1,pad=0",
    ]
    if not (site / "trigen/bin/trigen").exists():
        pytest.skip("[SKIP] this wheel was built without the program")
    done = subprocess.run(
        [sys.executable, "-m", "trigen", "version"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "0.1.0" in done.stdout, done.stderr
    # The emulated device is found beside the wheel's own library: nothing of this tree, no loader path.
    nvrtc = BUILD / "nvrtc"
    if not nvrtc.exists():
        pytest.skip(f"[SKIP] no {nvrtc}")
    done = subprocess.run(
        [sys.executable, "-m", "trigen", "verify", "--device", "emulated:sm_70", "forward,dtype=f16,B=1,T=20,D=8"],
        cwd=tmp_path,
        env={**environment, "TRIGEN_NVRTC": str(nvrtc), "TRIGEN_CACHE": str(tmp_path / "cache.db")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def other_pythons():
    """Interpreters of this machine from 3.9 on, one of each version, this one left out."""
    places = [shutil.which(f"python3.{minor}") for minor in range(9, 20)]
    places += sorted(str(file) for file in Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    found = {}
    for place in filter(None, places):
        asked = subprocess.run(
            [place, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
        )
        version = tuple(map(int, asked.stdout.split())) if asked.returncode == 0 else ()
        if version >= (3, 9) and version != sys.version_info[:2]:
            found.setdefault(version, place)
    return found


def test_other_pythons_load_it(wheel, tmp_path):
    site = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--no-compile",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TRIGEN_", "PYTHON"))}
    code = "import trigen; print(trigen.format_problem(trigen.parse_problem('forward,dtype=f16,B=1,T=5,D=3'))); trigen.is_available()"
    pythons = other_pythons()
    if not pythons:
        pytest.skip("[SKIP] no other Python of 3.9 or later on this machine")
    for version, python in pythons.items():
        done = subprocess.run(
            [python, "-B", "-c", code],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and done.stdout.startswith("forward,dtype=f16,B=1,H=1,T=5,D=3,K=1,pad=0"), (
            version,
            done.stdout,
            done.stderr,
        )
        sources = [str(file) for file in site.rglob("trigen/**/*.py")]
        done = subprocess.run(
            [python, "-B", "-c", "import sys; [compile(open(f).read(), f, 'exec') for f in sys.argv[1:]]", *sources],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert len(sources) > 15 and done.returncode == 0, (version, done.stderr)
