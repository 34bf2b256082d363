"""Host time of trigen's operators in PyTorch, on a machine without a GPU: the Python code that a CUDA tensor takes, down to the foreign call,
over CPU tensors and with a C function that does nothing in the place of trigen_plan_run. Left out are the launch itself, the caching
allocator, and in the backward pass the hand-over to autograd's device thread (on CPU tensors derivatives run on the calling thread).

    python bench/host_cost.py                     # a table of microseconds
    python bench/host_cost.py --package DIR       # trigen from another tree's python/: before and after a change, by one script
    python bench/host_cost.py --profile step      # that case under cProfile
    python bench/host_cost.py --count             # PyTorch's operations of each case, views and empty memory apart, in place of times

For comparing versions of the package on one machine. Figures of a GPU: bench/torch_ops.py, parts call and step.
"""

import argparse
import cProfile
import ctypes
import gc
import importlib
import json
import pstats
import sys
import time
from pathlib import Path

import torch
from timing import host_us, in_turn, operator_of_nothing

HANDLE = 128
MODULES = ("launch", "functional", "cuda", "ops", "scans")


OPERATORS = torch.library.Library("trigen", "FRAGMENT")  # theirs of a GPU, for CPU tensors
NOTHING = operator_of_nothing("CPU")


class NoPlan:
    """A plan in name only: its handle makes a run toascii(128), which is 0 as a status."""

    handle, workspace_size = HANDLE, 0


def load(package: Path):
    """The functional form of that tree, reading is_cpu where it says is_cuda, and launching nothing."""
    sys.path.insert(0, str(package))
    importlib.import_module("trigen.torch")  # defines the operators
    launch, functional, cuda, ops, scans = (importlib.import_module(f"trigen.torch.{name}") for name in MODULES)
    source = Path(functional.__file__).read_text()
    source = (
        source.replace("x.is_cuda or x.is_cpu", "x.is_cpu").replace(".is_cuda", ".is_cpu").replace('"cuda"', '"cpu"')
    )
    exec(compile(source, functional.__file__, "exec"), functional.__dict__)
    ops.kernels_of = lambda x: cuda
    scans.kernels_of = lambda x: scans._cuda
    for name in ("forward", "forward_pre", "grad_input", "grad_weight"):
        OPERATORS.impl(name, getattr(cuda, name), "CPU")
    for name, kernel in zip(
        ("scan", "scan_grad_input", "scan_grad_weight", "scan_backward"), scans._operator(scans._cuda)
    ):
        OPERATORS.impl(name, kernel, "CPU")
    nothing = ctypes.CDLL(None).toascii
    nothing.restype, nothing.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    launch._run, launch.plan_of, launch.raw_stream = nothing, lambda text, device: NoPlan, lambda device: 0
    return functional.triangular_conv1d, scans.scan, importlib.import_module("trigen.torch").StructuredMixer


class Floor(torch.autograd.Function):
    """The least that a derivative written in Python costs: the same tensors kept and returned, nothing checked, nothing run."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return torch.empty_like(grad), torch.empty_like(weight), torch.empty(weight.shape[0])


def cases(mixer, scan, structured):
    """{name: call}. Small tensors: only host time shows."""
    tokens, features, heads = 16, 16, 2
    x, dy = (torch.randn(1, tokens, features, dtype=torch.bfloat16) for _ in range(2))
    gate = torch.randn_like(x)
    weight, bias = torch.randn(tokens, tokens, 1), torch.randn(tokens)
    leaves = xg, wg, bg = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    gg = gate.clone().requires_grad_()
    tiny = torch.zeros(1, 1)

    def inference():
        with torch.no_grad():
            return mixer(x, weight, bias)

    def step(call=mixer):
        with torch.autocast("cpu", torch.bfloat16):
            y = call(xg, wg, bg)
        return torch.autograd.grad(y, leaves, dy)

    def gated():
        with torch.autocast("cpu", torch.bfloat16):
            y = mixer(xg, wg, bg, gate=gg, activation="gelu")
        return torch.autograd.grad(y, (*leaves, gg), dy)

    repeat = structured(tokens, "column", decay="shared")
    vectors = [torch.rand(heads, tokens, requires_grad=True) for _ in range(5)]
    clipped = [torch.rand(size, requires_grad=True) for size in ((heads, tokens), (heads, 1), (heads, tokens))]

    def step_of(call, *parameters):
        def run():
            with torch.autocast("cpu", torch.bfloat16):
                y = call(xg)
            return torch.autograd.grad(y, (xg, *parameters), dy)

        return run

    def column(x):
        vector, decay, bias = clipped
        return scan(x, target=vector, decay=decay.clip(0.9, 1), bias=bias)

    def ranged(x):
        vector, decay, bias = clipped
        return scan(x, target=vector, decay=decay, decay_range=(0.9, 1), bias=bias)

    def operator(name, *given):
        call = getattr(torch.ops.trigen, name).default
        return torch.no_grad()(lambda: call(*given))

    w, row = torch.rand(4, heads, tokens), torch.rand(heads, tokens)
    size = list(weight.shape)

    def harness():
        with torch.autocast("cpu", torch.bfloat16):
            pass
        return torch.autograd.grad(tiny_out, (tiny_in,), tiny, retain_graph=True)

    tiny_in = torch.zeros(1, 1, requires_grad=True)
    tiny_out = tiny_in.view(1, 1)
    return {
        "no gradients": lambda: mixer(x, weight, bias),
        "forward, gradients recorded": lambda: mixer(xg, wg, bg),
        "step": step,
        "step, gelu and gate": gated,
        "step of scan, all vectors": step_of(lambda x: scan(x, *vectors), *vectors),
        "step of scan, a column repeat with decays that are clipped": step_of(column, *clipped),
        "step of scan, the same by decay_range": step_of(ranged, *clipped),
        "step of StructuredMixer, the same of one decay": step_of(repeat, *repeat.parameters()),
        "operator scan": operator("scan", x, w, row),
        "operator scan, gelu and gate": operator("scan", x, w, row, gate, None, "btd", "gelu", True),
        "operator scan_grad_input": operator("scan_grad_input", dy, w),
        "operator scan_grad_weight": operator("scan_grad_weight", dy, x, w, True),
        "operator scan_backward": operator("scan_backward", dy, x, w, True),
        "operator forward": operator("forward", x, weight, bias),
        "operator grad_input": operator("grad_input", dy, weight),
        "operator grad_weight": operator("grad_weight", dy, x, size, weight.dtype, True),
        "floor: operator of three tensors": torch.no_grad()(lambda: NOTHING(x, w, row)),
        "floor: forward": lambda: Floor.apply(xg, wg, bg),
        "floor: step": lambda: step(Floor.apply),
        "autocast and autograd.grad of a view": harness,
    }


NO_KERNELS = frozenset(
    f"aten::{name}"
    for name in (
        "empty empty_like empty_strided new_empty new_empty_strided detach view _unsafe_view reshape _reshape_alias as_strided expand expand_as slice "
        "select unbind narrow unsqueeze squeeze transpose t permute split chunk to _to_copy resolve_conj resolve_neg result_type item is_nonzero"
    ).split()
)


def count(call):
    """(PyTorch's operations in one call, those of them that are kernels on a GPU)."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    seen = [event for event in profile.events() if event.name.startswith("aten::")]

    def kernels(event):
        """Of an operation made of others, theirs."""
        return sum(map(kernels, event.cpu_children)) or event.name not in NO_KERNELS

    return len(seen), sum(kernels(event) for event in seen if event.cpu_parent not in seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, default=Path(__file__).resolve().parents[1] / "python")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--profile", metavar="CASE", help="print cProfile of one case")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    calls = cases(*load(options.package))
    if options.count:
        print("operations of PyTorch in all and, of these, kernels on a GPU; trigen's own launches are not counted")
        for name, call in calls.items():
            print("  {:4} {:4}  {}".format(*count(call), name))
        return 0
    if options.profile:
        profile = cProfile.Profile()
        calls[options.profile]()
        profile.enable()
        for _ in range(options.calls):
            calls[options.profile]()
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return 0
    gc.disable()
    arms = {
        name: lambda call=call: host_us(call, options.calls, clock=time.process_time) for name, call in calls.items()
    }
    best = {name: round(min(samples), 2) for name, samples in in_turn(arms, options.rounds, warm=1).items()}
    if options.json:
        print(json.dumps({"torch": torch.__version__, "python": sys.version.split()[0], "host_us": best}))
    else:
        print(
            f"microseconds of processor time, least of {options.rounds} rounds of {options.calls}; torch {torch.__version__}, Python {sys.version.split()[0]}"
        )
        for name, value in best.items():
            print(f"  {value:8.2f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
