#!/usr/bin/env python3
"""The table of docs/gpus.md: the model's first choices beside estimates of the dense product.
Usage: scripts/dense_table.py [build/trigen] [--check]    rewrites the table; --check: fails where it is another one
"""

import json
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpus.md"
MARK = "<!-- made by: scripts/dense_table.py -->\n"
TARGETS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
SIZES = ((32, 512, 1024), (16, 1024, 1024), (8, 2048, 1024), (4, 4096, 1024))


def cell(program: str, target: str, dtype: str, size) -> str:
    problem = "forward,dtype={},B={},T={},D={}".format(dtype, *size)
    command = [program, "emit", "--explain", "--json", "--rows", "1", "--arch", target, problem]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ours, dense = answer["candidates"][0]["predicted_us"], answer["dense_us"]
    text = f"{ours:.0f} / {dense:.0f}"
    return f"**{text}**" if dense <= 1.02 * ours else text


def table(program: str) -> str:
    lines = ["| us: trigen, predicted / dense, estimated | dtype | " + " | ".join(f"{b}, {t}, {d}" for b, t, d in SIZES) + " |",
             "|---|---|" + "---|" * len(SIZES)]
    for target in TARGETS:
        for dtype in ("f16", "bf16") if target in ("sm_70", "sm_75") else ("bf16",):
            lines.append(f"| `{target}` | {dtype} | " + " | ".join(cell(program, target, dtype, size) for size in SIZES) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--check"]
    text = PAGE.read_text()
    head = text[: text.index(MARK) + len(MARK)]
    made = head + "\n" + table(words[0] if words else "build/trigen")
    if "--check" in sys.argv:
        if made != text:
            print("dense_table.py: docs/gpus.md is of another model; run scripts/dense_table.py", file=sys.stderr)
        return made != text
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
