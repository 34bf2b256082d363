"""The table of attacks: `scripts/attack.sh`. SECURITY.md says what it shows."""

import argparse
import concurrent.futures
import os
import shutil
import sys
import tempfile
import textwrap
import time
import traceback
from pathlib import Path

import lab


def verdict(tally, why_not):
    if why_not:
        return "skipped"
    return "BROKEN" if tally.broken else "held"


def result(tally, why_not, seconds):
    counts = "; ".join(
        f"{tally.broken.get(name, 0)} {words}"
        for name, words in lab.PROMISES.items()
        if name in ("wrong", "hang", "abort") or tally.broken.get(name)
    )
    return "; ".join(
        [why_not] if why_not else [counts, *tally.notes, f"slowest {tally.slowest:.1f} s, all {seconds:.0f} s"]
    )


def make(one, shared, scale, seed):
    """(tally, why it was not made, seconds)."""
    place = lab.Lab(shared, one.name, seed)
    began = time.monotonic()
    why_not = ""
    try:
        one.make(place, max(1, round(one.tries * scale)))
        if place.tally.tries == 0:
            place.breaks("other", "nothing was tried")
    except lab.Skip as error:
        why_not = str(error)
    except Exception:
        place.breaks("other", f"the attack itself failed:\n{traceback.format_exc()}")
    return place.tally, why_not, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/attack.sh", description="Attacks trigen as SECURITY.md says; fails where a promise is broken."
    )
    parser.add_argument(
        "--minutes", type=float, default=1, help="how long it may take two idle cores, about: counts grow with it (1)"
    )
    parser.add_argument("--only", default="", help="names of attacks, separated by commas")
    parser.add_argument("--seed", default="1", help="of every random choice; 'random' takes a new one and prints it")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="attacks at a time (2)")
    parser.add_argument("--keep", action="store_true", help="keep the folder of files")
    parser.add_argument("--list", action="store_true", help="print the attacks and do nothing")
    words = parser.parse_args()
    chosen = (
        [lab.ATTACKS[name] for name in words.only.split(",") if name in lab.ATTACKS]
        if words.only
        else list(lab.ATTACKS.values())
    )
    unknown = [name for name in words.only.split(",") if name and name not in lab.ATTACKS]
    if unknown or words.minutes <= 0:
        parser.error(
            f"found {', '.join(unknown) or '--minutes ' + str(words.minutes)}; allowed are more than 0 minutes, and "
            + ", ".join(lab.ATTACKS)
        )
    if words.list:
        for one in chosen:
            print(f"{one.name:12} {one.tries:5}  {one.what}")
        return 0
    seed = str(int.from_bytes(os.urandom(4), "big")) if words.seed == "random" else words.seed
    folder = Path(tempfile.mkdtemp(prefix="trigen-attack-"))
    status = 0
    try:
        began = time.monotonic()
        shared = lab.Shared(folder)
        print(
            f"seed {seed}, {words.minutes:g} min, {words.jobs} at a time, as uid {os.geteuid()}; files in {folder}",
            flush=True,
        )
        with concurrent.futures.ThreadPoolExecutor(words.jobs) as pool:
            made = list(zip(chosen, pool.map(lambda one: make(one, shared, words.minutes, seed), chosen)))
        sums = {name: sum(tally.broken.get(name, 0) for _, (tally, _, _) in made) for name in lab.PROMISES}
        print("\n| attack | tries | result | verdict |\n|---|---|---|---|")
        for one, (tally, why_not, seconds) in made:
            print(
                f"| {one.name}: {one.what} | {tally.tries} | {result(tally, why_not, seconds)} |",
                verdict(tally, why_not),
                "|",
            )
        print(
            f"\n{sum(tally.tries for _, (tally, _, _) in made)} tries in {time.monotonic() - began:.0f} s: "
            + ", ".join(f"{sums[name]} {words}" for name, words in lab.PROMISES.items())
        )
        for one, (tally, _, _) in made:
            if not tally.broken:
                continue
            status = 1
            print(
                f"\n{one.name}: broken {tally.broken}; again: "
                f"scripts/attack.sh --only {one.name} --seed {seed} --minutes {words.minutes:g}"
            )
            for text in tally.examples[:5]:
                print(textwrap.indent(text[:1500], "  "))
    finally:
        if words.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    import calls  # noqa: F401
    import files  # noqa: F401  the attacks, in the order of the table
    import kernels  # noqa: F401
    import processes  # noqa: F401
    import trust  # noqa: F401

    sys.exit(main())
