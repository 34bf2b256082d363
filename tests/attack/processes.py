"""Attacks on running processes: kills, many at once, failing system calls, full disks, scarce resources, forks."""

import os
import re
import signal
import stat
import threading
import time
from pathlib import Path

from files import node

from lab import PROBLEM, ROOT_USER, Skip, attack, kept, multiply, numbered, opened

ERRNOS = {"EIO": 5, "ENOSPC": 28, "EACCES": 13, "ENOLCK": 37, "EMFILE": 24, "EINTR": 4}


def left_over(folder, allowed=(".db", ".lock", ".used", "-journal", ".trigen", ".minisig")):
    return [path.name for path in folder.iterdir() if path.is_file() and not path.name.endswith(allowed)]


def check_kept(lab, cache, acknowledged, what):
    """What was acknowledged is there, and every row is whole."""
    done = lab.trigen("cache", "verify", cache, what=f"verify after {what}", TRIGEN_CACHE=cache)
    if done.code != 0:
        lab.breaks("lost", f"{what}: verify ends with {done.code}: {done.last}")
        return
    lost = acknowledged - kept(cache)
    lab.breaks("lost", f"{what}: {sorted(lost)[:3]}", len(lost))


@attack("kill", "kill -9 at random in import (1 and 24 bundles) and gc, some beside a second writer", 100)
def kill(lab, count):
    bundles = [multiply(lab.copy(lab.shared.bundle), [100 + at]) for at in range(24)]
    names = [kept(bundle) for bundle in bundles]
    records = {row for rows in names for row in rows if row[0] == "records"}
    cache, acknowledged, killed, hot = lab.new("cache.db"), set(), 0, 0
    for at in range(count):
        if at % 20 == 0:
            cache, acknowledged = lab.new("cache.db"), set()
            assert lab.trigen("cache", "import", lab.shared.bundle, TRIGEN_CACHE=cache).code == 0
            acknowledged |= kept(cache)
        which = lab.random.sample(range(24), 24 if at % 4 == 3 else 1)
        gc = at % 5 == 4
        words = ["gc", "--max-size", "100K"] if gc else ["import", *(bundles[i] for i in which)]
        if gc:  # which takes binaries and predictions
            acknowledged = set()
        one = lab.start([lab.shared.program, "cache", *words], TRIGEN_CACHE=cache)
        second = (
            lab.start([lab.shared.program, "cache", "import", bundles[at % 24]], TRIGEN_CACHE=cache)
            if at % 3 == 0
            else None
        )
        time.sleep(lab.random.uniform(0, 0.06 if len(which) > 1 else 0.02))
        one.kill()
        done = one.wait()
        lab.tally.tries += 1
        killed += done.code == -signal.SIGKILL
        if done.code == 0 and not gc:
            acknowledged |= {row for i in which for row in names[i]}
        if second:
            if lab.judge(second.wait(), "import beside a killed one").code == 0 and not gc:
                acknowledged |= names[at % 24]
        journal = cache.with_name(cache.name + "-journal")
        hot += journal.exists() and journal.stat().st_size > 0
        check_kept(lab, cache, acknowledged, " ".join(map(str, words[:2])))
        if left := left_over(cache.parent):
            lab.breaks("other", f"{words[0]} left {left}")
    assert records
    lab.note(f"{killed} killed, {hot} hot journals")


@attack("together", "6 threads of import, gc, rm, export, verify, plan and another tool's VACUUM on one cache", 200)
def together(lab, count):
    cache = lab.copy(lab.shared.cache)
    bundles = [multiply(lab.copy(lab.shared.bundle), range(200 + 3 * at, 203 + 3 * at)) for at in range(6)]
    left = iter(range(count))
    lock = threading.Lock()

    def vacuum():
        base = opened(cache)
        base.execute("PRAGMA busy_timeout=8000")
        base.execute("VACUUM")
        base.close()

    def work(number):
        choose = __import__("random").Random(f"{lab.name} {number}")
        while True:
            with lock:
                if next(left, None) is None:
                    return
            which = choose.randrange(8)
            if which == 7:
                vacuum()
                continue
            out = lab.new("out.trigen")
            words = [
                ["cache", "import", bundles[number]],
                ["cache", "gc", "--max-size", "2M"],
                ["cache", "rm", "--arch", "sm_70", numbered(200 + choose.randrange(18))],
                ["cache", "export", out],
                ["cache", "verify"],
                ["cache", "import", lab.shared.bundle],
                None,
            ][which]
            done = (
                lab.trigen(*words, TRIGEN_CACHE=cache)
                if words
                else lab.plan(cache, "plan beside the others", TRIGEN_NO_JIT="0")
            )
            allowed = (
                words and words[1] == "rm" and "no record" in done.text or "0 records" in done.text
            )  # another one took it
            if done.code != 0 and not allowed:
                lab.breaks("other", f"{words or 'plan'} ends with {done.code}: {done.text[-300:]}")

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_kept(lab, cache, set(), "all of them")


@attack("shim", "the n-th of 15 system calls fails with each errno; import, merge, plan, gc", 250)
def shim(lab, count):
    calls = [
        "lock",
        "fsync",
        "fdatasync",
        "rename",
        "ftruncate64",
        "pwrite64",
        "pread64",
        "read",
        "write",
        "unlink",
        "fchmod",
        "close",
        "mkostemp",
        "open",
        "open64",
    ]
    new = multiply(lab.copy(lab.shared.bundle), [300, 301])
    rows = kept(new)
    for at in range(count):
        call, error = calls[at % len(calls)], lab.random.choice(list(ERRNOS))
        command = ("import", "merge", "plan", "gc")[at // len(calls) % 4]
        cache, out = lab.copy(lab.shared.cache), lab.new("out.trigen")
        acknowledged = kept(cache)
        nth = lab.random.choice((1, 1, 2, 3, 5, 8, 13, 21))
        failing = {
            "LD_PRELOAD": lab.shared.shim,
            "SHIM_CALL": call,
            "SHIM_AT": nth,
            "SHIM_ERRNO": ERRNOS[error],
            "TRIGEN_CACHE": cache,
        }
        what = f"{command}, {call} {nth} fails with {error}"
        words = {
            "import": ["cache", "import", new],
            "merge": ["cache", "merge", new, lab.shared.bundle, "-o", out],
            "gc": ["cache", "gc", "--max-size", "100K"],
        }
        done = (
            lab.trigen(*words[command], what=what, **failing)
            if command in words
            else lab.plan(
                cache,
                what,
                TRIGEN_CANARY="1",
                **{key: value for key, value in failing.items() if key != "TRIGEN_CACHE"},
            )
        )
        if done.code == 0 and command == "import":
            acknowledged |= rows
        if command == "gc":
            acknowledged = set()
        check_kept(lab, cache, acknowledged, what)
        if out.exists() and lab.trigen("cache", "verify", out, what=f"the output of {what}").code != 0:
            lab.breaks("other", f"{what}: a bad file was left")
        if done.code == 0 and command == "merge" and not out.exists():
            lab.breaks("other", f"{what}: said to be made, and is not there")
        left = left_over(cache.parent) + left_over(out.parent)
        if left and call != "unlink":
            lab.breaks("other", f"{what}: left {left}")


@attack("full-disk", "tmpfs of 16 to 700 KB, over nothing and over an old output; 7 commands", 36)
def full_disk(lab, count):
    if not ROOT_USER:
        raise Skip("needs root to mount a tmpfs")
    shared = lab.shared
    commands = [
        ["cache", "import", shared.bundle],
        ["cache", "merge", shared.bundle, "-o", "{}/out.trigen"],
        ["cache", "export", "{}/out.trigen"],
        ["report", shared.bundle, "-o", "{}/out.html"],
        ["emit", "--ptx", "--arch", "sm_70", PROBLEM, "-o", "{}/out.ptx"],
        ["cache", "keygen", "--key", "{}/key"],
        ["tune", "--no-device", "--arch", "sm_70", "--candidates", "1", PROBLEM],
    ]
    for at in range(count):
        command = commands[at % len(commands)]
        place, size = lab.new(), (16, 64, 700)[lab.random.randrange(3)]
        words = [str(word).format(place) for word in command]
        out = next((Path(word) for word in words if word.startswith(f"{place}/out")), None)
        over = out is not None and at % 2
        fill = lab.random.randrange(size - 8)
        cache = place / "cache.db" if out is None else shared.cache
        script = (
            f"mount -t tmpfs -o size={size}k,mode=700 tmpfs {place} && head -c {fill}k /dev/zero >{place}/filler; "
            + (f"echo old >{out}; " if over else "")
            + f'"$@"; code=$?; ls -A {place}; '
            + (f"test ! -e {out} || head -c 3 {out}; " if out else "")
            + "exit $code"
        )
        what = f"{' '.join(map(str, command[:2]))} on {size - fill} of {size} KB"
        done = lab.run(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", shared.program, *words],
            what,
            TRIGEN_CACHE=cache,
        )
        if b"mount:" in done.err:
            raise Skip("no tmpfs can be mounted here")
        listed = done.out.decode(errors="replace")
        if done.code != 0 and not re.search("trigen: error|No space|no space", done.text):
            lab.breaks("other", f"{what} ends with {done.code} and says nothing: {done.text}")
        if ".trigen-" in listed:
            lab.breaks("other", f"{what}: a temporary file is left: {listed}")
        if done.code != 0 and over and not listed.rstrip().endswith("old"):
            lab.breaks("lost", f"{what}: the old output is gone: {listed[-200:]}")


@attack("dev-full", "standard output is /dev/full: every command ends with 1", 25)
def dev_full(lab, count):
    bundle, cache = lab.shared.bundle, lab.shared.cache
    commands = [
        ["version"],
        ["--help"],
        ["help", "problem"],
        ["help", "exit-codes"],
        ["help", "--format", "man"],
        ["completion", "bash"],
        ["doctor"],
        ["doctor", "--json"],
        ["cache", "ls"],
        ["cache", "ls", "--json"],
        ["cache", "path"],
        ["cache", "path", "--all"],
        ["cache", "verify"],
        ["cache", "show", PROBLEM],
        ["cache", "coverage", "--arch", "sm_70", PROBLEM],
        ["emit", "--arch", "sm_70", PROBLEM],
        ["emit", "--ptx", "--arch", "sm_70", PROBLEM],
        ["emit", "--explain", "--arch", "sm_70", PROBLEM],
        ["emit", "--explain", "--json", "--arch", "sm_70", PROBLEM],
        ["help", "tables"],
        ["cache", "verify", "--rebuild", bundle],
        ["tune", "--help"],
        ["help", "--format", "markdown"],
        ["cache", "--help"],
        ["verify", "--device", "emulated:sm_70", "forward,dtype=f16,B=1,T=8,D=8"],
        ["cache", "quarantine", "--help"],
    ]
    for at in range(count):
        command = commands[at % len(commands)]
        with open("/dev/full", "wb", buffering=0) as full:  # written to, never replaced
            done = lab.trigen(*command, TRIGEN_CACHE=lab.copy(cache), stdout=full)
        if done.code != 1:
            lab.breaks("other", f"{' '.join(map(str, command))} ends with {done.code}")


@attack("outputs", "5 commands write over a device, a FIFO, a folder, links: these stay what they were", 30)
def outputs(lab, count):
    if not ROOT_USER:
        raise Skip("needs root to make devices of one's own")
    bundle = lab.shared.bundle
    commands = {
        "report": (["report", bundle, "-o"], ".html"),
        "export": (["cache", "export"], ".trigen"),
        "merge": (["cache", "merge", bundle, "-o"], ".trigen"),
        "emit": (["emit", "--ptx", "--arch", "sm_70", PROBLEM, "-o"], ".ptx"),
        "cubin": (["emit", "--cubin", "--arch", "sm_70", PROBLEM, "-o"], ".cubin"),
        "keygen": (["cache", "keygen", "--key"], ""),
    }
    kinds = ["null", "full", "fifo", "folder", "link to null", "link to a file"]
    for at in range(count):
        name, kind = list(commands)[at % len(commands)], kinds[at // len(commands) % len(kinds)]
        words, suffix = commands[name]
        target, reader = lab.new("target" + suffix), None
        place = lab.new("link" + suffix) if kind.startswith("link") else target
        if kind == "fifo":
            os.mkfifo(target)
            reader = lab.start(["cat", target])
        elif kind == "folder":
            target.mkdir()
        elif kind == "link to a file":
            target.write_text("old")
        else:
            node(target, kind.split()[-1])
        if place != target:
            place.symlink_to(target)
        before = stat.S_IFMT(target.lstat().st_mode), target.lstat().st_rdev
        done = lab.trigen(*words, place, what=f"{name} over {kind}", TRIGEN_CACHE=lab.shared.cache)
        if reader is not None:
            reader.kill()
            reader.wait()
        if place != target and not place.is_symlink():
            lab.breaks("other", f"{name} over {kind}: the link was replaced (status {done.code})")
        if (stat.S_IFMT(target.lstat().st_mode), target.lstat().st_rdev) != before:
            lab.breaks("other", f"{name} over {kind}: it is no longer what it was (status {done.code})")
        if kind.endswith("full") and done.code == 0:
            lab.breaks("other", f"{name} over {kind}: ends with 0")
        if kind == "link to a file" and done.code == 0 and place.is_symlink() and target.read_bytes() == b"old":
            lab.breaks("other", f"{name} over {kind}: ends with 0 and wrote nothing")


@attack("descriptors", "4 to 16 descriptors: plan and ls work or say what is missing", 26)
def descriptors(lab, count):
    for at in range(count):
        most, program = 4 + at // 2 % 13, (lab.shared.plan, lab.shared.program)[at % 2]
        words = [program] if at % 2 == 0 else [program, "cache", "ls"]
        done = lab.run(
            lab.limited(f"-n {most}", words),
            f"{program.name} with {most} descriptors",
            TRIGEN_CACHE=lab.copy(lab.shared.cache),
            TRIGEN_NO_JIT=1,
        )
        if done.code != 0 and not done.text.strip():
            lab.breaks("other", f"{program.name} with {most} descriptors ends with {done.code} and says nothing")


@attack("memory", "ulimit -v from nothing to 530 GB: plan, run and verify work or say what is missing", 24)
def memory(lab, count):
    for at in range(count):
        # the emulated device takes 128 GiB of addresses
        most = lab.random.choice(
            (
                lab.random.randrange(20 << 10, 400 << 10),
                (130 << 20) + lab.random.randrange(2 << 20),
                (130 << 20) + lab.random.randrange(400 << 20),
            )
        )
        program = (lab.shared.plan, lab.shared.plan, lab.shared.program)[at % 3]
        words = [program] if at % 3 < 2 else [program, "cache", "verify"]
        done = lab.run(
            lab.limited(f"-v {most}", words),
            f"{program.name} with {most} KB",
            TRIGEN_CACHE=lab.copy(lab.shared.cache),
            TRIGEN_EMULATED_THREADS=4,
            TRIGEN_NO_JIT=at % 2,
        )
        if done.code not in (0, 1) and done.code > 0 and done.code != 127:  # 127: the loader's own text
            lab.breaks("abort", f"{program.name} with {most} KB ends with {done.code}: {done.text[-300:]}")
        if done.code != 0 and not done.text.strip():
            lab.breaks("abort", f"{program.name} with {most} KB ends with {done.code} and says nothing")


@attack("few-threads", "1 to 10 threads and processes allowed: plan, tune, verify --rebuild", 10)
def few_threads(lab, count):
    if not ROOT_USER:
        raise Skip("needs root to run as a user without other processes")
    for at in range(count):
        most, user = 1 + at // 2 % 10, 300000 + os.getpid() % 100000 + at  # a user of no other process
        cache = lab.copy(lab.shared.cache)
        for path in (lab.folder, cache.parent):
            path.chmod(0o755)
        for path in (cache.parent, cache, cache.with_name(cache.name + ".lock")):
            os.chown(path, user, user)
        program = (lab.shared.plan, lab.shared.program)[at % 2]
        words = (
            [program]
            if at % 2 == 0
            else [
                program,
                "tune",
                "--force",
                "--device",
                "emulated:sm_70",
                "--candidates",
                "1",
                "--jobs",
                "3",
                "forward,dtype=f32,B=1,T=8,D=8",
            ]
        )
        done = lab.run(
            ["prlimit", f"--nproc={most}", *words],
            f"{program.name} with {most} threads",
            seconds=60,
            user=user,
            HOME=cache.parent,
            TMPDIR=cache.parent,
            TRIGEN_CACHE=cache,
            TRIGEN_EMULATED_THREADS=4,
        )
        if "terminate called" in done.text or done.code not in (0, 1):
            lab.breaks("abort", f"{program.name} with {most} threads ends with {done.code}: {done.text[-300:]}")
        if done.code != 0 and not re.search(r"thread|process|fork", done.text):
            lab.breaks("other", f"{program.name} with {most} threads does not say what is missing: {done.text[-300:]}")


@attack("threads", "threads that create plans; threads that plan, copy, run, free three times", 400)
def threads(lab, count):
    for mode, number in (("create", count - count // 12), ("threads", count // 12)):
        done = lab.plan(
            lab.copy(lab.shared.cache), f"{number} threads {mode}", mode=(mode, str(max(number, 1))), seconds=60 + count
        )
        lab.tally.tries += number - 1
        if done.code not in (0, 4):
            lab.breaks("other", f"{number} threads {mode}: {done.last}")


@attack("fork", "fork beside 3 threads that make, run and destroy plans: each child makes and runs one", 120)
def fork(lab, count):
    done = lab.plan(lab.copy(lab.shared.cache), mode=("fork", str(count)), seconds=60 + 5 * count)
    lab.tally.tries += count - 1
    found = re.search(rb"hung (\d+) killed (\d+) wrong (\d+)", done.out)
    if not found:
        lab.breaks("other", f"no result: {done.text[-300:]}")
        return
    for promise, number in zip(("hang", "abort", "wrong"), map(int, found.groups())):
        lab.breaks(promise, f"{number} of {count} children", number)


def family(marker):
    """Processes with this marker in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                marker in (folder / "environ").read_bytes()
                and b"Z" not in (folder / "stat").read_bytes().rpartition(b")")[2][:3]
            ):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


@attack("tune-killed", "tune and its workers killed (KILL, TERM, INT, SEGV): no orphans, TERM within 2 s", 8)
def tune_killed(lab, count):
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV]
    for at in range(count):
        number, of_worker = signals[at % 4], at % 3 == 2
        cache, marker = lab.copy(lab.shared.cache), f"{lab.shared.folder}/{lab.name}/{at}"
        one = lab.start(
            [
                lab.shared.program,
                "tune",
                "--force",
                "--device",
                "emulated:sm_70",
                "--candidates",
                "2",
                "forward,dtype=f32,B=1,T=24,D=16",
            ],
            TRIGEN_CACHE=cache,
            TRIGEN_TEST_ATTACK=marker,
        )
        time.sleep(lab.random.uniform(0.05, 1.5))
        workers = [pid for pid in family(marker.encode() + b"\0") if pid != one.process.pid]
        what = f"tune, {'a worker' if of_worker else 'itself'}: {number.name}"
        lab.tally.tries += 1
        if of_worker and workers:
            for victim in workers[:1]:
                try:
                    os.kill(victim, number)
                except ProcessLookupError:
                    pass
            done = one.wait(60)
            if done.hung or done.code not in (0, 1):
                lab.breaks("abort", f"{what}: ends with {done.code}: {done.last}")
        else:
            sent = time.monotonic()
            one.kill(number)
            done = one.wait(60)
            if number in (signal.SIGTERM, signal.SIGINT) and time.monotonic() - sent > 2:
                lab.breaks("other", f"{what}: took {time.monotonic() - sent:.1f} s to end")
        time.sleep(0.5)
        if orphans := family(marker.encode() + b"\0"):
            lab.breaks("other", f"{what}: {len(orphans)} processes are left")
            for orphan in orphans:
                os.kill(orphan, signal.SIGKILL)
        check_kept(lab, cache, set(), what)
