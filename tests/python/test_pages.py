"""What README.md, the tutorials and the how-to pages say, done as a reader would do it, on a machine without a GPU: every command of a
```sh block, in the page's order, in a folder of its own; every ```python block of the tutorials, one after the other; the figures."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TRIGEN_BUILD", ROOT / "build"))
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for folder in ("tutorials", "how-to") for path in (ROOT / "docs" / folder).glob("*.md"))]
# Done elsewhere: every run of the tests sets up its machine, and test_wheel.py builds the wheel and installs it.
ELSEWHERE = ("scripts/setup.sh", "scripts/build_wheel.sh", "pip install dist/")


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


def commands(page):
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith(ELSEWHERE):
                yield line


@pytest.fixture
def reader(tmp_path):
    """Runs a command where a reader stands: in the repository's folder (links to it), with `trigen` installed and a cache of its own."""
    if not (BUILD / "trigen").exists():
        pytest.skip(f"[SKIP] no program: {BUILD / 'trigen'} is not built")
    for name in ("bench", "examples", "problems", "scripts", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "bench/results", tmp_path / "results")     # a rendered table's drawing is written beside its file
    (tmp_path / "bench").unlink()
    (tmp_path / "bench").mkdir()
    (tmp_path / "results").rename(tmp_path / "bench/results")
    (tmp_path / "build").symlink_to(BUILD)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/trigen").symlink_to(BUILD / "trigen")
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TRIGEN_CACHE": str(tmp_path / "cache.db"),
                   "TRIGEN_TRUSTED_FOLDERS": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}

    def run(command):
        return subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    return run


@pytest.mark.parametrize("page", PAGES)
def test_every_command_works(page, reader):
    for command in commands(page):
        done = reader(command)
        if "no emulated device" in done.stderr or "no compiler here makes" in done.stderr:
            pytest.skip(f"[SKIP] {command}: {done.stderr.strip().splitlines()[-1]}")
        if command.startswith("cmake --install") and "cannot find" in done.stderr:
            pytest.skip(f"[SKIP] {command}: not everything is built: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, f"{page}: {command}\n{done.stdout}\n{done.stderr}"
        assert "SKIP " not in done.stdout, f"{page}: {command}\n{done.stdout}"


def test_pages_have_commands():
    assert sum(1 for _ in commands("README.md")) >= 6 and sum(1 for page in PAGES for _ in commands(page)) >= 25


def test_the_table_of_gpus_is_of_this_model():
    if not (BUILD / "trigen").exists():
        pytest.skip(f"[SKIP] no program: {BUILD / 'trigen'} is not built")
    subprocess.run([sys.executable, ROOT / "scripts/dense_table.py", BUILD / "trigen", "--check"], check=True)


def test_readme_fits_a_screen():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    assert not [line for line in lines if len(line) > 100 and not line.startswith("|")]


def test_the_pytorch_tutorial(library, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="[SKIP] torch is not installed")
    import trigen

    monkeypatch.setattr(trigen.tuning, "tune_problems", lambda problems, **options: problems)  # test_tuning.py tunes
    code = "\n".join(blocks("docs/tutorials/pytorch.md", "python"))
    exec(compile(code, "docs/tutorials/pytorch.md", "exec"), {"__name__": "tutorial"})
    printed = capsys.readouterr().out
    assert "TriangularConv1d(64" in printed and "tensor(0.)" in printed
    assert "forward,dtype=f32,B=2" in printed


@pytest.mark.parametrize("script", ["results.py", "fleet.py"])
def test_figures_are_those_of_the_results(script):
    done = subprocess.run([sys.executable, str(ROOT / "bench" / script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
