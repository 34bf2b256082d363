"""Attacks by files that others wrote: journals, what lies beside a cache, bombs, damage, locks, labels, merges."""

import hashlib
import itertools
import os
import sqlite3
import stat
import struct

from lab import (
    BUILD,
    ROOT_USER,
    STRANGER,
    Skip,
    attack,
    bomb,
    edit,
    frame,
    multiply,
    numbered,
    opened,
    pack,
    put,
    relabel,
    rows,
)

PAGE, SECTOR, MAGIC = 4096, 512, bytes.fromhex("d9d505f920a163d7")


def journal(database, super_journal=b"", with_pages=True):
    """A hot rollback journal that turns what it lies beside into `database`, and has SQLite delete `super_journal`."""
    pages = len(database) // PAGE if with_pages else 0
    out = (MAGIC + struct.pack(">IIIII", pages, 0, len(database) // PAGE, SECTOR, PAGE)).ljust(SECTOR, b"\0")
    for page in range(pages):
        data = database[page * PAGE : (page + 1) * PAGE]
        out += (
            struct.pack(">I", page + 1) + data + struct.pack(">I", sum(data[at] for at in range(PAGE - 200, 0, -200)))
        )
    if super_journal:
        out += (
            struct.pack(">I", (1 << 30) // PAGE + 1)
            + super_journal
            + struct.pack(">II", len(super_journal), sum(super_journal))
            + MAGIC
        )
    return out


def plant(path, kind, content=b"", victim=None):
    """Something of `kind` at `path`."""
    if kind == "file":
        path.write_bytes(content)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(victim)
    elif kind == "hard link":
        os.link(victim, path)
    elif kind == "link loop":
        path.symlink_to(path.name)
    elif kind == "sparse":
        with open(path, "wb") as file:
            file.truncate(5 << 30)
    elif kind == "device":
        node(path, "zero")
    return path


def node(path, name):
    """A device of one's own: nothing may ever be renamed over the machine's."""
    if not ROOT_USER:
        raise Skip("needs root to make a device")
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, {"null": 3, "zero": 5, "full": 7}[name]))
    path.chmod(0o666)
    return path


@attack("journals", "planted -journal: pages, super-journal, FIFO, link, folder, 5 GB; 6 folders and owners", 150)
def journals(lab, count):
    evil = lab.shared.evil_cache.read_bytes()
    kinds = ["pages", "super-journal", "super-journal alone", "fifo", "link", "hard link", "folder", "sparse", "device"]
    places = ["own", "everybody's", "sticky", "group's"] + (["stranger's", "stranger's file"] if ROOT_USER else [])
    commands = [("plan",), ("cache", "ls"), ("cache", "verify")]
    cases = list(itertools.product(kinds, places, commands))
    for at in range(count):
        kind, place, command = cases[at % len(cases)] if count >= len(cases) else lab.random.choice(cases)
        if kind == "device" and not ROOT_USER:
            continue
        cache = lab.copy(lab.shared.cache)
        victim = lab.new("victim")
        victim.write_bytes(journal(evil) if "link" in kind else b"precious")
        beside = cache.with_name(cache.name + "-journal")
        contents = {
            "pages": journal(evil),
            "super-journal": journal(evil, bytes(victim)),
            "super-journal alone": journal(evil, bytes(victim), False),
        }
        plant(beside, "file" if kind in contents else kind, contents.get(kind), victim)
        if place == "stranger's file":
            os.chown(beside, STRANGER, STRANGER, follow_symlinks=False)
        folder = cache.parent
        folder.chmod({"everybody's": 0o777, "sticky": 0o1777, "group's": 0o770}.get(place, 0o700))
        if place == "stranger's":
            os.chown(folder, STRANGER, STRANGER)
        elif place == "group's" and ROOT_USER:
            os.chown(folder, 0, STRANGER)
        before, precious = cache.read_bytes(), victim.read_bytes()
        rolled_back = kind == "pages" and place == "own"  # one's own journal in one's own folder is one's own
        what = f"{' '.join(command)}, {kind} in a folder: {place}"
        if command == ("plan",):
            lab.plan(cache, what, TRIGEN_CANARY="1" if rolled_back else "0")
        else:
            lab.trigen(*command, what=what, TRIGEN_CACHE=cache)
        if victim.read_bytes() != precious if victim.exists() else True:
            lab.breaks("other", f"{what}: the victim is gone or changed")
        if not rolled_back and cache.read_bytes() != before:
            lab.breaks("other", f"{what}: the journal was believed")
        if rolled_back and cache.read_bytes() == before:
            lab.breaks("other", f"{what}: one's own journal was not rolled back: the attack shows nothing")


@attack("beside", "planted .lock, .used, .minisig, -wal, layers and shards: FIFO, link, device, folder, 5 GB", 120)
def beside(lab, count):
    kinds = ["fifo", "link", "hard link", "folder", "sparse", "link loop"] + (["device"] if ROOT_USER else [])
    targets = [".lock", ".used", ".minisig", "", "-wal", "shard"]
    commands = [("plan",), ("cache", "ls"), ("cache", "verify"), ("cache", "import"), ("report",), ("cache", "merge")]
    cases = list(itertools.product(kinds, targets, commands))
    lab.random.shuffle(cases)
    key = lab.new("key")
    lab.trigen("cache", "keygen", "--key", key)
    public = key.with_name("key.pub")
    for kind, target, command in (cases * (count // len(cases) + 1))[:count]:
        cache = lab.copy(lab.shared.cache)
        victim = lab.new("victim")
        victim.write_bytes(b"precious" * 100)
        path = cache.with_name(cache.name + target) if target != "shard" else cache.with_name("0" * 64 + ".trigen")
        if path.exists():
            path.unlink()
        plant(path, kind, victim=victim)
        file = path if target in ("", "shard") else cache
        what = f"{' '.join(command)}, {kind} as {target or 'layer'}"
        variables = {"TRIGEN_TRUSTED_KEYS": str(public)} if target == ".minisig" else {}
        own = lab.new("cache.db")
        if command == ("plan",):
            lab.plan(f"{own}:{file}" if target == ".minisig" else file, what, **variables)
        else:
            out = ["-o", lab.new("out.trigen")] if command[-1] in ("merge", "report") else []
            given = [file] if command[-1] in ("import", "report", "merge", "verify") else []
            lab.trigen(*command, *given, *out, what=what, TRIGEN_CACHE=own if given else cache, **variables)
        if victim.read_bytes() != b"precious" * 100:
            lab.breaks("other", f"{what}: the victim was changed")


def chained(file, count):
    """Rows whose payload lies on the first binary's overflow pages, again and again: more bytes than the file has."""
    base = opened(file)
    record, binary = rows(base, "records")[0], rows(base, "binaries")[0]
    binary["cubin"] = os.urandom(1 << 20)
    base.execute("PRAGMA writable_schema=OFF")
    for number in range(count):
        source_hash = hashlib.sha256(b"%d" % number).hexdigest()
        put(base, "binaries", {**binary, "source_hash": source_hash, "problem": numbered(number + 2)})
        put(base, "records", {**record, "source_hash": source_hash, "problem": numbered(number + 2)})
    base.close()
    data = bytearray(file.read_bytes())
    # Where the chains' pages with these bytes lie: those of the other rows go on with the first row's.
    at, first = [], bytes(binary["cubin"][20000:20064])
    while (found := data.find(first, at[-1] + 1 if at else 0)) >= 0:
        at.append(found)
    heads = [found // PAGE * PAGE for found in at]
    for head in heads[1:]:
        data[head : head + 4] = data[heads[0] : heads[0] + 4]  # and the rest of the first chain
    file.write_bytes(data)
    return file


@attack("bombs", "frames of 64 MiB to 1 GiB, shared overflow pages, evidence of nested JSON; 8 commands", 32)
def bombs(lab, count):
    shared = lab.shared

    def bundle(change, number=60):
        return multiply(lab.copy(shared.bundle), range(2, 2 + number), change)

    def evidence(packed, devices=1):
        """400 measured rows that teach of another B, or as many devices' of one problem."""
        return multiply(
            lab.copy(shared.bundle),
            range(2, 402),
            lambda at: {
                "record": {
                    "evidence": packed,
                    "provenance": 1,
                    "device": f"GPU {at % devices}",
                    "sms": 80,
                    "driver": "580",
                    "problem": numbered(at if devices == 1 else 2),
                }
            },
            binaries=False,
        )

    closed = frame(1 << 20, [(1, 1 << 17, b"[")] * 4 + [(1, 1 << 17, b"]")] * 4)
    kinds = {
        "evidence of 64 MiB, 60 times": bundle(lambda at: {"record": {"evidence": bomb(64 << 20)}}),
        "a cubin of 64 MiB": bundle(lambda at: {"binary": {"cubin": bomb(64 << 20)}}, 4),
        "a log of 128 MiB": bundle(lambda at: {"binary": {"log": bomb(128 << 20)}}, 4),
        "PTX of 1 GiB": bundle(lambda at: {"binary": {"ptx": bomb(1 << 30)}}, 2),
        "shared overflow pages": chained(lab.copy(shared.bundle), 60),
        "400 neighbours' nested evidence": evidence(closed),
        "400 neighbours' open brackets": evidence(bomb(1 << 20, b"[")),
        "nested evidence of 400 devices": evidence(closed, 400),
    }
    commands = [
        ("plan",),
        ("cache", "import"),
        ("cache", "merge"),
        ("report",),
        ("cache", "diff"),
        ("cache", "verify"),
        ("cache", "show"),
        ("cache", "show", "--json"),
    ]
    cases = list(itertools.product(kinds, commands))
    lab.random.shuffle(cases)
    most = 0
    for kind, command in (cases * (count // len(cases) + 1))[:count]:
        file, out, own = kinds[kind], lab.new("out.trigen"), lab.new("cache.db")
        what = f"{' '.join(command)}, {kind}"
        if command == ("plan",):  # another B, whose neighbours are read
            done = lab.plan(file, what, TRIGEN_NO_JIT="0")
        else:
            words = {
                "merge": [file, "-o", out],
                "report": [file, "-o", out],
                "diff": [file, shared.bundle],
                "show": [numbered(2)],
                "--json": [numbered(2)],
            }.get(command[-1], [file])
            done = lab.trigen(*command, *words, what=what, TRIGEN_CACHE=file if "show" in command else own)
        most = max(most, done.megabytes)
        if done.megabytes > 500:
            lab.breaks("other", f"{what}: {done.megabytes:.0f} MB of memory")
        made = max([path.stat().st_size for path in (out, own) if path.exists()], default=0)
        if made > 4 * file.stat().st_size + (1 << 20):
            lab.breaks("other", f"{what}: {file.stat().st_size} bytes became {made}")
    lab.note(f"at most {most:.0f} MB")


@attack("endless", "/dev/zero, a FIFO that never ends and a link where a file is named; 11 commands", 33)
def endless(lab, count):
    out, bundle = lab.new("out.html"), lab.shared.bundle
    commands = [
        ["report", "--dense", "FILE", "-o", out, bundle],
        ["replay", "FILE"],
        ["cache", "coverage", "--arch", "sm_70", "--problems", "FILE"],
        ["cache", "import", "FILE"],
        ["cache", "verify", "--keys", "FILE", bundle],
        ["cache", "sign", "--key", "FILE", bundle],
        ["cache", "status", "--fleet", "FILE"],
        ["model", "check", "FILE"],
        ["model", "dense", "FILE"],
        ["sweep", "1", "--print-problems", "--unseen", "FILE"],
        ["doctor", "--environment", "FILE"],
    ]
    for at in range(count):
        path, writer = lab.new("input.txt"), None
        kind = ("zero", "fifo", "link")[at // len(commands) % 3] if ROOT_USER else "fifo"
        if kind == "fifo":
            os.mkfifo(path)
            writer = lab.start(["sh", "-c", f"exec cat /dev/zero >{path}"])
        elif kind == "zero":
            node(path, "zero")
        else:
            path.symlink_to(node(lab.new("zero"), "zero"))
        words = [path if word == "FILE" else word for word in commands[at % len(commands)]]
        program = BUILD / "trigen-lab" if words[0] in ("replay", "model", "sweep") else lab.shared.program
        done = lab.run(lab.limited("-v 4000000", [program, *words]), f"{words[0]} {words[1]}, {kind}")
        if done.code == 0:
            lab.breaks("other", f"{words}: accepted")
        if done.megabytes > 1000:  # which ends it: without a limit it would go on
            lab.breaks("hang", f"{words[0]} {words[1]}, {kind}: took {done.megabytes:.0f} MB")
        if writer is not None:
            writer.kill()
            writer.wait()


def damaged(random, data, kind):
    data = bytearray(data)

    def page():
        return random.randrange(len(data) // PAGE) * PAGE

    if kind == "flip":
        for _ in range(random.choice((1, 1, 2, 30))):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "cut":
        del data[random.randrange(len(data)) :]
    elif kind == "swap":
        one, two = page(), page()
        data[one : one + PAGE], data[two : two + PAGE] = data[two : two + PAGE], data[one : one + PAGE]
    elif kind == "zero":
        one = page()
        data[one : one + PAGE] = bytes(PAGE)
    elif kind == "header":
        data[random.randrange(100)] = random.randrange(256)
    return bytes(data)


@attack("damage", "flips, cuts, swapped and zeroed pages, headers of .db and .trigen; plan, 6 commands", 300)
def damage(lab, count):
    sources = []
    for file in (lab.shared.cache, lab.shared.bundle):
        base = opened(
            lab.copy(file)
        )  # right rows and wrong ones' digests do not fit, so pages swapped between rows of two kernels show
        base.close()
        sources.append((file.suffix, file.read_bytes()))
    others = ["ls", "verify", "merge", "import", "report", "diff"]
    for at in range(count):
        suffix, data = sources[at % 2]
        kind = ("flip", "flip", "cut", "swap", "zero", "header")[at // 2 % 6]
        file = lab.new("cache" + suffix)
        file.write_bytes(damaged(lab.random, data, kind))
        file.chmod(0o600)
        if at % 3 == 0:
            command, out = others[at // 3 % len(others)], lab.new("out.trigen")
            words = {
                "ls": ["cache", "ls"],
                "verify": ["cache", "verify", file],
                "merge": ["cache", "merge", file, "-o", out],
                "import": ["cache", "import", file],
                "report": ["report", file, "-o", out],
                "diff": ["cache", "diff", file, lab.shared.bundle],
            }[command]
            lab.trigen(
                *words, what=f"{command}, {kind} {file}", TRIGEN_CACHE=file if command == "ls" else lab.new("own.db")
            )
        lab.plan(file, f"plan, {kind} {file}")


@attack("locked", "the cache is locked by another program: plan with and without a compiler, ls, import, rm", 5)
def locked(lab, count):
    commands = [None, ["cache", "ls"], ["cache", "import", lab.shared.bundle], None, ["cache", "rm", "--all"]]
    started = []
    for at in range(count):
        cache = lab.copy(lab.shared.cache)
        other = sqlite3.connect(cache, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN EXCLUSIVE")
        command = commands[at % len(commands)]
        words = [lab.shared.program, *command] if command else [lab.shared.plan]
        started.append(
            (
                other,
                cache,
                f"{command or 'plan'}",
                lab.start(words, TRIGEN_CACHE=cache, TRIGEN_NO_JIT=str(int(at % 5 == 3))),
            )
        )
    for other, _, what, one in started:  # they wait beside each other
        lab.judge(one.wait(), what)
        other.execute("ROLLBACK")
        other.close()


@attack("relabelled", "another PTX, cubin, source, entry, candidate, problem, options, compiler: --rebuild, plan", 12)
def relabelled(lab, count):
    evil = {"ptx": pack(lab.shared.evil_ptx)}
    cases = {
        "PTX": evil,
        "cubin": {"cubin": pack(b"\x7fELF" + bytes(5000))},
        "source": {"source": pack('extern "C" void x() {}')},
        "entry": {"entry": "other"},
        "log": {"log": pack("ptxas error")},
        "candidate and PTX": {**evil, "candidate": "simt:tile=64x64x16"},
        "problem and PTX": {**evil, "problem": numbered(7)},
        "options and PTX": {**evil, "options": "--std=c++20"},
        "compiler and PTX": {**evil, "compiler": "nvrtc 99.9.99"},
        "unknown compiler and PTX": {**evil, "compiler": "clang 17"},
        "older compiler and PTX": {**evil, "compiler": "nvrtc 11.2.1"},
        "arch and PTX": {**evil, "arch": "sm_72"},
    }
    names = list(cases)
    for at in range(count):
        what, changes = names[at % len(names)], cases[names[at % len(names)]]
        file = lab.copy(lab.shared.bundle)
        relabel(file, **{name: value for name, value in changes.items() if name in ("options", "compiler", "arch")})
        edit(file, "binaries", **changes)
        done = lab.trigen("cache", "verify", "--rebuild", file, what=f"verify --rebuild, {what}")
        if done.code == 0 and what != "log":  # which nothing depends on
            lab.breaks("other", f"verify --rebuild ends with 0 over another {what}: {done.text}")
        lab.plan(f"{lab.new('own.db')}:{file}", f"plan, another {what}", TRIGEN_NO_JIT="0", TRIGEN_CANARY="1")


@attack("merge", "6 conflicting files in many orders: one SHA-256; exports and signatures: the same bytes", 24)
def merge(lab, count):
    inputs = []
    for at in range(6):
        file = lab.copy(lab.shared.bundle, f"{at}.trigen")
        change = {
            "median_us": 1.0 + at % 3,
            "stored_at": 1700000000 + 7 * (at % 4),
            "provenance": at % 2,
            "device": "GPU" * (at % 2),
            "sms": 80 * (at % 2),
        }
        edit(file, "records", **change)
        relabel(file, compiler=f"nvrtc 12.{at % 3}.{at}")
        inputs.append(file)
    sums = set()
    for at in range(count):
        order, out = lab.random.sample(inputs, len(inputs)), lab.new("out.trigen")
        if at % 3 == 1:
            order.append(order[0])
        elif at % 3 == 2:
            cut, part = lab.random.randrange(1, len(order)), lab.new("part.trigen")
            lab.trigen("cache", "merge", *order[:cut], "-o", part)
            order = [part, *order[cut:]]
        done = lab.trigen("cache", "merge", *order, "-o", out)
        if done.code != 0:
            lab.breaks("other", f"merge ends with {done.code}: {done.last}")
        else:
            sums.add(hashlib.sha256(out.read_bytes()).hexdigest())
    if len(sums) > 1:
        lab.breaks("other", f"{len(sums)} results of one merge")
    key = lab.new("key")
    lab.trigen("cache", "keygen", "--key", key)
    made = set()
    for _ in range(2):
        out = lab.new("core.trigen")
        lab.trigen("cache", "export", out, TRIGEN_CACHE=lab.shared.cache, SOURCE_DATE_EPOCH=1700000000)
        lab.trigen("cache", "sign", "--key", key, out, SOURCE_DATE_EPOCH=1700000000)
        made.add(out.read_bytes() + out.with_name(out.name + ".minisig").read_bytes())
    if len(made) > 1:
        lab.breaks("other", "two exports and signatures of one date differ")
