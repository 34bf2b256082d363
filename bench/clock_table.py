#!/usr/bin/env python3
"""The table of docs/clock.md: the core list's first choices on GPUs that are not here, by the clock. Needs nvdisasm.

scripts/setup_nvdisasm.sh
TRIGEN_NVDISASM=$PWD/build/nvdisasm/nvdisasm bench/clock_table.py [L40S ...]
"""

import json
import pathlib
import subprocess
import sys

TRIGEN = pathlib.Path(__file__).resolve().parent.parent / "build" / "trigen-lab"
GPUS = ("V100", "T4", "RTX 2080", "A100", "A30", "RTX 3090", "A10", "A40", "RTX 4090", "L40S", "L4", "RTX 5090")
BOUNDS = {
    "tensor": "loop",
    "dram": "memory",
    "l2": "L2",
}  # the longest part: the blocks' loops and ends, memory, the L2
PROBLEMS = ("32,512,1024", "16,1024,1024", "8,2048,1024", "4,4096,1024")
COLUMNS = (
    "GPU",
    "problem",
    "config",
    "cycles of a turn",
    "bound",
    "tensor pipe",
    "shared memory",
    "L2",
    "call, clock",
    "its bound",
    "call, estimates",
    "dense",
    "dense / clock",
)


def reading(gpu: str, problem: str) -> dict:
    b, t, d = problem.split(",")
    # Its first choices are mma_tma_sm90's, whose loading warps the clock does not follow.
    family = ["--family", "mma_sm80"] if gpu == "RTX 5090" else []
    command = [
        TRIGEN,
        "timeline",
        "--gpu",
        gpu,
        *family,
        "--json",
        "-q",
        f"forward,dtype=f16,B={b},T={t},D={d}",
    ]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def row(gpu: str, problem: str) -> tuple:
    r = reading(gpu, problem)
    family, config = r["candidate"].split(":", 1)
    keys = dict(key.split("=", 1) for key in config.split(","))
    config = f"{family}:{keys['tile']},{keys['warps']},{keys['stages']}"
    return (
        gpu,
        problem,
        config,
        f"{r['cycles']:.0f}",
        r["bound"],
        percent(r["busy"]["tensor pipe"]),
        percent(r["busy"]["shared memory"]),
        percent(r["busy"]["from the L2"]),
        f"{r['call_us']:.0f}",
        BOUNDS.get(r["call_bound"], r["call_bound"]),
        f"{r['estimated_call_us']:.0f}",
        f"{r['dense_us']:.0f}",
        f"{r['dense_us'] / r['call_us']:.2f}",
    )


def line(cells: tuple) -> str:
    return "| " + " | ".join(cells) + " |"


print(line(COLUMNS))
print("|" + "---|" * len(COLUMNS))
for name in sys.argv[1:] or GPUS:
    for shape in PROBLEMS:
        print(line(row(name, shape)), flush=True)
