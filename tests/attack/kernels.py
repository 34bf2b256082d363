"""Attacks by kernels: mutated PTX on the emulated device, mutants and the canary, kernels that loop, trap, stray."""

import ctypes
import re
import sys
import time
from pathlib import Path

import lab as shared_lab
from lab import PROBLEM, attack, edit, opened, pack, rows

INSTRUCTION = re.compile(r"^(\s*)(@!?%p\d+ )?([a-z][\w.]*)(\s+)(.*);\s*$")
OTHER = {
    "add": "sub",
    "sub": "add",
    "and": "or",
    "or": "and",
    "xor": "or",
    "shl": "shr",
    "shr": "shl",
    "min": "max",
    "max": "min",
    ".lt": ".le",
    ".le": ".lt",
    ".gt": ".ge",
    ".ge": ".gt",
    ".eq": ".ne",
    ".ne": ".eq",
    "mul": "add",
    ".lo": ".hi",
    ".wide": ".lo",
    ".rn": ".rz",
}
REGISTER = re.compile(r"%(r|rd|p|f|rs|h|d)(\d+)\b")
NUMBER = re.compile(r"(?<![%\w.])(-?\d+)(?![\w.])")


def instructions(ptx):
    """Numbers of the lines that hold one, and their match."""
    found = {}
    for at, line in enumerate(ptx):
        match = INSTRUCTION.match(line)
        if match and not match[3].startswith(("ld.param", "ret", "bra")):
            found[at] = match
    return found


def replaced(random, line, pattern, change):
    hits = list(pattern.finditer(line))
    if not hits:
        return None
    hit = random.choice(hits)
    return line[: hit.start()] + change(hit) + line[hit.end() :]


def mutant(random, ptx):
    """(what was done to one instruction, the text); of a list of lines."""
    lines, found = list(ptx), instructions(ptx)
    while True:
        at = random.choice(list(found))
        match, line = found[at], lines[at]
        indent, guard, opcode, blank, operands = match[1], match[2] or "", match[3], match[4], match[5]
        kind = random.randrange(7)
        changed = None
        if kind == 0:
            changed = ""
        elif kind in (1, 2):
            changed = replaced(
                random,
                operands,
                NUMBER,
                lambda hit: str(
                    int(hit[1]) + random.choice((-1, 1, 2, 4))
                    if random.random() < 0.7
                    else int(hit[1]) ^ 1 << random.randrange(8)
                ),
            )
            changed = changed and f"{indent}{guard}{opcode}{blank}{changed};"
        elif kind in (3, 4):
            name = next(
                (
                    name
                    for name in random.sample(list(OTHER), len(OTHER))
                    if re.match(rf"{name}\b" if name[0] != "." else rf"\w+(\.\w+)*{re.escape(name)}\b", opcode)
                ),
                None,
            )
            changed = name and f"{indent}{guard}{opcode.replace(name, OTHER[name], 1)}{blank}{operands};"
        elif kind == 5:  # another register of its kind, read instead
            first, comma, rest = operands.partition(",")
            same = re.findall(REGISTER, "\n".join(lines[max(0, at - 40) : at]))
            change = replaced(
                random,
                rest,
                REGISTER,
                lambda hit: "%"
                + hit[1]
                + random.choice([number for kind, number in same if kind == hit[1]] or [hit[2]]),
            )
            changed = change and f"{indent}{guard}{opcode}{blank}{first}{comma}{change};"
        elif guard:
            turned = "@" + guard[2:] if guard.startswith("@!") else "@!" + guard[1:]
            changed = f"{indent}{turned}{opcode}{blank}{operands};"
        if changed is not None and changed != line:
            lines[at] = changed
            return f"line {at}: `{line.strip()}` became `{changed.strip()}`", "\n".join(lines)


@attack("canary", "one-instruction mutants of P's PTX in a bundle: 99 % of the wrong ones are caught", 80)
def canary(lab, count):
    lines = lab.shared.ptx.split("\n")
    right = caught = refused = 0
    missed = []
    for at in range(count):
        what, text = mutant(lab.random, lines)
        file = lab.copy(lab.shared.bundle)
        edit(file, "binaries", ptx=pack(text))
        own = lab.new("own.db")
        for seed in (2 * at, 2 * at + 1):  # W above the diagonal holds numbers, then NaN
            done = lab.start(
                [lab.shared.plan, "run", seed],
                TRIGEN_CACHE=f"{own}:{file}",
                TRIGEN_NO_JIT=1,
                TRIGEN_EMULATED_STEPS=20000000,
            ).wait()
            if done.code != 0:
                break
        lab.tally.tries += 1
        lab.tally.slowest = max(lab.tally.slowest, done.seconds)
        if done.hung or done.code < 0:
            lab.breaks("hang" if done.hung else "abort", f"{what}: {done.last}")
        elif done.code == 0:
            right += 1
        elif done.code == 5:  # `planted` judges that
            caught += 1
        elif "trigen_plan_create" not in done.text:
            missed.append(f"{what}: {done.last}")
        elif "canary" in done.text:
            caught += 1
        else:
            refused += 1
    lab.note(f"{right} right, {caught} caught, {len(missed)} missed, {refused} that no driver loads")
    if len(missed) > 0.01 * (caught + len(missed)):
        lab.breaks("wrong", "; ".join(missed), len(missed))


@attack("planted", "kernels that loop, trap, store astray or write nothing, in a bundle, twice", 10)
def planted(lab, count):
    bodies = {
        "loop": "LOOP:\nbra.uni LOOP;",
        "trap": "trap;",
        "stray": "{\n.reg .b64 %a;\nmov.u64 %a, 17592186044416;\nst.global.u32 [%a], 1;\n}",
        "nothing": "",
        "exit": "exit;",
    }
    for at in range(count):
        name = list(bodies)[at % len(bodies)]
        jit = at // len(bodies) % 2
        what = f"{name}{', compiler' * jit}"
        file, own = lab.copy(lab.shared.bundle), lab.new("own.db")
        edit(file, "binaries", ptx=pack(re.sub(r"^\{$", "{\n" + bodies[name] + "\nret;", lab.shared.ptx, flags=re.M)))
        options = {
            "TRIGEN_CACHE": f"{own}:{file}",
            "TRIGEN_CANARY": "1",
            "TRIGEN_NO_JIT": str(1 - jit),
            "TRIGEN_EMULATED_STEPS": 0,
        }
        first = lab.start([lab.shared.plan, "run"], **options)
        if name == "loop":  # The emulated device's launches end before they return, so this one's user ends it.
            ends = time.monotonic() + shared_lab.LONGEST_S
            while not list(own.parent.glob("own.db.begun-*")) and time.monotonic() < ends:
                time.sleep(0.02)
            first.kill()
            first.wait()
        else:
            done = first.wait()
            # A fault ends the process's contexts on a GPU, too, and is said (docs/signing.md).
            if done.code != 5 or "all CUDA contexts of this process" not in done.text:
                lab.judge(done, f"{what}, first process")
        done = lab.run([lab.shared.plan, "run"], f"{what}, second process", **options)
        if jit and done.code == 1:
            lab.breaks("other", f"{what}, second process: not made anew: {done.last}")


@attack("tune-planted", "kernels that loop, trap or store astray in the place of a tune's candidates", 4)
def tune_planted(lab, count):
    tune = [lab.shared.program, "tune", "--device", "emulated:sm_70", "--candidates", "4", PROBLEM]
    full = lab.new("cache.db")
    lab.run(tune, "an honest tune", seconds=60, TRIGEN_CACHE=full)
    # In an own file: another's are not tuned with.
    honest = {row["key"]: row["ptx"] for row in rows(opened(full), "binaries")}
    for at in range(count):
        name, body = [
            ("trap", "trap;"),
            ("stray", "{\n.reg .b64 %a;\nmov.u64 %a, 17592186044416;\nst.global.u32 [%a], 1;\n}"),
            ("loop", "LOOP:\nbra.uni LOOP;"),
        ][at % 3]
        some = lab.random.sample(sorted(honest), len(honest) if at % 2 == 0 else len(honest) // 2)

        def change(row):
            if row["key"] not in some:
                return {"ptx": honest[row["key"]]}
            entry = row["entry"].split()[0]
            return {
                "ptx": pack(
                    ".version 6.0\n.target sm_70\n.address_size 64\n"
                    f".visible .entry {entry}(.param .align 8 .b8 p[312]) {{\n{body}\nret;\n}}\n"
                )
            }

        edit(full, "binaries", change)
        done = lab.run(
            [*tune, "--force"],
            f"tune over {len(some)} of {len(honest)} that {name}",
            seconds=120,
            TRIGEN_CACHE=full,
            TRIGEN_EMULATED_STEPS=1000000,
        )
        if done.code != 0 and ("trigen: error" not in done.text or len(some) < len(honest)):
            lab.breaks("other", f"{len(some)} of {len(honest)} that {name}: ends with {done.code}: {done.text[-600:]}")
        if done.code == 0:
            lab.plan(full, f"plan after a tune over {name}")


def garbled(random, text, corpus):
    """One of nine mutations of a module's text."""
    lines = text.split("\n")
    at, kind = random.randrange(len(lines)), random.randrange(9)
    extremes = [
        "0",
        "-1",
        "4294967295",
        "18446744073709551615",
        "9223372036854775808",
        "2147483647",
        "65536",
        "-9223372036854775808",
        "18446744073709551616",
    ]
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, random.choice(random.choice(corpus).split("\n")))
    elif kind == 2:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        lines[at] = lines[at] * random.choice((2, 1000))
    elif kind in (4, 5):
        lines[at] = replaced(random, lines[at], NUMBER, lambda hit: random.choice(extremes)) or lines[at]
    elif kind == 6:
        lines[at] = (
            replaced(
                random, lines[at], REGISTER, lambda hit: f"%{hit[1]}{random.choice(('0', '1', '99999', '4294967295'))}"
            )
            or lines[at]
        )
    elif kind == 7:
        data = bytearray("\n".join(lines), "latin1")
        for _ in range(random.randrange(1, 5)):
            data[random.randrange(len(data))] = random.randrange(1, 256)
        return data.decode("latin1")
    else:
        return "\n".join(lines)[: random.randrange(len(text))]
    return "\n".join(lines)


@attack("ptx", "mutated PTX of sm_70, sm_80, sm_90a and tests/fuzz/ptx, loaded and launched", 400)
def ptx(lab, count):
    corpus = [file.read_text() for file in sorted((shared_lab.ROOT / "tests/fuzz/ptx").iterdir())]
    for arch, problem in (
        ("sm_70", PROBLEM),
        ("sm_80", "forward,dtype=bf16,B=2,T=64,D=64,K=3"),
        ("sm_90a", "forward,dtype=bf16,B=1,T=256,D=128"),
        ("sm_90a", "grad_weight,dtype=f16,B=2,T=128,D=64"),
        ("sm_80", "decode,dtype=f16,B=2,T=64,D=64"),
    ):
        out = lab.new("kernel.ptx")
        if lab.trigen("emit", "--ptx", "--arch", arch, "-o", out, problem, seconds=60).code == 0:
            corpus.append(out.read_text())
    most, launched, refused, at = 0, 0, 0, 0
    while at < count:
        batch = lab.new()
        for number in range(at, min(at + 50, count)):
            text = lab.random.choice(corpus)
            for _ in range(lab.random.choice((1, 1, 2, 3))):
                text = garbled(lab.random, text, corpus)
            (batch / f"{number}.ptx").write_bytes(text.encode("latin1", "replace"))
        files = sorted(batch.iterdir(), key=lambda file: int(file.stem))
        while files:
            done = lab.start(
                [sys.executable, "-B", __file__, lab.shared.libraries / "libtrigen_emulator.so", *files]
            ).wait(120)
            lines = done.out.decode().splitlines()
            launched += sum(line.endswith("launched") for line in lines)
            refused += sum(line.endswith("refused") for line in lines)
            lab.tally.tries += len(lines)
            for line in lines:
                words = line.split()
                if len(words) > 2 and float(words[1]) > shared_lab.LONGEST_S:
                    lab.breaks("hang", f"{words[0]}: {words[1]} s")
                lab.tally.slowest = max(lab.tally.slowest, float(words[1]) if len(words) > 2 else 0)
            most = max(most, done.megabytes)
            if done.code == 0:
                break
            last = (
                files[len(lines) - bool(lines and len(lines[-1].split()) < 3)]
                if len(lines) <= len(files)
                else files[-1]
            )
            kept_file = shared_lab.BUILD / f"attack-{last.name}"
            kept_file.write_bytes(last.read_bytes())
            lab.breaks("hang" if done.hung else "abort", f"{kept_file}: {done.code}: {done.last}")
            files = files[files.index(last) + 1 :]
        at += 50
    lab.note(f"{refused} refused, {launched} launched, at most {most:.0f} MB")


def load_and_launch(library, files):
    """In a process of its own: each module is loaded, and its first kernel launched on one block."""
    driver = ctypes.CDLL(library)
    for name in (
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLaunchKernel",
        "cuMemAlloc_v2",
        "cuModuleUnload",
        "cuMemFree_v2",
    ):
        getattr(driver, name).restype = ctypes.c_int
    driver.trigen_emulator_configure(b"target=sm_90a devices=1 threads=1 reports=quiet steps=200000")
    driver.cuInit(0)
    context = ctypes.c_void_p()
    for file in files:
        began, answer = time.monotonic(), "refused"
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxSetCurrent(context)
        module, kernel, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        text = Path(file).read_bytes()
        if driver.cuModuleLoadData(ctypes.byref(module), ctypes.create_string_buffer(text)) == 0:
            entry = re.search(rb"\.entry\s+([\w$]+)", text)
            if (
                entry
                and driver.cuModuleGetFunction(ctypes.byref(kernel), module, entry[1]) == 0
                and driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
            ):
                data = (ctypes.c_uint64 * 4096)(*[memory.value] * 4096)
                parameters = (ctypes.c_void_p * 256)(*[ctypes.addressof(data)] * 256)
                driver.cuLaunchKernel(kernel, 1, 1, 1, 128, 1, 1, 49152, None, parameters, None)
                driver.cuCtxSynchronize()
                driver.cuMemFree_v2(memory)
                answer = "launched"
            driver.cuModuleUnload(module)
        driver.cuDevicePrimaryCtxRelease_v2(0)
        print(Path(file).name, f"{time.monotonic() - began:.3f}", answer, flush=True)


if __name__ == "__main__":
    load_and_launch(sys.argv[1], sys.argv[2:])
