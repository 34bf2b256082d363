#!/usr/bin/env python3
"""The tables of docs/gpus.md: the model's first choices beside estimates of the dense product, and how well these hold.
Usage: scripts/dense_table.py [build/trigen] [--check]    rewrites the tables; --check: fails where they are others
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gpus.md"
TARGETS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
SIZES = ((32, 512, 1024), (16, 1024, 1024), (8, 2048, 1024), (4, 4096, 1024))


def cell(program: str, target: str, dtype: str, size) -> str:
    problem = "forward,dtype={},B={},T={},D={}".format(dtype, *size)
    command = [program, "emit", "--explain", "--json", "--rows", "1", "--arch", target, problem]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ours, dense = answer["candidates"][0]["predicted_us"], answer["dense_us"]
    text = f"{ours:.0f} / {dense:.0f}"
    said = " ".join(answer["notes"])
    return f"**{text}**" if "masked weight is faster" in said else f"*{text}*" if "may be as fast" in said else text


def table(program: str) -> str:
    lines = ["| us: trigen, predicted / dense, estimated | dtype | " + " | ".join(f"{b}, {t}, {d}" for b, t, d in SIZES) + " |",
             "|---|---|" + "---|" * len(SIZES)]
    for target in TARGETS:
        for dtype in ("f16", "bf16") if target in ("sm_70", "sm_75") else ("bf16",):
            lines.append(f"| `{target}` | {dtype} | " + " | ".join(cell(program, target, dtype, size) for size in SIZES) + " |")
    return "\n".join(lines) + "\n"


def figures(program: str) -> str:
    files = sorted(map(str, (ROOT / "bench/results").glob("h*.jsonl")))
    wide = dict(os.environ, COLUMNS="400")  # a row a line, whatever the terminal
    text = subprocess.run([program, "model", "dense", *files], check=True, capture_output=True, text=True, env=wide).stdout
    lines = ["| GPU, rows | problems | median error | nine in ten | within 15 % | predicted choices: wrong for trigen, for dense, too close "
             "| tuned: wrong for trigen, for dense, too close |", "|---" * 7 + "|"]
    for row in text.splitlines()[1:]:
        gpu, half, rows, error, most, within, *counts = re.split(" {2,}", row.strip())
        verdicts = [f"{wrong}, {dense}, {close} of {of}" for of, wrong, dense, close in (counts[:4], counts[4:])]
        lines.append(f"| {gpu}, {half} | {rows} | {error} | {most} | {within} | {verdicts[0]} | {verdicts[1]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--check"]
    text = made = PAGE.read_text()
    for name, maker in (("table", table), ("figures", figures)):
        mark = f"<!-- made by: scripts/dense_table.py, {name} -->\n\n"
        made = re.sub(re.escape(mark) + r"(\|.*\n)*", lambda _: mark + maker(words[0] if words else "build/trigen"), made)
    if "--check" in sys.argv:
        if made != text:
            print("dense_table.py: docs/gpus.md is of another model; run scripts/dense_table.py", file=sys.stderr)
        return made != text
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
