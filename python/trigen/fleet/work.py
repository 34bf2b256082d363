"""One tuner of a fleet, and what is made of all of them. The `trigen` program does the work; here shards come and go."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Sequence, Union

from ..errors import TrigenError
from ..tuning import program
from .place import Place

Url = Union[str, "os.PathLike[str]", Place]
Problems = Union[str, "os.PathLike[str]", Sequence[str]]  # a file with one a line, or texts
INTERRUPTED = (130, 143)  # by SIGINT, by SIGTERM


def work(
    place: Url,
    problems: Problems,
    *,
    shard: str = "auto",
    device: Optional[str] = None,
    arch: Optional[str] = None,
    budget: Optional[str] = None,
    cache: Optional[str] = None,
    publish: Optional[str] = None,
    sign: Optional[str] = None,
    options: Sequence[str] = (),
    poll: float = 20.0,
) -> bool:
    """Tunes this worker's part of the problems that the place does not answer for this kind of device, and leaves the results there.

    shard    "2/8" (the third of eight), or "auto": as the launcher says (`trigen tune --shard`)
    publish  the longest that results wait for a shard: "10m", the program's default
    sign     file of a secret key (`trigen cache keygen`): shards are signed
    options  further arguments of `trigen tune`
    poll     seconds between looks for new shards to leave; of stores, not of folders
    Returns False when it was interrupted (SIGTERM, Ctrl-C): what was done is in the place, and the same call goes on. Raises TrigenError when
    the program fails; what it finished is in the place."""
    place = place if isinstance(place, Place) else Place(place)
    with _folder_of(place, pull=True) as folder, _file_of(problems) as file:
        command = [program(), "tune", "--problems", file, "--shard", shard, "--fleet", str(folder)]
        for flag, value in (
            ("--device", device),
            ("--arch", arch),
            ("--budget", budget),
            ("--cache", cache),
            ("--publish", publish),
            ("--sign", sign),
        ):
            command += [flag, value] if value else []
        command += list(options)
        with (
            tempfile.TemporaryFile("w+") as output,
            subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=_end_with_parent) as process,
        ):
            with _passing_on(process):
                try:
                    while process.poll() is None:
                        try:
                            process.wait(poll)
                        except subprocess.TimeoutExpired:
                            _leave(place, folder)
                finally:  # this process gives up: so does the tune, with what it has
                    if process.poll() is None:
                        process.terminate()
                        process.wait()
                    _leave(place, folder)
            output.seek(0)
            said = output.read()
        if process.returncode not in (0, *INTERRUPTED):
            raise TrigenError(
                f"`{' '.join(command)}` failed with {process.returncode}: {said.strip()[-2000:] or 'it said nothing; run it by hand'}"
            )
        return process.returncode == 0


def merge(place: Url, out: Union[str, "os.PathLike[str]"], *, sign: Optional[str] = None) -> str:
    """One bundle of all shards of the place; the program's line on it. Any order and any repetition of shards gives the same bytes. Where
    TRIGEN_TRUSTED_KEYS is set every shard must be signed by one of its keys. `sign`: file of a secret key, to sign the bundle."""
    place = place if isinstance(place, Place) else Place(place)
    with _folder_of(place, pull=True) as folder:
        return _said(
            [program(), "cache", "merge", str(folder), "-o", os.fspath(out), *(["--sign", sign] if sign else [])]
        )


def status(place: Url, problems: Problems, *, arch: Optional[str] = None, workers: int = 1) -> Dict[str, Any]:
    """`trigen cache status --json` of the place: for each kind of device its holes and the time to fill them."""
    place = place if isinstance(place, Place) else Place(place)
    with _folder_of(place, pull=True) as folder, _file_of(problems) as file:
        command = [
            program(),
            "cache",
            "status",
            "--problems",
            file,
            "--fleet",
            str(folder),
            "--workers",
            str(workers),
            "--json",
        ]
        found = json.loads(_said(command + (["--arch", arch] if arch else []), allowed=(0, 1)))
        assert isinstance(found, dict)
        return found


def _said(command: Sequence[str], allowed: Sequence[int] = (0,)) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode not in allowed or not done.stdout:
        raise TrigenError(
            f"`{' '.join(command)}` failed with {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout


def _leave(place: Place, folder: Path) -> None:
    if place.folder is None:
        place.push(folder)


@contextmanager
def _folder_of(place: Place, pull: bool) -> Iterator[Path]:
    """The place's own folder, or one with what a store has."""
    if place.folder is not None:
        yield place.folder
        return
    with tempfile.TemporaryDirectory(prefix="trigen-fleet-") as folder:
        if pull:
            place.pull(folder)
        yield Path(folder)


@contextmanager
def _file_of(problems: Problems) -> Iterator[str]:
    if isinstance(problems, (str, os.PathLike)):
        yield os.fspath(problems)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="trigen-") as file:
        file.write("\n".join(problems) + "\n")
        file.flush()
        yield file.name


def _end_with_parent() -> None:
    """In the child: a worker that is killed leaves no tune on its GPU. SIGTERM lets that store what it has."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def _passing_on(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """A scheduler's SIGTERM reaches the tune, which then ends by itself. Signals are the main thread's alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
