"""What the attacks share: the registry, a folder with the program, a plan program and right rows in it, commands that
are timed and judged, and rows written as a stranger would write them, with digests that fit (docs/cache-format.md)."""

import dataclasses
import hashlib
import os
import random
import re
import select
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TRIGEN_BUILD", ROOT / "build"))
PROBLEM = "forward,dtype=f16,B=1,T=160,D=64"  # plan.c's
LONGEST_S = 10  # what takes longer hangs
STRANGER = 65533
ROOT_USER = os.geteuid() == 0
# What no attack may reach. `other` is said in words.
PROMISES = {
    "wrong": "wrong rows run",
    "lost": "acknowledged rows lost",
    "hang": f"hangs over {LONGEST_S} s",
    "abort": "aborts",
    "unsigned": "unsigned rows in",
    "other": "other promises broken",
}


class Skip(Exception):
    """Why an attack cannot be made on this machine."""


@dataclasses.dataclass
class Tally:
    """What an attack counted; texts of what was broken, and what the table says beside the counts."""

    tries: int = 0
    slowest: float = 0
    broken: dict = dataclasses.field(default_factory=dict)
    examples: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)

    def breaks(self, promise, text, count=1):
        if count > 0:
            self.broken[promise] = self.broken.get(promise, 0) + count
            self.examples.append(f"{promise}: {text}")


@dataclasses.dataclass
class Attack:
    name: str
    what: str
    tries: int  # in the run of about a minute
    make: object


ATTACKS = {}


def attack(name, what, tries):
    """Registers make(lab, count): about `count` tries, judged in lab.tally."""

    def register(make):
        ATTACKS[name] = Attack(name, what, tries, make)
        return make

    return register


@dataclasses.dataclass
class Finished:
    code: int  # exit status, or minus the signal
    out: bytes
    err: bytes
    seconds: float
    megabytes: float
    hung: bool

    @property
    def text(self):
        return (self.out + self.err).decode(errors="replace")

    @property
    def last(self):
        return self.err.decode(errors="replace").strip().rpartition("\n")[2][:300]


class Started:
    """A command in a process group of its own, its output in files, so that nothing waits for a grandchild's pipe."""

    def __init__(self, command, environment, stdout=None, stdin=None, **popen):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or self.out,
            stderr=self.err,
            start_new_session=True,
            **popen,
        )

    def kill(self, number=signal.SIGKILL):
        """The command alone; what it started is its own to end."""
        os.kill(self.process.pid, number)  # nobody has waited for it yet; Popen's own way would

    def wait(self, seconds=LONGEST_S):
        """Ends the whole group when it takes longer."""
        poll = select.poll()
        end = os.pidfd_open(self.process.pid)
        poll.register(end, select.POLLIN)
        hung = not poll.poll(seconds * 1000)
        took = time.monotonic() - self.began
        if hung:
            os.killpg(self.process.pid, signal.SIGKILL)
        os.close(end)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(file.read(1 << 22))
            file.close()
        return Finished(self.process.returncode, *texts, took, usage.ru_maxrss / 1024, hung)


class Lab:
    """One attack's place: a folder, a tally, a source of chance. `shared` is what all attacks read."""

    def __init__(self, shared, name, seed):
        self.shared, self.name = shared, name
        self.folder = shared.folder / name
        self.folder.mkdir(mode=0o700)
        self.tally = Tally()
        self.random = random.Random(f"{seed} {name}")
        self.number = 0
        self.lock = threading.Lock()

    def new(self, name="", mode=0o700):
        """A new folder, or the path of `name` in a new folder."""
        with self.lock:
            self.number += 1
            folder = self.folder / f"{self.number}"
        folder.mkdir()
        folder.chmod(mode)
        return folder / name if name else folder

    def environment(self, **variables):
        values = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "xdg"),
            "TMPDIR": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "TRIGEN_DRIVER": "emulated:sm_70",
            "TRIGEN_EMULATED_THREADS": "1",
            "TRIGEN_LOG": "warning",
            "TRIGEN_NVRTC": self.shared.nvrtc,
            "TRIGEN_TEST_ATTACK": f"{self.shared.folder}/{self.name}/",
        }
        values.update({key: str(value) for key, value in variables.items()})
        return {key: value for key, value in values.items() if value != ""}

    def start(self, command, stdout=None, stdin=None, user=None, cwd=None, **variables):
        people = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        return Started(command, self.environment(**variables), stdout, stdin, cwd=cwd, **people)

    def judge(self, finished, what, seconds=LONGEST_S):
        """One try: what hung, died or computed wrong rows is counted."""
        with self.lock:
            tally = self.tally
            tally.tries += 1
            tally.slowest = max(tally.slowest, finished.seconds)
            if finished.hung:
                tally.breaks("hang", f"{what}: over {seconds} s")
            elif finished.code < 0:
                tally.breaks("abort", f"{what}: {signal.Signals(-finished.code).name}: {finished.last}")
            elif finished.code == 4:
                tally.breaks("wrong", f"{what}: {finished.last}")
            elif finished.code == 5:
                tally.breaks("other", f"{what}: {finished.last}")
        return finished

    def run(self, command, what, seconds=LONGEST_S, **options):
        return self.judge(self.start(command, **options).wait(seconds), what, seconds)

    def trigen(self, *words, what="", **options):
        return self.run([self.shared.program, *words], what or " ".join(map(str, words)), **options)

    def plan(self, cache, what="", mode=("run",), **options):
        """The plan program on these layers, without a compiler and without a canary unless `options` say so."""
        options = {"TRIGEN_NO_JIT": "1", "TRIGEN_CANARY": "0", "TRIGEN_CACHE": cache, **options}
        return self.run([self.shared.plan, *mode], what or f"plan on {cache}", **options)

    def breaks(self, promise, text, count=1):
        with self.lock:
            self.tally.breaks(promise, text, count)

    def note(self, text):
        self.tally.notes.append(text)

    def limited(self, limits, command):
        """The command under `ulimit`."""
        return ["sh", "-c", f'ulimit {limits} && exec "$@"', "sh", *command]

    def copy(self, source, name=None, mode=0o700):
        """A copy in a new folder; a cache file with the lock file that makes it one's own."""
        target = self.new(name or Path(source).name, mode)
        shutil.copyfile(source, target)
        target.chmod(0o600)
        if target.suffix == ".db":
            target.with_name(target.name + ".lock").touch(mode=0o600)
        return target


class Shared:
    """Built once: programs, a user layer and a bundle with P's right kernel, and its PTX."""

    def __init__(self, folder):
        self.folder = folder
        folder.chmod(0o755)
        self.program, library = BUILD / "trigen", BUILD / "libtrigen.so"
        for file in (self.program, library, BUILD / "libtrigen_emulator.so"):
            if not file.exists():
                sys.exit(f"attack: no {file}; build it (cmake --build build), or set TRIGEN_BUILD")
        self.nvrtc = os.environ.get("TRIGEN_NVRTC", str(next(iter((BUILD / "nvrtc").glob("nvidia/*/lib")), "")))
        self.libraries = folder / "lib"  # of the plan program: others must reach it, too
        self.libraries.mkdir()
        for file in (library.resolve(), BUILD / "libtrigen_emulator.so"):
            shutil.copy(file, self.libraries / re.sub(r"(\.so\.\d+\.\d+)\.\d+$", r"\1", file.name))
        here = Path(__file__).parent
        (soname,) = (path.name for path in self.libraries.glob("libtrigen.so*"))
        self.library = self.libraries / soname
        self.plan = self.compile(
            here / "plan.c",
            "plan",
            f"-I{ROOT / 'runtime/include'}",
            self.library,
            f"-Wl,-rpath,{self.libraries}",
            "-pthread",
        )
        self.shim = self.compile(here / "shim.c", "shim.so", "-shared", "-fPIC", "-ldl")
        setup = Lab(self, "setup", 0)
        self.cache, self.bundle = setup.folder / "cache.db", setup.folder / "core.trigen"
        for words in (
            ["tune", "--no-device", "--arch", "sm_70", "--candidates", "1", PROBLEM],
            ["cache", "export", self.bundle],
            ["emit", "--ptx", "--arch", "sm_70", "-o", setup.folder / "right.ptx", PROBLEM],
        ):
            done = setup.trigen(*words, seconds=60, TRIGEN_CACHE=self.cache)
            if done.code != 0:
                sys.exit(f"attack: nothing to attack: {' '.join(map(str, words))} ended with {done.code}: {done.text}")
        self.ptx = (setup.folder / "right.ptx").read_text()
        self.evil_ptx = re.sub(r"^\{$", "{\nret;", self.ptx, flags=re.M)  # writes nothing
        self.evil_cache, self.evil_bundle = (
            shutil.copy(file, file.with_name("evil" + file.suffix)) for file in (self.cache, self.bundle)
        )
        for file in (self.evil_cache, self.evil_bundle):
            edit(file, "binaries", ptx=pack(self.evil_ptx))
        for cache, code in ((self.cache, 0), (self.bundle, 0), (self.evil_cache, 4), (self.evil_bundle, 4)):
            done = setup.start([self.plan], TRIGEN_CACHE=cache, TRIGEN_NO_JIT="1", TRIGEN_CANARY="0").wait()
            if done.code != code:  # else the attacks would show nothing
                sys.exit(
                    f"attack: the plan program ends with {done.code} on {cache.name}, {code} is meant: {done.text}"
                )

    def compile(self, source, name, *flags):
        out = self.folder / name
        # libraries behind the source that needs them
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-std=gnu11", "-o", out, source, *flags], check=True)
        return out


# ---- rows as a stranger writes them ----


def frame(size, blocks):
    """A zstd frame (RFC 8878): its size, then blocks of (type, size in the block's header, bytes)."""
    out = struct.pack("<IBQ", 0xFD2FB528, 0xE0, size)
    for at, (kind, length, data) in enumerate(blocks):
        out += struct.pack("<I", (at == len(blocks) - 1) | kind << 1 | length << 3)[:3] + data
    return out


def pack(text):
    data = text if isinstance(text, bytes) else text.encode()
    pieces = [data[at : at + (1 << 17)] for at in range(0, len(data), 1 << 17)] or [b""]
    return frame(len(data), [(0, len(piece), piece) for piece in pieces])


def bomb(size, byte=b" "):
    """A frame of a few bytes a block that unpacks to `size` equal bytes."""
    return frame(size, [(1, min(1 << 17, size - at), byte) for at in range(0, size, 1 << 17)])


def digest(domain, fields):
    """SHA-256 over the fields, each behind its length."""
    hashed = hashlib.sha256()
    for field in (domain, *fields):
        if isinstance(field, float):
            field = struct.pack("<d", field)
        elif isinstance(field, int):
            field = struct.pack("<q", field)
        field = field.encode() if isinstance(field, str) else field
        hashed.update(struct.pack("<Q", len(field)) + field)
    return hashed.digest()


KEY_FIELDS = ("source_hash", "arch", "compiler", "options")


def columns(base, table):
    return [row[1] for row in base.execute(f"PRAGMA table_info({table})")]


def sealed(table, row):
    """The row with key and digest that fit it."""
    row = dict(row)
    if table == "binaries":
        row["key"] = digest("trigen key 1", [row[name] for name in KEY_FIELDS]).hex()
    left_out = ("key", "digest")
    domain = {"binaries": "trigen binary 1", "records": "trigen record 1", "samples": "trigen sample 1"}[table]
    names = [name for name in row if name not in left_out]
    if table == "binaries":  # the blobs lie behind the digest, source first
        names = [name for name in names if name not in ("cubin", "ptx", "source", "log")] + [
            "source",
            "cubin",
            "ptx",
            "log",
        ]
    row["digest"] = digest(domain, [row[name] for name in names])
    return row


def put(base, table, row):
    row = sealed(table, row)
    marks = ",".join(
        "CAST(? AS TEXT)"
        if isinstance(value, bytes) and name not in ("digest", "cubin", "ptx", "source", "log", "evidence")
        else "?"
        for name, value in row.items()
    )
    base.execute(f"INSERT OR REPLACE INTO {table}({','.join(row)}) VALUES({marks})", list(row.values()))


def rows(base, table):
    names = columns(base, table)
    return [dict(zip(names, row)) for row in base.execute(f"SELECT * FROM {table}").fetchall()]


def opened(file):
    return sqlite3.connect(file, isolation_level=None)


def edit(file, table, change=None, **changes):
    """Changes every row of the table, by values or by a function of the row, and seals it again."""
    base = opened(file)
    base.execute("BEGIN")
    for row in rows(base, table):
        changed = {**row, **(change(row) if change else changes)}
        base.execute(f"DELETE FROM {table} WHERE digest=?", [row["digest"]])
        put(base, table, changed)
    base.execute("COMMIT")
    base.close()


def relabel(file, **changes):
    """The key's fields of binaries, and of the records that name them."""
    edit(file, "binaries", **changes)
    edit(file, "records", **{("binary_arch" if name == "arch" else name): value for name, value in changes.items()})


def numbered(number):
    """Another problem of the same kernel's kind: B stays a run-time value."""
    return f"forward,dtype=f16,B={number},H=1,T=160,D=64,K=1,pad=0"


def multiply(file, numbers, change=None, binaries=True):
    """Has the first record and its binary once for each number, as a problem of that B, and nothing else."""
    base = opened(file)
    record, binary = rows(base, "records")[0], rows(base, "binaries")[0]
    base.execute("BEGIN")
    base.execute("DELETE FROM records")
    base.execute("DELETE FROM binaries")
    for number in numbers:
        source_hash = hashlib.sha256(f"source {number}".encode()).hexdigest() if binaries else record["source_hash"]
        more = change(number) if change else {}
        put(
            base,
            "records",
            {**record, "problem": numbered(number), "source_hash": source_hash, **more.get("record", {})},
        )
        put(
            base,
            "binaries",
            {**binary, "problem": numbered(number), "source_hash": source_hash, **more.get("binary", {})},
        )
    base.execute("COMMIT")
    base.close()
    return file


def kept(file):
    """(problem, source hash) of every row, read by another SQLite."""
    base = sqlite3.connect(f"file:{file}?mode=rw", uri=True)  # it rolls back what a killed writer left
    try:
        return {("records", row[0]) for row in base.execute("SELECT problem FROM records")} | {
            ("binaries", row[0]) for row in base.execute("SELECT key FROM binaries")
        }
    finally:
        base.close()
