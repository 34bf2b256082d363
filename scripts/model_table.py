#!/usr/bin/env python3
"""The tables of docs/cost-model.md: what the model's first choices lose on the recordings of tests/data.
Usage: scripts/model_table.py [build/trigen] [--check]    rewrites them; --check: fails where they are other ones
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cost-model.md"
FIRST, LAST = "<!-- made by: scripts/model_table.py -->\n", "<!-- /made -->\n"


def check(program: str, *options: str) -> dict:
    command = [program, "model", "check", str(ROOT / "tests/data"), "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def losses(name: str, of: dict) -> str:
    return f"| {name} | {of['problems']} | {percent(of['median'])} | {percent(of['nine_in_ten'])} | {percent(of['worst'])} |\n"


def tables(program: str) -> str:
    halves = {role: check(program, "--role", role) for role in ("fit", "check")}
    ampere = check(program, "--role", "check", "--families", "mma_sm80,simt")
    half = halves["check"]
    out = "| untuned choice | problems | median | nine in ten | worst |\n|---|---|---|---|---|\n"
    out += "".join(losses(role, of["untuned"]) for role, of in halves.items())
    out += losses("check, where the model's own choice was timed", half["recorded"])
    out += losses("check, best of the first 8", half["untuned_8"])
    out += losses("check, mma_sm80 and simt alone", ampere["untuned"])
    missing = half["untuned"]["problems"] - half["recorded"]["problems"]
    out += "\n" + textwrap.fill(
        f"For {missing} of the {half['untuned']['problems']} the first of all legal candidates was not timed; the first that was stands for "
        "it, and the third row leaves them out. By family, check half, the family's first choice against its best (three timed candidates "
        "or more):", 110) + "\n\n"
    out += "| family, op | problems | median | nine in ten | worst |\n|---|---|---|---|---|\n"
    for family in half["families"]:
        if family["ranked"] > 0:
            out += losses(f"{family['family']}, {family['op']}", family["first"])
    return out


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--check"]
    text = PAGE.read_text()
    head, _, rest = text.partition(FIRST)
    made = head + FIRST + "\n" + tables(words[0] if words else str(ROOT / "build/trigen")) + "\n" + LAST + rest.partition(LAST)[2]
    if "--check" in sys.argv:
        if made != text:
            print("model_table.py: docs/cost-model.md is of another model; run scripts/model_table.py", file=sys.stderr)
        return made != text
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
