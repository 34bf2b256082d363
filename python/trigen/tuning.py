"""Tuning from Python, through the `trigen` program: an interrupted or failed tuning run leaves this process as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

from . import errors, library, notebook

_ERROR = "trigen: error: "  # how the program begins a line that is no progress


class TuneResult(NamedTuple):
    """The result of a tuning run."""

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
        raise errors.LibraryMissing(
            "no `trigen` program: not in this package, not on PATH; install the trigen wheel, or set TRIGEN_PROGRAM"
        )
    return found


def tune_problems(
    problems: Sequence[str],
    *,
    arch: Optional[str] = None,
    budget: Optional[str] = None,
    options: Sequence[str] = (),
    quiet: bool = False,
) -> TuneResult:
    """Tunes problems (canonical texts) and stores the choices where the operators look first: the first layer given to
    trigen.configure, else TRIGEN_CACHE, else the user's cache. The next call of each operator takes them.

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
        status, output, said = _run(command, quiet)
    finally:
        os.unlink(file.name)
    if status != 0:
        reason = (said.strip() or output.strip())[-2000:] or "it said nothing; run it by hand"
        if "add --arch" in reason:
            reason += ' (here: arch="sm_70")'
        raise errors.TrigenError(f"`trigen tune` failed with {status}: {reason}")
    for name in ("trigen.torch.launch", "trigen.jax.handler"):
        front = sys.modules.get(name)
        if front is not None:
            front.forget_plans()
    return TuneResult(list(problems), command, output)


def _run(command: Sequence[str], quiet: bool):
    """(status, standard output, why it failed). Standard error is shown as it comes unless quiet, but for the errors: the exception has these."""
    environment = dict(os.environ)
    if sys.__stdout__ is not None and sys.__stdout__.isatty():  # where the result's tables will be printed
        environment.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            command, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace", env=environment
        ) as process,
    ):
        progress, reasons, held = [], [], False
        for line in process.stderr:
            progress.append(line)
            held = line.startswith(_ERROR) or (held and line.startswith("  "))
            if held:
                reasons.append(line[len(_ERROR) :] if line.startswith(_ERROR) else line)
            elif not quiet:
                print(line, end="", file=sys.stderr, flush=True)
        process.wait()
        output.seek(0)
        return process.returncode, output.read(), "".join(reasons or progress)
