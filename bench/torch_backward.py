"""The backward pass of a mixer (dx, dW, grad_bias and, with a gate, grad_gate; bf16). CUDA graphs of 24 passes over three sets of inputs, arms in
turn. Prints one JSON object a shape and epilogue. The arms:

    grad_epilogue   the kernel of that name, then trigen's two products: what eager PyTorch runs
    elementwise     PyTorch's elementwise kernels in its place
    dense           PyTorch's elementwise kernels, and two of its products on a weight that is masked already
    derivative: ... the epilogue's derivatives alone, by grad_epilogue, by PyTorch's kernels and as torch.compile fuses them

    python bench/torch_backward.py                                        # untuned kernels, unless the cache has tuned ones
    python bench/torch_backward.py --tune 2s --shapes "32,512,1024;8,2048,1024" --epilogues none,gelu,gelu+gate --out backward.jsonl
"""

import argparse
import sys

import torch
import trigen
import trigen.torch as tt
from timing import Clock, Report, capture, in_turn, median, parameters_of
from trigen.torch import cuda, plain

PASSES = 24


class Set:
    """One set of inputs."""

    def __init__(self, batch, tokens, features, weights, gated):
        def random():
            return torch.randn(batch, tokens, features, device="cuda", dtype=torch.bfloat16)

        self.x, self.dy, self.pre, self.gate = random(), random(), random(), random() if gated else None
        self.weight = torch.randn(tokens, tokens, device="cuda", dtype=weights)
        self.bias, self.masked = torch.randn(tokens, device="cuda", dtype=weights), self.weight.bfloat16().tril()


def elementwise(dy, pre, gate, activation):
    """As PyTorch's operators do it one by one."""
    dgate = None if gate is None else dy * plain.activate(pre, activation)
    return plain.activation_gradient(dy if gate is None else dy * gate, pre, activation), dgate


def products(s, dz):
    return cuda.gradients(dz, s.x, s.weight, s.bias, (0, "btd", "lower", 0, "none", "default", "dense"))


def dense(s, dz):
    rows = len(s.weight)
    dw = dz.transpose(0, 1).reshape(rows, -1) @ s.x.transpose(0, 1).reshape(rows, -1).t()
    return torch.matmul(s.masked.t(), dz), dw.tril_(), dz.sum((0, 2))


def arms_of(activation, gated):
    if activation == "none" and not gated:
        return {"trigen": lambda s: products(s, s.dy), "dense": lambda s: dense(s, s.dy)}

    def after(derivative, rest):
        def run(s):
            dz, dgate = derivative(s.dy, s.pre, s.gate, activation)
            return (*rest(s, dz), dgate)

        return run

    kernel, fused = cuda.grad_epilogue, torch.compile(elementwise)
    arms = {
        "grad_epilogue": after(kernel, products),
        "elementwise": after(elementwise, products),
        "dense": after(elementwise, dense),
    }
    for name, derivative in (("grad_epilogue", kernel), ("elementwise", elementwise), ("torch.compile", fused)):
        arms[f"derivative: {name}"] = lambda s, derivative=derivative: derivative(s.dy, s.pre, s.gate, activation)
    return arms


def parts_of(epilogue):
    """(activation, whether there is a gate)"""
    parts = epilogue.split("+")
    return next((part for part in parts if part in ("gelu", "silu")), "none"), "gate" in parts


def check(s, activation):
    """grad_epilogue against double precision, and again for the same bits."""
    double = [None if tensor is None else tensor[:2].double() for tensor in (s.dy, s.pre, s.gate)]
    first, second = (cuda.grad_epilogue(s.dy, s.pre, s.gate, activation) for _ in range(2))
    for got, again, want in zip(first, second, elementwise(*double, activation)):
        if want is not None and not torch.equal(got, again):
            raise SystemExit("two runs of grad_epilogue do not have the same bits")
        if want is not None and not bool(((got[:2].double() - want).abs() <= 2**-8 * want.abs() + 2e-6).all()):
            raise SystemExit(f"grad_epilogue is wrong: off by {(got[:2].double() - want).abs().max().item()}")


def bench(report, shape, epilogue, weights, rounds):
    batch, tokens, features = shape[:3]
    activation, gated = parts_of(epilogue)
    sets = [Set(batch, tokens, features, weights, gated) for _ in range(3)]
    arms = arms_of(activation, gated)
    if "elementwise" in arms:
        check(sets[0], activation)
    graphs, failed = {}, {}
    for name, arm in arms.items():

        def passes(arm=arm):
            for i in range(PASSES):
                arm(sets[i % len(sets)])

        graphs[name], failed[name] = capture(passes, passes)
    clock = Clock("cuda")
    replays = {name: lambda graph=graph: clock(graph.replay) / PASSES for name, graph in graphs.items() if graph}
    times = in_turn(replays, rounds, warm=2)
    report.add(
        part="backward",
        shape=f"B={batch} T={tokens} D={features} bf16",
        epilogue=epilogue,
        weights=str(weights),
        us={n: median(t) for n, t in times.items()},
        kernels=[info.candidate for info in tt.plans()],
        failed={n: why for n, why in failed.items() if why},
    )
    tt.forget_plans()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="32,512,1024;16,1024,1024;8,2048,1024", help="B,T,D;...")
    parser.add_argument(
        "--epilogues", default="none,gelu,gelu+gate,gate", help="sums of gelu or silu and gate, or none"
    )
    parser.add_argument("--weights", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tune", metavar="BUDGET", help="tune the problems first, so long for each (2s)")
    parser.add_argument("--out", help="also append the lines to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("[SKIP] no CUDA device", file=sys.stderr)
        return 0
    report = Report(options.out, "cuda", trigen=trigen.__version__)
    weights = getattr(torch, options.weights)
    for shape in map(parameters_of, options.shapes.split(";")):
        for epilogue in options.epilogues.split(","):
            if options.tune:
                with trigen.record() as seen:
                    activation, gated = parts_of(epilogue)
                    arms_of(activation, gated)["trigen" if epilogue == "none" else "grad_epilogue"](
                        Set(*shape[:3], weights, gated)
                    )
                seen.tune(budget=options.tune)
                tt.forget_plans()
            bench(report, shape, epilogue, weights, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
