"""The wheel: its tag, what is inside, and that it works from where pip puts it, without this tree."""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import zipfile

import pytest


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    from conftest import BUILD

    if not (BUILD / "libtrigen.so").exists():
        pytest.skip(f"[SKIP] no {BUILD}/libtrigen.so")
    for name in ("pip", "setuptools", "wheel"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"[SKIP] {name} is not installed")
    version = importlib.metadata.version("setuptools")
    if int(version.split(".")[0]) < 61:
        pytest.skip(f"[SKIP] setuptools {version} is older than 61, which pyproject.toml needs")
    dist = tmp_path_factory.mktemp("dist")
    done = subprocess.run([str(repository / "scripts/build_wheel.sh"), str(BUILD), str(dist)], env={**os.environ, "PYTHON": sys.executable},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = dist.glob("*.whl")
    return file


def test_one_wheel_for_every_python(wheel):
    match = re.fullmatch(r"trigen-[\d.]+-py3-none-manylinux_2_(\d+)_(x86_64|aarch64)\.whl", wheel.name)
    assert match, wheel.name
    assert int(match[1]) <= 35, "the wheel must install on Ubuntu 22.04 (glibc 2.35)"
    names = zipfile.ZipFile(wheel).namelist()
    assert {"trigen/lib/libtrigen.so", "trigen/torch/ops.py", "trigen/py.typed"} <= set(names)
    assert not [name for name in names if "libcuda" in name or "__pycache__" in name]


def test_it_works_where_pip_puts_it(wheel, tmp_path):
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel)], check=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRIGEN_")}
    environment["PYTHONPATH"] = str(site)
    code = "import trigen; print(trigen.library.load()._name); print(trigen.format_problem(trigen.parse_problem('forward,dtype=f16,B=1,T=5,D=3')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(site / "trigen/lib/libtrigen.so"), "forward,dtype=f16,B=1,H=1,T=5,D=3,K=1,pad=0"]
    if not (site / "trigen/bin/trigen").exists():
        pytest.skip("[SKIP] this wheel was built without the program")
    done = subprocess.run([sys.executable, "-m", "trigen", "version"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "0.1.0" in done.stdout, done.stderr
