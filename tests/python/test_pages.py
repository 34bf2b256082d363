"""What README.md, the tutorials and the how-to pages say, done as a reader would do it, on a machine without a GPU: every command of a
```sh block, in the page's order, in a folder of its own; every ```python block of the tutorials, one after the other; what the ```text
block behind either says is printed; the figures. ```bash blocks are for machines with a GPU: nothing runs them."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TRIGEN_BUILD", ROOT / "build"))
PAGES = [
    "README.md",
    "docs/gram.md",
    "docs/structured-weights.md",
    *sorted(
        str(path.relative_to(ROOT))
        for folder in ("tutorials", "how-to")
        for path in (ROOT / "docs" / folder).glob("*.md")
    ),
]
# Done elsewhere: scripts/test_newcomer.sh types README and the tutorials whole, against what was installed.
ELSEWHERE = ("scripts/setup.sh", "scripts/build_wheel.sh", "python3 -m venv env", 'pip install "$(echo dist/')


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


def runs(page, language):
    """A page's blocks to run, each with the ```text block behind it, or ""."""
    return re.findall(rf"^```{language}\n(.*?)^```\n(?:\n*```text\n(.*?)^```)?", (ROOT / page).read_text(), re.S | re.M)


def lines(block):
    for line in block.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith(ELSEWHERE):
            yield line


def commands(page):
    for block in blocks(page, "sh"):
        yield from lines(block)


def masked(line):
    """Without figures that another machine or compiler changes: times, sizes, errors. What the model says is the same everywhere."""
    if re.search("predicted|estimated", line):
        return " ".join(line.split())
    return re.sub(r"\b\d+(\.\d+)?(?= ?(?:[um]?s\b|[KM]i?B\b|%))|\b\d+\.\d+(e-\d+)?", "#", " ".join(line.split()))


def check_shown(page, text, printed):
    """Every line of a page's ```text block is a line of what was printed; `...` in it stands for anything."""
    printed = [masked(line) for line in printed.splitlines()]
    for line in text.splitlines():
        pattern = ".*".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", masked(line)))
        assert any(re.fullmatch(pattern, found) for found in printed), (
            f"{page} shows\n{line}\nprinted was\n" + "\n".join(printed)
        )


@pytest.fixture
def reader(tmp_path):
    """Runs a command where a reader stands: in the repository's folder (links to it), with `trigen` installed and a cache of its own."""
    if not (BUILD / "trigen").exists():
        pytest.skip(f"[SKIP] no program: {BUILD / 'trigen'} is not built")
    for name in ("bench", "examples", "problems", "scripts", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(
        ROOT / "bench/results", tmp_path / "results"
    )  # a rendered table's drawing is written beside its file
    (tmp_path / "bench").unlink()
    (tmp_path / "bench").mkdir()
    (tmp_path / "results").rename(tmp_path / "bench/results")
    (tmp_path / "build").symlink_to(BUILD)
    (tmp_path / "bin").mkdir()
    for program in ("trigen", "trigen-lab"):
        (tmp_path / "bin" / program).symlink_to(BUILD / program)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TRIGEN_CACHE": str(tmp_path / "cache.db"),
        "TRIGEN_TRUSTED_FOLDERS": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
    }

    def run(command):
        return subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.mark.parametrize("page", PAGES)
def test_every_command_works(page, reader):
    exported = ""
    for block, text in runs(page, "sh"):
        printed = ""
        for command in lines(block):
            done = reader(exported + command)
            exported += f"{command}\n" if command.startswith("export ") else ""
            assert done.returncode == 0, f"{page}: {command}\n{done.stdout}\n{done.stderr}"
            assert "SKIP " not in done.stdout, f"{page}: {command}\n{done.stdout}"
            printed += done.stdout + done.stderr
        check_shown(page, text, printed)


def test_pages_have_commands():
    assert sum(1 for _ in commands("README.md")) >= 6 and sum(1 for page in PAGES for _ in commands(page)) >= 25


def test_the_header_begins_with_the_tutorials_program(tmp_path):
    (program,) = blocks("docs/tutorials/c.md", "c")
    header = (ROOT / "runtime/include/trigen/trigen.h").read_text()
    assert "\n".join(f" *   {line}".rstrip() for line in program.splitlines()) in header
    around = f"#include <trigen/trigen.h>\nvoid f(void *x, void *w, void *bias, void *y, void *workspace, void *stream) {{\n{program}}}\n"
    (tmp_path / "program.c").write_text(around)
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            f"-I{ROOT / 'runtime/include'}",
            tmp_path / "program.c",
        ],
        check=True,
    )


def test_the_cost_models_tables_are_the_programs():
    if not (BUILD / "trigen").exists():
        pytest.skip(f"[SKIP] no program: {BUILD / 'trigen'} is not built")
    subprocess.run([sys.executable, ROOT / "scripts/model_tables.py", BUILD / "trigen", "--check"], check=True)


def test_the_wheels_page_has_readmes_lines():
    assert blocks("python/README.md", "python") == blocks("README.md", "python")


def test_readme_fits_a_screen():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    assert not [line for line in lines if len(line) > 100 and not line.startswith("|")]


def test_a_page_may_not_show_what_is_not_printed():
    check_shown("page", "a 1.5 us ... 2 of 2\n", "first\na   7 us and more: 2 of 2\n")
    for text in ("a 1.5 us ... 1 of 2\n", "b\n"):
        with pytest.raises(AssertionError):
            check_shown("page", text, "a 7 us: 2 of 2\n")
    with pytest.raises(AssertionError):
        check_shown("page", "7.5 us predicted ...\n", "7.8 us predicted (3 s)\n")


@pytest.mark.parametrize(
    "page, module",
    [
        ("docs/tutorials/pytorch.md", "torch"),
        ("docs/tutorials/muon.md", "torch"),
        ("docs/gram.md", "torch"),
        ("docs/structured-weights.md", "torch"),
        ("docs/tutorials/jax.md", "jax"),
    ],
)
def test_every_block_of_python_prints_what_the_page_shows(page, module, library, tmp_path, monkeypatch, capfd):
    pytest.importorskip(module, reason=f"[SKIP] {module} is not installed")
    monkeypatch.setenv("TRIGEN_CACHE", str(tmp_path / "cache.db"))
    names = {"__name__": page}
    for block, text in runs(page, "python"):
        exec(compile(block, page, "exec"), names)
        printed = capfd.readouterr()
        check_shown(page, text, printed.out + printed.err)


# What the guides' blocks take from a reader's program.
OF_A_READER = {
    "docs/pytorch.md": """
import types
import torch
from torch import nn
import trigen.torch
from trigen.torch import TriangularConv1d, triangular_conv1d

class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.causal, self.conv = True, nn.Conv1d(512, 512, 1)

    def forward(self, x):
        if self.causal:
            self.conv.weight.data = torch.tril(self.conv.weight.data.squeeze(-1)).unsqueeze(-1)
        return self.conv(x) + x

T, self, model = 64, types.SimpleNamespace(), Mixer()
x, w, bias, tokens = torch.randn(2, T, 8), torch.randn(T), torch.randn(T), torch.randn(2, 512, 8)
prompt, token = torch.randn(1, 5, 1024).bfloat16(), torch.randn(1, 1, 1024).bfloat16()

def train_step():
    model(tokens).sum().backward()
""",
    "docs/jax.md": """
import jax
import jax.numpy as jnp

T = 16
x, w, bias, u, vectors = jnp.ones((2, T, 8)), jnp.ones((T, T)), jnp.ones(T), jnp.ones((2, T, 8)), dict(target=jnp.ones(T))
batch, params = x, dict(v=jnp.ones(T), decay=jnp.float32(0.95), bias=jnp.ones(T))
""",
}
# Ahead of a block that begins so.
AHEAD = {
    "cache = mixer.new_cache": "mixer = TriangularConv1d(16, layout='btd').bfloat16()",
    "with trigen.record() as seen:            # what the compiled": "step = jax.jit(mixer)",
}
# Behind one: what it defines is used.
BEHIND = {
    "state = tj.scan_state": "assert step(state, (T - 1, x[:, -1]))[1].shape == (2, 8)",
    "import jax, optax": "given = {'matrix': jnp.ones((8, 16)), 'bias': jnp.ones(4)}\n"
    "assert optimizer.update(given, optimizer.init(given), given)[0]['matrix'].shape == (8, 16)",
}


@pytest.mark.parametrize("page, module", [("docs/pytorch.md", "torch"), ("docs/jax.md", "jax")])
def test_every_block_of_the_guides_runs(page, module, library, tmp_path, monkeypatch):
    pytest.importorskip(module, reason=f"[SKIP] {module} is not installed")
    import trigen

    here = dict(arch="sm_80", options=["--candidates", "1"])  # no GPU measures
    monkeypatch.setattr(trigen, "tune", functools.partial(trigen.tune, **here))
    monkeypatch.setattr(
        trigen.recording.Recorder, "tune", functools.partialmethod(trigen.recording.Recorder.tune, **here)
    )
    monkeypatch.setenv("TRIGEN_CACHE", str(tmp_path / "cache.db"))
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page, "trigen": trigen}
    exec(OF_A_READER[page], names)
    lacks_optax = False
    for block in blocks(page, "python"):
        if "optax" in block and importlib.util.find_spec("optax") is None:
            lacks_optax = True
            continue
        around = [
            next((code for start, code in table.items() if block.startswith(start)), "") for table in (AHEAD, BEHIND)
        ]
        exec(around[0], names)
        exec(compile(block, page, "exec"), names)
        exec(around[1], names)
    if lacks_optax:
        pytest.skip("[SKIP] optax is not installed: its block did not run, the others did")


@pytest.mark.parametrize("script", ["results.py", "fleet.py"])
def test_figures_are_those_of_the_results(script):
    done = subprocess.run([sys.executable, str(ROOT / "bench" / script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
