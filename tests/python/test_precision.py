"""float32 follows every one of PyTorch's switches for matrix products, set in any order that PyTorch allows."""

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

from trigen.torch import precision

OLD_HIGH, OLD_HIGHEST = "torch.set_float32_matmul_precision('high')", "torch.set_float32_matmul_precision('highest')"
ALLOWED, FORBIDDEN = "torch.backends.cuda.matmul.allow_tf32 = True", "torch.backends.cuda.matmul.allow_tf32 = False"
NEW, NEW_IEEE = (
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cuda.matmul.fp32_precision = 'ieee'",
)
EVERYWHERE, CONV = "torch.backends.fp32_precision = 'tf32'", "torch.backends.cudnn.conv.fp32_precision = 'tf32'"
has_new = hasattr(torch.backends, "fp32_precision")
CASES = [
    ("pass", "simt"),
    (OLD_HIGH, "tf32"),
    ("torch.set_float32_matmul_precision('medium')", "tf32"),
    (f"{OLD_HIGH}; {OLD_HIGHEST}", "simt"),
    (ALLOWED, "tf32"),
    (f"{ALLOWED}; {FORBIDDEN}", "simt"),
    (f"{OLD_HIGH}; {FORBIDDEN}", "simt"),
]
if has_new:
    CASES += [
        (NEW, "tf32"),
        (NEW_IEEE, "simt"),
        (EVERYWHERE, "tf32"),
        (CONV, "simt"),
        (f"{OLD_HIGH}; {NEW_IEEE}", "simt"),
        (f"{NEW_IEEE}; {OLD_HIGH}", "tf32"),
        (f"{EVERYWHERE}; {NEW_IEEE}", "simt"),
    ]

CODE = """
import json, os, sys
import torch
import trigen.torch as tt
from trigen.torch import precision

def convert():
    model = torch.nn.Sequential(torch.nn.Conv1d(4, 4, 1))
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight.squeeze(-1).tril().unsqueeze(-1))
    tt.convert(model, tokens=4, example_inputs=(torch.randn(2, 4, 6),))
    return model

def report(switches):
    exec(switches)
    print(precision.resolve_math("default", torch.float32, -1))
    with precision.full_precision():
        print(precision.resolve_math("default", torch.float32, -1))
    print(precision.resolve_math("default", torch.float32, -1))
    model = convert()
    print(type(model[0]).__name__, torch.backends.cudnn.enabled, flush=True)

torch.set_num_threads(1)
convert()  # the first one makes PyTorch import 800 modules, which takes seconds; the copies below have them
for switches in json.loads(sys.argv[1]):
    print("==", switches, flush=True)
    if os.fork() == 0:
        status = 1
        try:
            report(switches)
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.wait()
"""


@pytest.fixture(scope="module")
def reports(repository):
    """What each case printed. The switches cannot all be set back, so each is set in a copy of a process that has PyTorch loaded."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, json.dumps([switches for switches, _ in CASES])],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(repository / "python"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    parts = [part.split("\n", 1) for part in done.stdout.split("== ")[1:]]
    return {switches: printed.split() for switches, printed in parts}


@pytest.mark.parametrize(
    "switches,math", CASES, ids=lambda value: value.replace("torch.", "").replace("backends.", "")[:70]
)
def test_every_switch(reports, switches, math):
    assert reports[switches] == [math, "simt", math, "TriangularConv1d", "True"]


def test_a_call_decides_for_itself():
    for math in ("simt", "tf32"):
        assert precision.resolve_math(math, torch.float32, -1) == math
        assert precision.resolve_math(math, torch.bfloat16, -1) == "default"


def test_a_gpu_without_tf32_multiplies_in_full_precision(monkeypatch):
    """As PyTorch does there: V100 and T4 ignore the switch. Asked for by name, tf32 stays what it is, and no kernel takes it."""
    capabilities = {0: (7, 0), 1: (7, 5), 2: (8, 0), 3: (9, 0)}
    monkeypatch.setattr(precision, "has_tf32", precision.has_tf32.__wrapped__)
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.get)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert [precision.resolve_math("default", torch.float32, device) for device in (0, 1, 2, 3, -1)] == [
            "simt",
            "simt",
            "tf32",
            "tf32",
            "tf32",
        ]
        assert precision.resolve_math("tf32", torch.float32, 0) == "tf32"
    finally:
        torch.set_float32_matmul_precision(before)
