"""Attacks on trust: signatures, texts that others wrote, places and libraries of others."""

import base64
import html.parser
import itertools
import json
import os
import re
import shutil
import struct
import sys
import tempfile
from pathlib import Path

from files import plant

from lab import PROBLEM, ROOT_USER, STRANGER, Skip, attack, edit, kept, opened, pack

HERE = Path(__file__).parent


WAYS = ("import", "C import", "layer", "merge", "C merge", "verify", "option", "C option")


def lines_of(signature):
    return signature.decode("latin1").split("\n")


def decoded(signature):
    """What a signature says, without its untrusted comment and the ways to write it; None for none."""
    try:
        # libsodium reads '+' and '/' with their highest bit set as what they were
        lines = [line.rstrip("\r").replace("\xab", "+").replace("\xaf", "/") for line in lines_of(signature)]
        return (
            base64.b64decode(lines[1], validate=True),
            lines[2],
            base64.b64decode(lines[3], validate=True),
            "".join(lines[4:]).strip(),
        )
    except (IndexError, ValueError):
        return None


@attack("signatures", "damaged, forged, swapped, renamed; odd key lists; import, merge, verify, a layer, C", 300)
def signatures(lab, count):
    shared, random = lab.shared, lab.random
    keys = {}
    for name in ("maker", "stranger"):
        keys[name] = lab.new(name)
        lab.trigen("cache", "keygen", "--key", keys[name])
    public = keys["maker"].with_name("maker.pub")

    def signed(source, key, name="core.trigen"):
        file = lab.copy(source, name)
        lab.trigen("cache", "sign", "--key", keys[key], file)
        return file.read_bytes(), file.with_name(name + ".minisig").read_bytes()

    good, good_sig = signed(shared.bundle, "maker")
    evil, by_stranger = signed(shared.evil_bundle, "stranger")
    other_name = signed(shared.evil_bundle, "maker", "old.trigen")[1]
    number = base64.b64decode(lines_of(good_sig)[1])[2:10]

    def with_line(signature, at, change):
        lines = lines_of(signature)
        lines[at] = base64.b64encode(change(bytearray(base64.b64decode(lines[at])))).decode()
        return "\n".join(lines).encode("latin1")

    def flipped(data):
        data = bytearray(data)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data)

    text = lines_of(good_sig)
    makers = [
        lambda: (flipped(good), good_sig),
        lambda: (good, flipped(good_sig)),
        lambda: (good, flipped(good_sig)),
        lambda: (good[: random.randrange(len(good))], good_sig),
        lambda: (good + b"\0" * random.randrange(1, 9), good_sig),
        lambda: (good, good_sig[: random.randrange(len(good_sig))]),
    ]
    fixed = [
        (evil, b""),
        (evil, None),
        (evil, good_sig),
        (evil, by_stranger),
        (evil, other_name),
        (evil, with_line(by_stranger, 1, lambda data: data[:2] + number + data[10:])),
        (good, with_line(good_sig, 1, lambda data: b"Ed" + data[2:])),
        (good, "\n".join([text[0], text[3], text[2], text[1], ""]).encode()),
        (evil, by_stranger + good_sig),
        (evil, good_sig + by_stranger),
        (good, "\n".join(text[:2]).encode()),
        (good, b"\xef\xbb\xbf" + good_sig),
        (good, "\n".join([text[0], text[1], text[2].replace("timestamp:", "timestamp:1"), text[3], ""]).encode()),
    ]
    lists = [str(public)] * 6 + ["", ":", "/no/such/key", f"{public}@99999999999", "RW" + "A" * 54]
    cases, c_calls = [], []
    for at in range(count):
        bundle, signature = fixed[at] if at < len(fixed) else random.choice(makers)()
        file = lab.new("core.trigen")
        file.write_bytes(bundle)
        if signature is not None:
            file.with_name("core.trigen.minisig").write_bytes(signature)
        keys_of = lists[at % len(lists)] if at >= len(fixed) else str(public)
        honest = (
            bundle == good
            and signature is not None
            and decoded(signature) == decoded(good_sig)
            and keys_of == str(public)
        )
        way = WAYS[at % len(WAYS)] if at >= len(fixed) else None
        cases += [(file, keys_of, honest, each) for each in ([way] if way else WAYS)]
    cases.append((lab.copy(shared.bundle, "core.trigen"), str(public), True, "import"))  # else nothing is shown
    cases[-1][0].with_name("core.trigen.minisig").write_bytes(good_sig)
    accepted = 0

    def judge(file, honest, way, code, text=""):
        nonlocal accepted
        accepted += code == 0
        if code == 0 and not honest:
            lab.breaks("unsigned", f"{way} takes {file}: {text[-200:]}")
        if code != 0 and file == cases[-1][0]:
            lab.breaks("other", f"{way} refuses an honest {file}: {text[-300:]}")

    for file, keys_of, honest, way in cases:
        trusted = {"TRIGEN_TRUSTED_KEYS": keys_of}
        own, out = lab.new("own.db"), lab.new("out.trigen")
        if way.startswith("C "):
            c_calls.append((keys_of, honest, way, file, out if way == "C merge" else own))
            continue
        words = {
            "import": ["cache", "import", file],
            "merge": ["cache", "merge", file, "-o", out],
            "verify": ["cache", "verify", "--keys", keys_of or ":", file],
            "option": ["cache", "import", "--trusted-keys", keys_of or ":", file],
        }
        if way == "option":
            trusted = {}
        if keys_of == "" and way in ("import", "merge"):
            trusted = {}
            words[way] = ["env", "TRIGEN_TRUSTED_KEYS=", shared.program, *words[way]]
            done = lab.run(words[way], f"{way}, no key, {file}", TRIGEN_CACHE=own)
        elif keys_of == "" and way == "layer":
            continue
        elif way == "layer":
            done = lab.plan(f"{own}:{file}", f"plan over {file}", **trusted)
        else:
            done = lab.trigen(*words[way], what=f"{way} {file}", TRIGEN_CACHE=own, **trusted)
        judge(file, honest, way, done.code, done.text)
        if way == "import" and done.code != 0 and own.exists() and kept(own):
            lab.breaks("unsigned", f"import refuses {file} and takes its rows")
    for keys_of, by_option in sorted({(call[0], call[2] == "C option") for call in c_calls}):
        calls = [call for call in c_calls if (call[0], call[2] == "C option") == (keys_of, by_option)]
        variable = [] if by_option else ["env", f"TRIGEN_TRUSTED_KEYS={keys_of}"]
        order = tempfile.TemporaryFile()
        order.write("".join(f"{way[2:]}\t{file}\t{out}\t{keys_of}\n" for _, _, way, file, out in calls).encode())
        order.seek(0)
        done = lab.run(
            [*variable, sys.executable, "-B", HERE / "c_calls.py", shared.library, "files"],
            "the C interface",
            stdin=order,
            seconds=60,
        )
        codes = done.out.split()
        if len(codes) != len(calls):
            lab.breaks("abort", f"the C interface ended after {len(codes)} of {len(calls)} files: {done.text[-300:]}")
        lab.tally.tries += len(codes) - 1
        for (_, honest, way, file, _), code in zip(calls, codes):
            judge(file, honest, way, int(code))
    lab.note(f"{accepted} honest ones taken")


class Page(html.parser.HTMLParser):
    """What a browser would run of a page that the payloads below could have brought."""

    def __init__(self, text):
        super().__init__()
        self.found, self.inside = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        self.found += [
            f"<{tag} {name}>"
            for name, value in attributes
            if name.startswith("on") or "planted" in (value or "") and name in ("href", "src", "style")
        ]
        self.found += [f"<{tag}>"] if tag in ("img", "iframe", "object", "embed") else []

    def handle_data(self, data):
        if self.inside == "script" and "planted(" in data:
            self.found.append("<script> that was planted")


PAYLOADS = {
    "ESC": "\x1b]52;c;cGxhbnRlZA==\x07\x1b[2J",
    "newline": "x\ntrigen: error: planted; run: rm -rf /",
    "CR": "x\rtrigen: error: planted",
    "bidi": "\u202etxet\u2066 x",
    "C1": "\x9b31mplanted\x9d0;x\x9c",
    "HTML": "\"'><script>planted(1)</script><img src=x onerror=planted(1)>",
    "HTML in an attribute": 'x" onmouseover="planted(1)" x="',
    "end of script": "</script><script>planted(1)</script>",
    "bad UTF-8": b"\xff\xfe\xc3\x28\xed\xa0\x80",
    "NUL": "x\0y",
    "long": "x" * 20000,
}
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@attack("text", "ESC, newline, bidi, C1, HTML, bad UTF-8 in every text field and in file names; 21 commands", 120)
def text(lab, count):
    shared = lab.shared
    # Fields that can be planted together, as none hides the others.
    fields = [
        ("records", "problem"),
        ("records", "device driver candidate compiler options binary_arch"),
        ("records", "evidence"),
        ("binaries", "problem"),
        ("binaries", "candidate compiler options entry arch"),
        ("binaries", "log source"),
        ("coverage", "problem"),
        ("coverage", "arch answer"),
        ("meta", "key value"),
        ("file", "name"),
    ]
    cases = list(itertools.product(PAYLOADS, fields))
    lab.random.shuffle(cases)

    def planted(payload, table, names):
        value, names = PAYLOADS[payload], names.split()
        if table == "file":
            word = value if isinstance(value, bytes) else value.encode()
            return lab.copy(shared.bundle, os.fsdecode(word.replace(b"/", b"_").replace(b"\0", b"")[:200] + b".trigen"))
        file = lab.copy(shared.bundle)
        raw = value if isinstance(value, bytes) else value.encode()
        if table in ("coverage", "meta"):
            base = opened(file)
            base.execute(
                f"UPDATE {table} SET "
                + ",".join(f"{name}=CAST(?1 AS TEXT)" for name in names)
                + " WHERE rowid=(SELECT min(rowid) FROM meta)" * (table == "meta"),
                [raw],
            )
            base.close()
        elif "log" in names:
            edit(file, table, **{name: pack(raw) for name in names})
        elif names == ["evidence"]:
            words = value if isinstance(value, str) else value.decode("latin1")
            evidence = {
                "model": words,
                "notes": [words],
                "gpu": {"name": words},
                "candidates": [{"candidate": words, "error": words, "note": words, "quick_us": [1.0]}],
                "dense": {"name": words},
                "host": words,
            }
            edit(file, table, evidence=pack(json.dumps(evidence)), provenance=1, device="GPU", sms=80, driver="580")
        else:
            edit(file, table, **{name: raw for name in names})
        return file

    commands = [
        ["ls"],
        ["ls", "--json"],
        ["show", PROBLEM],
        ["show", "--json", PROBLEM],
        ["verify"],
        ["verify", "FILE"],
        ["verify", "--rebuild", "FILE"],
        ["diff", "FILE", shared.bundle],
        ["export", "OUT"],
        ["import", "FILE"],
        ["merge", "FILE", "-o", "OUT"],
        ["report"],
        ["coverage", "--arch", "sm_70", PROBLEM],
        ["coverage", "--json", "--arch", "sm_70", PROBLEM],
        ["status", "--fleet", "FOLDER"],
        ["status", "--json", "--fleet", "FOLDER"],
        ["path", PROBLEM, "--arch", "sm_70"],
        ["path", "--all"],
        ["plan"],
        ["doctor"],
        ["doctor", "--json"],
    ]
    ran = 0
    for at in range(count):
        payload, (table, name) = cases[at % len(cases)]
        file = planted(payload, table, name)
        for command in lab.random.sample(commands, 3):
            out, own = lab.new("out.trigen"), lab.new("own.db")
            fill = {"FILE": file, "OUT": out, "FOLDER": file.parent}
            words = [fill.get(word, word) for word in command]
            variables = {"TRIGEN_CACHE": own if "FILE" in command else f"{own}:{file}", "TRIGEN_LOG": "debug"}
            page = lab.new("page.html")
            if command == ["plan"]:
                done = lab.run([shared.plan], f"plan, {payload} in {table}.{name}", TRIGEN_NO_JIT=1, **variables)
            else:
                top = (
                    ["report", file, "-o", page]
                    if command == ["report"]
                    else words
                    if command[0] == "doctor"
                    else ["cache", *words]
                )
                done = lab.trigen(*top, what=f"{command}, {payload} in {table}.{name}", **variables)
            ran += 1
            what = f"{' '.join(map(str, command[:2]))}, {payload} in {table}.{name}"
            said = done.text
            if found := FORBIDDEN.search(said):
                lab.breaks("other", f"{what}: {said[max(0, found.start() - 60) : found.end() + 30]!r}")
            if any(line.startswith("trigen: error: planted") for line in said.splitlines()):
                lab.breaks("other", f"{what}: a line of its own")
            if "--json" in command and done.out.strip():
                try:
                    json.loads(done.out)
                except ValueError as error:
                    lab.breaks("other", f"{what}: no JSON: {error}")
            if page.exists() and (bad := Page(page.read_text(errors="replace")).found):
                lab.breaks("other", f"{what}: the page has {bad[:3]}")
    lab.note(f"{ran} commands")


def evil_library(lab):
    """A library, and the file that it makes when it is loaded."""
    marker = lab.folder / "loaded"
    source = lab.folder / "evil.c"
    source.write_text(
        "#include <fcntl.h>\n__attribute__((constructor)) static void evil(void) "
        f'{{ open("{marker}", O_CREAT | O_WRONLY, 0666); }}\n'
    )
    lab.folder.chmod(0o777)
    library = lab.shared.compile(source, f"{lab.name}/evil.so", "-shared", "-fPIC")
    done = lab.start([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{library}')"]).wait()
    if not marker.exists():
        raise RuntimeError(f"the planted library does nothing: {done.text}")
    marker.unlink()
    return library, marker


def furnish(place, library):
    """A folder that offers the library wherever one is looked for."""
    folders = [
        "",
        "lib",
        "lib64",
        "bin",
        "nvidia/cuda_nvrtc/lib",
        "lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib",
        "lib/stubs",
        "targets/x86_64-linux/lib",
    ]
    for folder in folders:
        (place / folder).mkdir(parents=True, exist_ok=True)
        for name in (
            "libnvrtc.so.12",
            "libnvrtc.so.99",
            "libcuda.so.1",
            "libcublas.so.12",
            "libnvidia-ml.so.1",
            "libtrigen_emulator.so",
            "libnvrtc-builtins.so.12.9",
            "libpthread.so.0",
            "libdl.so.2",
        ):
            shutil.copy(library, place / folder / name)


VARIABLES = [
    "PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "HOME",
    "XDG_CACHE_HOME",
]


@attack("set-uid", "set-uid plan program and CLI, variables naming a stranger's library, program or cache", 40)
def set_uid(lab, count):
    if not ROOT_USER:
        raise Skip("needs root to make set-uid programs")
    library, marker = evil_library(lab)
    place = lab.new(mode=0o755)
    furnish(place, library)
    (place / "trigen").mkdir()
    shutil.copy(lab.shared.evil_cache, place / "trigen/cache.db")
    for path in [place, *place.rglob("*")]:
        os.chown(path, STRANGER, STRANGER)
    programs = []
    for program in (lab.shared.plan, lab.shared.program):
        copy = lab.new(program.name, 0o755)
        shutil.copy(program, copy)
        copy.chmod(0o4755)
        programs.append(copy)
    single = {name: f"{place}/bin" if name == "PATH" else str(place) for name in VARIABLES}
    single.update(
        {
            "TRIGEN_DRIVER": str(library),
            "TRIGEN_NVRTC": str(place / "lib"),
            "TRIGEN_CUBLAS": str(library),
            "TRIGEN_NVML": str(library),
            "TRIGEN_CACHE": str(place / "trigen/cache.db"),
            "TRIGEN_TRUSTED_FOLDERS": "/",
            "TRIGEN_NVDISASM": str(place / "bin/nvdisasm"),
        }
    )
    if lab.start([programs[0]], user=STRANGER, TRIGEN_DRIVER=str(library)).wait().code == 0:
        raise Skip("the temporary folder is on a file system without set-uid")
    for at in range(count):
        names = list(single) if at % 8 == 0 else lab.random.sample(list(single), lab.random.randrange(1, 5))
        words = (
            [programs[0]],
            [programs[1], "doctor"],
            [programs[1], "tune", "--no-device", "--arch", "sm_70", "--candidates", "1", "--cache", "none", PROBLEM],
        )[at % 3]
        lab.run(
            words,
            f"set-uid {words[0].name} with {names}",
            user=STRANGER,
            **{**{name: "" for name in ("TRIGEN_NVRTC",)}, **{name: single[name] for name in names}},
        )
        if marker.exists():
            lab.breaks("other", f"set-uid {words[0].name} with {names}: the library was loaded")
            marker.unlink()


@attack("places", "., strangers' and everybody's folders with planted libraries in 9 variables and as cwd", 30)
def places(lab, count):
    library, marker = evil_library(lab)
    kinds = [".", "everybody's"] + (["stranger's"] if ROOT_USER else [])
    made = {}
    for kind in kinds:
        place = made[kind] = lab.new()
        furnish(place, library)
        place.chmod(0o777 if kind == "everybody's" else 0o755)
        for path in [place, *place.rglob("*")]:
            if kind == "everybody's":
                path.chmod(0o777)
            elif kind == "stranger's":
                os.chown(path, STRANGER, STRANGER)
    commands = [
        [lab.shared.program, "doctor"],
        [lab.shared.plan],
        [
            lab.shared.program,
            "tune",
            "--no-device",
            "--arch",
            "sm_70",
            "--candidates",
            "1",
            "--cache",
            "none",
            PROBLEM,
        ],
    ]
    cases = list(itertools.product(kinds, [*VARIABLES, "the current folder"], commands))
    lab.random.shuffle(cases)
    for kind, variable, words in (cases * (count // len(cases) + 1))[:count]:
        value = "." if kind == "." else str(made[kind])
        value = f"{value}/bin:{os.environ['PATH']}" if variable == "PATH" else value
        there = variable == "the current folder"
        lab.run(
            words,
            f"{words[0].name}, {kind} in {variable}",
            cwd=made[kind] if there or kind == "." else lab.shared.folder,
            **{"TRIGEN_NVRTC": "", "TRIGEN_CACHE": "none", **({} if there else {variable: value})},
        )
        if marker.exists():
            lab.breaks("other", f"{words[0].name}, {kind} in {variable}: the library was loaded")
            marker.unlink()


def access_list(path, user, permissions, folder=False):
    """Gives `user` these permissions beside the owner's, as setfacl does."""
    entries = [
        (1, 7 if folder else 6, 0xFFFFFFFF),
        (2, permissions, user),
        (4, 0, 0xFFFFFFFF),
        (16, permissions, 0xFFFFFFFF),
        (32, 0, 0xFFFFFFFF),
    ]
    os.setxattr(
        path,
        "system.posix_acl_access",
        struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries),
    )


@attack("owners", "a wrong kernel in a file that others may write: mode, group, owner, access control list", 24)
def owners(lab, count):
    def changed(path, **how):
        if "mode" in how:
            path.chmod(how["mode"])
        if "owner" in how:
            os.chown(path, how["owner"], -1)
        if "group" in how:
            os.chown(path, -1, how["group"])
        if "list" in how:
            access_list(path, STRANGER, how["list"], path.is_dir())

    cases = [{"mode": 0o666}, {"mode": 0o602}, {"list": 6}, {"list": 2}]
    if ROOT_USER:
        cases += [{"mode": 0o660, "group": STRANGER}, {"owner": STRANGER}]
    for at in range(count):
        how, of_folder, source = (
            cases[at % len(cases)],
            at // len(cases) % 2,
            (lab.shared.evil_cache, lab.shared.evil_bundle)[at // 2 % 2],
        )
        file = lab.copy(source)
        target = file.parent if of_folder else file
        if of_folder:
            how = {
                key: value | 0o111 if key == "mode" else value | 1 if key == "list" else value
                for key, value in how.items()
            }
        try:
            changed(target, **how)
        except OSError as error:
            lab.note(f"no {how} here: {error.strerror}")
            continue
        cache = file if source.suffix == ".db" else f"{lab.new('own.db')}:{file}"
        what = f"{source.suffix}, {'folder' if of_folder else 'file'} {how}"
        if lab.plan(cache, what).code == 0:
            lab.breaks("other", f"{what}: used")


@attack("spool", "a home on NFS whose spool's place is a stranger's: folder, 0777, link, FIFO, file", 10)
def spool(lab, count):
    kinds = ["everybody's", "link", "fifo", "file"] + (["stranger's"] if ROOT_USER else [])
    for at in range(count):
        kind, home, first, second, victim = kinds[at % len(kinds)], lab.new(), lab.new(), lab.new(), lab.new()
        taken = first / f"trigen-{os.geteuid()}"
        if kind in ("everybody's", "stranger's"):
            taken.mkdir()
            taken.chmod(0o777 if kind == "everybody's" else 0o755)
            if kind == "stranger's":
                os.chown(taken, STRANGER, STRANGER)
        else:
            plant(taken, kind, b"precious", victim)
        nfs = {
            "LD_PRELOAD": lab.shared.shim,
            "SHIM_NFS": home,
            "TRIGEN_SPOOL": first,
            "TMPDIR": second,
            "TRIGEN_CACHE": home / "cache.db",
        }
        done = lab.trigen("cache", "import", lab.shared.bundle, what=f"import, the spool's place is {kind}", **nfs)
        if list(victim.iterdir()) or (taken.is_dir() and not taken.is_symlink() and list(taken.iterdir())):
            lab.breaks("other", f"{kind}: it was written to")
        if done.code != 0 or not list(second.glob("trigen-*/*.db")):
            lab.breaks("other", f"{kind}: the next place was not taken: {done.text}")
        lab.plan(home / "cache.db", f"plan, the spool's place is {kind}", **nfs)
        if not list(home.glob("cache.db.d/*.trigen")):
            lab.breaks("lost", f"{kind}: nothing was published")
