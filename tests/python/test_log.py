"""Log lines and counters in Python: the logger `trigen`, TRIGEN_LOG, trigen.counters()."""

import logging
import os
import subprocess
import sys

import pytest
import trigen
from conftest import ROOT
from test_library import c_struct
from trigen import log

PROBLEM = "forward,dtype=f32,B=1,H=1,T=4,D=3,K=1,pad=0"


def test_the_structure_and_levels_are_the_headers(repository, library):
    header = (repository / "runtime/include/trigen/trigen.h").read_text()
    assert c_struct(header, "trigen_counts") == [name for name, _ in log.CCounts._fields_]
    assert tuple(name for name, _ in log.CCounts._fields_[1:]) == trigen.Counters._fields
    for name in ("OFF", "WARNING", "NOTICE", "INFO", "DEBUG"):
        assert f"TRIGEN_LOG_{name} = {getattr(log, name)}" in header


def planned(tmp_path, code="", **environment):
    """Standard error of a process that makes a plan on the emulated device, and its counters."""
    program = f"""
import trigen
{code}
runtime = trigen.Runtime(layers=[{str(tmp_path / "cache.db")!r}], driver="emulated:sm_70")
for _ in range(2):
    runtime.plan({PROBLEM!r}, 0).destroy()
print(trigen.counters())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={
            **{k: v for k, v in os.environ.items() if k != "TRIGEN_LOG"},
            **environment,
            "PYTHONPATH": str(ROOT / "python"),
        },
    )
    if "no emulated device" in done.stderr:
        pytest.skip("[SKIP] " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return done


def test_what_a_process_says(library, tmp_path):
    # Nobody configured anything: untuned is said, once.
    first = planned(tmp_path)
    assert first.stderr.count("untuned: ") == 1 and PROBLEM in first.stderr and "plan problem=" not in first.stderr
    assert "misses=1" in first.stdout and "compiles=1" in first.stdout and "canaries=0" in first.stdout
    # The variable: a line a plan. The choice is the model's again, its binary is there.
    second = planned(tmp_path, TRIGEN_LOG="info")
    assert second.stderr.count(f"trigen: plan problem={PROBLEM}") == 1
    assert "answer=miss provenance=predicted" in second.stderr and "code=cache" in second.stderr
    assert "misses=1" in second.stdout and "compiles=0" in second.stdout
    assert planned(tmp_path, TRIGEN_LOG="off").stderr == ""
    assert planned(tmp_path, TRIGEN_LOG="warning").stderr == "", "untuned is a notice"
    assert planned(tmp_path, TRIGEN_LOG="notice").stderr.count("untuned: ") == 1
    # The program's own configuration of logging.
    mine = planned(
        tmp_path,
        "import logging; logging.basicConfig(level=logging.DEBUG, format='<%(name)s %(levelname)s> %(message)s')",
    )
    assert "<trigen INFO> plan problem=" in mine.stderr and "<trigen WARNING> untuned" in mine.stderr


def test_the_operators_say_notices_as_warnings(library):
    pytest.importorskip("torch")
    import trigen.torch  # noqa: F401

    assert log.levels[log.NOTICE] == logging.INFO
