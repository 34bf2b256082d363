"""The package's type hints, as a user's `mypy --strict` sees them: what is right passes, a misspelt option or name is refused."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

USER = Path(__file__).resolve().parent / "typed" / "user.py"


def test_a_users_file_under_mypy_strict(repository, tmp_path):
    for name in ("mypy", "torch"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"[SKIP] {name} is not installed")
    # As an installed package: py.typed has to be there, and errors inside the package are not the user's.
    shutil.copytree(repository / "python" / "trigen", tmp_path / "trigen", ignore=shutil.ignore_patterns("__pycache__"))
    assert (tmp_path / "trigen" / "py.typed").exists()
    # PyTorch's interfaces are read, its bodies are not checked; the package's own follow.
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--show-error-codes",
            "--no-error-summary",
            "--python-version=3.10",
            "--cache-dir",
            str(tmp_path / "cache"),
            str(USER),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
    )
    found = {(int(line), code) for line, code in re.findall(r"user\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)}
    wanted = {
        (number, line.split("# refused: ")[1].strip())
        for number, line in enumerate(USER.read_text().splitlines(), 1)
        if "# refused: " in line
    }
    assert found == wanted and len(wanted) == 10, done.stdout + done.stderr
