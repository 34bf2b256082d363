"""The PyTorch operator against what people run today, on one GPU, all arms in one run, interleaved. Prints one JSON object a line, as each
measurement ends.

    python bench/torch_ops.py --out torch_ops.jsonl                     # call, step and model
    python bench/torch_ops.py --parts call,step --tune 10s              # tunes the step's problems first, 10 s each
    python bench/torch_ops.py --parts step --shapes taps --no-compiled  # lists of shapes: mixer, taps, heads; or B,T,D[,K[,H]];...
    python bench/torch_ops.py --parts step --precision f32,tf32
    python bench/torch_ops.py --parts model --layers 16                 # --compile model: the whole model, not block by block
    python bench/torch_ops.py --device cpu --shapes 2,16,8 --rounds 2 --layers 2   # does the script work? no figures

Parts
    call    host time of one call, in microseconds, on a tensor so small that the GPU never makes the host wait: torch.mm, an operator
            of torch.library that does nothing, and trigen's operator, functional form, module and bare plan
    host    host time of a step, piece by piece: autocast, one launch, autograd's hand-over, a derivative that launches nothing, each operator as
            a compiled model calls it, and compiled steps of one mixer
    step    forward and both gradients of one token mixer under autocast with float32 weights (or in float32): masked conv1d, tril + matmul,
            three products by hand on a weight that is masked already, for taps unfold + matmul, for heads the loop and einsum, the best of
            them compiled (--autotune: also with mode="max-autotune"), trigen. Eager, eager with autograd
            on the calling thread, one of a chain of eight, CUDA graph, forward alone as a graph
    model   training steps (AdamW) of a masked mixer: plain and trigen, eager and compiled; tokens/s, peak memory, and the mixers' share

What a step holds, alike for every arm: entering autocast, the mixer, torch.autograd.grad with a given dy. No loss, no sum, no zero_grad, no
accumulation into .grad. Casts of the weight that an arm needs under autocast are its own, once a step, as in training (an optimiser changes
the weight between steps). On a GPU each backward pass wakes autograd's device thread and is waited for: a cost of the pass, not of the
operator, that a model pays once for all its layers. `eager` has it in full, `eager_chain` an eighth, `eager_inline` none.

Medians over interleaved rounds; a sample of eager steps is 32 of them, between which nothing waits, as in training;
inputs rotate through more memory than the L2 holds. Ratios are the best other arm's time over trigen's:
above 1 trigen is faster.
"""

import argparse
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import trigen
import trigen.torch as tt
from timing import Report, host_us, in_turn, parameters_of
from torch_host import bench_host
from torch_model import bench_model
from torch_step import PRECISIONS, WrongArm, bench_step, step_problems

SHAPES = {
    "mixer": "32,512,1024;16,1024,1024",
    "steps": "32,512,1024;16,1024,1024;8,2048,1024;4,4096,1024",
    "taps": "32,512,1024,4;32,512,1024,16;64,256,512,16;16,1024,1024,8",
    "heads": "16,1024,256,1,4;64,512,128,1,4",
}


# ---- host time of a call -------------------------------------------------------------------------------------------------


def nothing_operators():
    """Operators of torch.library in Python that do nothing but return an empty tensor: without and with a derivative."""
    library = torch.library.Library("trigen_bench", "DEF")
    arguments = (
        "(Tensor x, Tensor weight, Tensor? bias, Tensor? gate, Tensor? residual, int pad, str layout, str fill, int diag, "
        "str activation, str math) -> Tensor"
    )
    for name in ("nothing", "nothing_autograd"):
        library.define(name + arguments)
        library.impl(name, lambda x, *rest: torch.empty(x.shape, dtype=x.dtype, device=x.device), "CUDA")
    torch.library.register_autograd(
        "trigen_bench::nothing_autograd",
        lambda ctx, grad: (grad,) + (None,) * 10,
        setup_context=lambda ctx, inputs, output: None,
        lib=library,
    )
    return library, torch.ops.trigen_bench.nothing.default, torch.ops.trigen_bench.nothing_autograd.default


def bench_call(report, rounds=25, calls=300):
    device = "cuda"
    tokens, features = 128, 64
    a, b = (torch.randn(128, 128, device=device, dtype=torch.bfloat16) for _ in range(2))
    x = torch.randn(1, tokens, features, device=device, dtype=torch.bfloat16)
    weight = torch.randn(tokens, tokens, 1, device=device, dtype=torch.bfloat16)
    bias = torch.randn(tokens, device=device, dtype=torch.bfloat16)
    xg, wg, bg = (t.clone().requires_grad_() for t in (x, weight, bias))
    ag, bg_too = (t.clone().requires_grad_() for t in (a, b))
    keep, nothing, nothing_autograd = nothing_operators()
    rest = (None, None, 0, "btd", "lower", 0, "none", "default")
    functional, operator = tt.triangular_conv1d, torch.ops.trigen.forward.default
    mixer = tt.TriangularConv1d(tokens, device=device, dtype=torch.bfloat16)
    frozen = tt.freeze(mixer, x)
    functional(x, weight, bias)
    plan = next(one.plan for one in tt.launch.launches.values() if one.plan is not None)
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    tensors = dict(
        x=trigen.DeviceTensor(x.data_ptr()),
        y=trigen.DeviceTensor(y.data_ptr()),
        w=weight.data_ptr(),
        bias=bias.data_ptr(),
        stream=stream,
    )
    with_grad = {
        "torch.mm": lambda: torch.mm(ag, bg_too),
        "torch.mm, one factor's gradient": lambda: torch.mm(ag, b),
        "nothing operator with derivative": lambda: nothing_autograd(xg, wg, bg, *rest),
        "trigen functional": lambda: functional(xg, wg, bg),
        "trigen operator": lambda: operator(xg, wg, bg, *rest),
        "conv1d": lambda: F.conv1d(xg, wg, bg),
    }
    no_grad = {
        "torch.mm": lambda: torch.mm(a, b),
        "torch.empty": lambda: torch.empty(x.shape, dtype=x.dtype, device=device),
        "nothing operator": lambda: nothing(x, weight, bias, *rest),
        "nothing operator with derivative": lambda: nothing_autograd(x, weight, bias, *rest),
        "trigen functional": lambda: functional(x, weight, bias),
        "trigen operator": lambda: operator(x, weight, bias, *rest),
        "trigen module": lambda: mixer(x),
        "trigen frozen": lambda: frozen(x),
        "trigen plan": lambda: plan.run(**tensors),
        "conv1d": lambda: F.conv1d(x, weight, bias),
    }
    for mode, arms in (("no_grad", no_grad), ("grad", with_grad)):

        def sample(call):
            torch.cuda.synchronize()
            return host_us(call, calls)

        with torch.set_grad_enabled(mode == "grad"):
            samples = in_turn({name: lambda call=call: sample(call) for name, call in arms.items()}, rounds, warm=2)
        medians = {name: round(statistics.median(values), 3) for name, values in samples.items()}
        report.add(
            part="call",
            mode=mode,
            shape=f"B=1 T={tokens} D={features} bf16",
            host_us=medians,
            functional_over_mm=round(medians["trigen functional"] / medians["torch.mm"], 3),
            operator_over_nothing=round(medians["trigen operator"] / medians["nothing operator with derivative"], 3),
        )


def tune_step(report, shapes, precision, device, budget):
    """Tunes the problems of a training step at every shape, under the same autocast."""
    seen = step_problems(shapes, precision, device)
    began = time.perf_counter()
    seen.tune(budget=budget)
    tt.forget_plans()
    report.add(part="tune", problems=seen.problems, seconds=round(time.perf_counter() - began, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="call,step,model")
    parser.add_argument("--out", help="also append the lines to this file")
    parser.add_argument(
        "--precision",
        default="bfloat16",
        help=f"of the parts step and model: {', '.join(PRECISIONS)}, or several with commas",
    )
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument(
        "--shapes",
        default="mixer",
        help=f"{', '.join(SHAPES)}, or B,T,D[,K[,H]];... (parts step and model; the model takes B,T,D)",
    )
    parser.add_argument("--rounds", type=int, default=11, help="interleaved rounds of the part step")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each model")
    parser.add_argument("--tune", metavar="BUDGET", help="tune the step's problems first, so long for each (20s, 1m)")
    parser.add_argument("--no-compiled", action="store_true", help="no arms under torch.compile")
    parser.add_argument(
        "--autotune", action="store_true", help='compile with mode="max-autotune", too: about a minute a shape'
    )
    parser.add_argument("--no-chain", action="store_true", help="no chain of eight")
    parser.add_argument("--compile", default="blocks", choices=("blocks", "model"), help="what compiled models compile")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    parts, precisions = options.parts.split(","), options.precision.split(",")
    for what, given, allowed in (
        ("part", parts, ("call", "host", "step", "model")),
        ("precision", precisions, tuple(PRECISIONS)),
    ):
        unknown = sorted(set(given) - set(allowed))
        if unknown:
            parser.error(f"unknown {what} {', '.join(unknown)}; allowed: {', '.join(allowed)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        print("[SKIP] no CUDA device", file=sys.stderr)
        return 0
    report = Report(options.out, options.device, trigen=trigen.__version__)
    try:
        shapes = [parameters_of(shape) for shape in SHAPES.get(options.shapes, options.shapes).split(";")]
    except ValueError as error:
        parser.error(str(error))
    compiled, status = not options.no_compiled, 0
    if "call" in parts and options.device == "cuda":
        bench_call(report)
    if "host" in parts and options.device == "cuda":
        bench_host(report)
        bench_host(report, *shapes[0][:3], calls=16)
    for precision in precisions:
        if options.tune:
            tune_step(report, shapes, precision, options.device, options.tune)
        if "step" in parts:
            for shape in shapes:
                try:
                    bench_step(
                        report,
                        shape,
                        precision,
                        options.device,
                        options.rounds,
                        compiled=compiled,
                        chain=not options.no_chain,
                        autotune=options.autotune,
                    )
                except WrongArm as error:
                    report.add(part="step", shape=str(shape), precision=precision, error=str(error))
                    status = 1
        if "model" in parts:
            for shape in shapes:
                bench_model(
                    report,
                    shape,
                    options.layers,
                    precision,
                    options.device,
                    compiled,
                    options.compile,
                    steps=options.steps,
                    vocabulary=8192 if options.device == "cuda" else 64,
                )
    return status


if __name__ == "__main__":
    sys.exit(main())
