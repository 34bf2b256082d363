"""Tuning from Python, through the `trigen` program: an interrupted or failed tuning run leaves this process as it was.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

from . import errors, library, notebook


class TuneResult(NamedTuple):
    """What a tuning run did."""

    problems: List[str]
    command: List[str]
    output: str  # the program's standard output

    def __str__(self) -> str:
        return self.output.rstrip("\n")

    def __repr__(self) -> str:
        return f"<trigen.TuneResult of {len(self.problems)} problem{'' if len(self.problems) == 1 else 's'}; print() shows it>"

    def _repr_html_(self) -> str:
        return notebook.text(str(self))


def program() -> str:
    """The `trigen` program: TRIGEN_PROGRAM, the one of this wheel, or the one on PATH. Raises LibraryMissing when there is none."""
    chosen = os.environ.get("TRIGEN_PROGRAM")
    if chosen:
        return chosen
    beside = Path(__file__).resolve().parent / "bin" / "trigen"
    if beside.exists():
        return str(beside)
    found = shutil.which("trigen")
    if found is None:
        raise errors.LibraryMissing("no `trigen` program: not in this package, not on PATH; install the trigen wheel, or set TRIGEN_PROGRAM")
    return found


def tune_problems(problems: Sequence[str], *, arch: Optional[str] = None, budget: Optional[str] = None,
                  options: Sequence[str] = (), quiet: bool = False) -> TuneResult:
    """Tunes problems (canonical texts) and stores the choices where the operators look first: the first layer given to
    trigen.configure, else TRIGEN_CACHE, else the user's cache.

    arch     a target such as "sm_70"; None: the device that is here
    budget   as `trigen tune --budget` takes it
    options  further arguments of `trigen tune`
    quiet    keeps the program's progress from this process's standard error
    Raises TrigenError with the program's own message when it fails."""
    if not problems:
        raise ValueError("no problems to tune; allowed: at least one (did the recorded run reach a trigen operator?)")
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="trigen-", delete=False) as file:
        file.write("\n".join(problems) + "\n")
    command = [program(), "tune", "--problems", file.name]
    command += ["--arch", arch] if arch else []
    command += ["--budget", budget] if budget else []
    for layer in library.configured_layers():
        command += ["--cache", layer]
    command += list(options)
    try:
        status, output, progress = _run(command, quiet)
    finally:
        os.unlink(file.name)
    if status != 0:
        reason = (progress.strip() or output.strip())[-2000:] or "it said nothing; run it by hand"
        if "add --arch" in reason:
            reason += ' (here: arch="sm_70")'
        raise errors.TrigenError(f"`{' '.join(command)}` failed with {status}: {reason}")
    return TuneResult(list(problems), command, output)


def _run(command: Sequence[str], quiet: bool):
    """(status, standard output, standard error), the latter also shown as it comes unless quiet."""
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        progress = []
        for line in process.stderr:
            progress.append(line)
            if not quiet:
                print(line, end="", file=sys.stderr, flush=True)
        process.wait()
        output.seek(0)
        return process.returncode, output.read(), "".join(progress)
