#!/usr/bin/env python3
"""The tables that pages hold of the cost model's own figures: trigen beside estimates of the dense product (docs/gpus.md, docs/gram.md) and how
well these hold, and what the model's first choices lose on the recordings of tests/data (docs/cost-model.md).
Usage: scripts/model_tables.py [build/trigen] [--check]    rewrites the tables by it and build/trigen-lab; --check: fails where they are others
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def answer(program: str, *words) -> dict:
    return json.loads(subprocess.run([program, *words, "--json"], check=True, capture_output=True, text=True).stdout)


def cell(program: str, target: str, problem: str) -> str:
    explained = answer(program, "emit", "--explain", "--rows", "1", "--arch", target, problem)
    text = f"{explained['candidates'][0]['predicted_us']:.0f} / {explained['dense_us']:.0f}"
    said = " ".join(explained["notes"])
    return f"**{text}**" if "is faster: " in said else f"*{text}*" if "may be as fast" in said else text


def beside_dense(program: str, kinds, problem: str, sizes) -> str:
    """A row each of `kinds`, target and dtype, a column each of `sizes`, whose numbers go into `problem`."""
    names = (", ".join(map(str, size)) for size in sizes)
    lines = [
        f"| us: trigen, predicted / dense, estimated | dtype | {' | '.join(names)} |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for target, dtype in kinds:
        cells = (cell(program, target, problem.format(dtype, *size)) for size in sizes)
        lines.append(f"| `{target}` | {dtype} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def dense(program: str) -> str:
    kinds = [(target, dtype) for target in ("sm_70", "sm_75") for dtype in ("f16", "bf16")]
    kinds += [(target, "bf16") for target in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")]
    sizes = ((32, 512, 1024), (16, 1024, 1024), (8, 2048, 1024), (4, 4096, 1024))
    return beside_dense(program, kinds, "forward,dtype={},B={},T={},D={}", sizes)


def grams(program: str) -> str:
    kinds = [("sm_70", "f16"), ("sm_75", "f16")]
    kinds += [(target, "bf16") for target in ("sm_80", "sm_86", "sm_89", "sm_100a", "sm_120a")]
    sizes = ((256, 1024, 16), (1024, 1024, 1), (2048, 2048, 1), (4096, 4096, 1))
    return beside_dense(program, kinds, "gram,dtype={},T={},D={},H={},B=1,epilogue=mirror", sizes)


def dense_errors(program: str) -> str:
    files = sorted(map(str, (ROOT / "bench/results").glob("h*.jsonl")))
    wide = dict(os.environ, COLUMNS="400")  # a row a line, whatever the terminal
    text = subprocess.run(
        [program + "-lab", "model", "dense", *files], check=True, capture_output=True, text=True, env=wide
    ).stdout
    lines = [
        "| GPU, rows | problems | median error | nine in ten | within 15 % | predicted: wrong for trigen, dense, close "
        "| tuned: wrong for trigen, dense, close |",
        "|---" * 7 + "|",
    ]
    for row in text.splitlines()[1:]:
        gpu, half, rows, error, most, within, *counts = re.split(" {2,}", row.strip())
        verdicts = [f"{wrong}, {other}, {close} of {of}" for of, wrong, other, close in (counts[:4], counts[4:])]
        lines.append(f"| {gpu}, {half} | {rows} | {error} | {most} | {within} | {verdicts[0]} | {verdicts[1]} |")
    return "\n".join(lines) + "\n"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def losses(name: str, of: dict) -> str:
    return f"| {name} | {of['problems']} | {percent(of['median'])} | {percent(of['nine_in_ten'])} | {percent(of['worst'])} |\n"


def choices(program: str) -> str:
    def check(*options: str) -> dict:
        return answer(program + "-lab", "model", "check", str(ROOT / "tests/data"), *options)

    halves = {role: check("--role", role) for role in ("fit", "check")}
    ampere = check("--role", "check", "--families", "mma_sm80,simt")
    half = halves["check"]
    out = "| untuned choice | problems | median | nine in ten | worst |\n|---|---|---|---|---|\n"
    out += "".join(losses(role, of["untuned"]) for role, of in halves.items())
    out += losses("check, where the model's own choice was timed", half["recorded"])
    out += losses("check, best of the first 8", half["untuned_8"])
    out += losses("check, mma_sm80 and simt alone", ampere["untuned"])
    missing = half["untuned"]["problems"] - half["recorded"]["problems"]
    out += (
        "\n"
        + textwrap.fill(
            f"For {missing} of the {half['untuned']['problems']} the first of all legal candidates was not timed; the first that was stands for "
            "it, and the third row leaves them out. By family, check half, the family's first choice against its best (three timed candidates "
            "or more):",
            110,
        )
        + "\n\n"
    )
    out += "| family, op | problems | median | nine in ten | worst |\n|---|---|---|---|---|\n"
    for family in half["families"]:
        if family["ranked"] > 0:
            out += losses(f"{family['family']}, {family['op']}", family["first"])
    return out


TABLES = {"docs/gpus.md": (dense, dense_errors), "docs/gram.md": (grams,), "docs/cost-model.md": (choices,)}


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--check"]
    program = words[0] if words else str(ROOT / "build/trigen")
    others = []
    for page, makers in TABLES.items():
        text = made = (ROOT / page).read_text()
        for maker in makers:
            first, last = f"<!-- made by: scripts/model_tables.py, {maker.__name__} -->\n", "<!-- /made -->\n"
            head, mark, rest = made.partition(first)
            if not mark or last not in rest:
                sys.exit(f"model_tables.py: {page} lacks the marks of {maker.__name__}")
            made = head + first + "\n" + maker(program) + "\n" + last + rest.partition(last)[2]
        if made != text:
            others.append(page)
            if "--check" not in sys.argv:
                (ROOT / page).write_text(made)
    if others and "--check" in sys.argv:
        print(f"model_tables.py: {', '.join(others)}: of another model; run scripts/model_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
