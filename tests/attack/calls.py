"""Attacks through the C interface: what careless callers give it, in processes that may crash (c_calls.py)."""

import re
import sys
from pathlib import Path

from lab import attack

PROGRAM = Path(__file__).with_name("c_calls.py")


@attack("c-interface", "NULL, struct sizes, extremes, stray pointers, odd texts, misuse, order of destruction", 900)
def c_interface(lab, count):
    first, crashed, faults, chance = 0, 0, 0, lab.random.randrange(1 << 30)
    while first < count and crashed < 20:
        done = lab.start(
            [sys.executable, "-B", PROGRAM, lab.shared.library, "calls", chance, first, count - first],
            cwd=lab.folder,
            TRIGEN_LOG="off",
            TRIGEN_CACHE=lab.copy(lab.shared.cache),
            TRIGEN_TEST_BUNDLE=lab.shared.bundle,
        ).wait(60)
        lines = done.out.decode(errors="replace").splitlines()
        for line in lines:
            if line.endswith("!"):
                lab.breaks("other", f"not as documented: {line}")
        if not lines:
            lab.breaks("other", f"nothing ran: {done.text[-500:]}")
            return
        ended = lines[-1] == "end"
        case = lines[-2 if ended else -1]
        lab.tally.tries += len(lines) - ended
        if ended:
            break
        if not re.search(r": \d+( !)?$", case):
            crashed += 1
            lab.breaks("hang" if done.hung else "abort", f"{case}: ended with {done.code}: {done.last}")
        faults += 1
        first = int(case.split()[0]) + 1
    lab.note(f"{faults} processes ended by a fault of a kernel")


@attack("reload", "dlopen, plan, run, dlclose, again and again in one process", 40)
def reload(lab, count):
    done = lab.run(
        [sys.executable, "-B", PROGRAM, lab.shared.library, "cycles", count],
        f"{count} cycles",
        seconds=60 + count,
        TRIGEN_CACHE=lab.copy(lab.shared.cache),
    )
    lab.tally.tries += count - 1
    if done.code > 0:
        lab.breaks("other", done.text[-500:])
    lab.note(f"{done.megabytes:.0f} MB")
