#!/usr/bin/env python3
"""The table of docs/clock.md: the core list's first choices on GPUs that are not here, by the clock. Needs nvdisasm.

    scripts/setup_nvdisasm.sh
    TRIGEN_NVDISASM=$PWD/build/nvdisasm/nvdisasm bench/clock_table.py [sm_70 ...]
"""
import json
import pathlib
import subprocess
import sys

TRIGEN = pathlib.Path(__file__).resolve().parent.parent / "build" / "trigen"
GPUS = {"sm_70": "V100", "sm_75": "T4", "sm_80": "A100", "sm_86": "RTX 3090", "sm_89": "RTX 4090", "sm_120": "RTX 5090"}
PROBLEMS = ("32,512,1024", "16,1024,1024", "8,2048,1024", "4,4096,1024")
COLUMNS = ("GPU", "problem", "config", "cycles of a turn", "bound", "tensor pipe", "shared memory", "from the L2",
           "schedulers idle for", "call, clock", "call, estimates", "dense", "dense / clock")


def reading(arch: str, problem: str) -> dict:
    b, t, d = problem.split(",")
    command = [TRIGEN, "profile", "--arch", arch, "--timeline", "--json", "-q", f"forward,dtype=f16,B={b},T={t},D={d}"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def row(arch: str, problem: str) -> tuple:
    r = reading(arch, problem)
    family, config = r["candidate"].split(":", 1)
    keys = dict(key.split("=", 1) for key in config.split(","))
    config = f"{family}:{keys['tile']},{keys['warps']},{keys['stages']}"
    idle = sorted(r["idle"].items(), key=lambda one: -one[1])[:2]
    return (GPUS[arch], problem, config, f"{r['cycles']:.0f}", r["bound"], percent(r["busy"]["tensor pipe"]),
            percent(r["busy"]["shared memory"]), percent(r["busy"]["from the L2"]),
            ", ".join(f"{name} {percent(share)}" for name, share in idle), f"{r['call_us']:.0f}",
            f"{r['estimated_call_us']:.0f}", f"{r['dense_us']:.0f}", f"{r['dense_us'] / r['call_us']:.2f}")


def line(cells: tuple) -> str:
    return "| " + " | ".join(cells) + " |"


print(line(COLUMNS))
print("|" + "---|" * len(COLUMNS))
for name in sys.argv[1:] or GPUS:
    for shape in PROBLEMS:
        print(line(row(name, shape)), flush=True)
