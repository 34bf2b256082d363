"""The PyTorch operator against what people run today, on one GPU, all arms in one run, interleaved. Prints one JSON object a line.

    python bench/torch_ops.py --out torch_ops.jsonl                 # everything: about 8 minutes on an H200
    python bench/torch_ops.py --parts call,step                     # without the models (about 2 minutes)
    python bench/torch_ops.py --tune 20s --parts step               # tune the problems of the step first, 20 s each

Parts
    call    host time of one call, in microseconds, on a tensor so small that the GPU never makes the host wait: torch.mm, an operator
            of torch.library that does nothing, and trigen's operator, functional form and bare plan
    step    forward and both gradients of one token mixer under bf16 autocast with float32 weights: masked conv1d, tril + matmul, the
            compiled tril + matmul, trigen; eager and as a CUDA graph; microseconds a step
    model   training steps (AdamW) of a 16-layer masked mixer: plain and trigen, eager and compiled; tokens/s and peak memory

Medians over interleaved rounds; inputs rotate through more memory than the L2 holds. Each line names device, driver side versions and
shapes. Ratios are plain time over trigen time: above 1 trigen is faster.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import trigen
import trigen.torch as tt

ROOT = Path(__file__).resolve().parents[1]


class Report:
    def __init__(self, path):
        self.file = open(path, "w") if path else None
        self.common = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
                       "trigen": trigen.__version__}

    def add(self, **fields):
        line = json.dumps({**fields, **self.common})
        print(line, flush=True)
        if self.file:
            self.file.write(line + "\n")
            self.file.flush()


# ---- host time of a call -------------------------------------------------------------------------------------------------


def nothing_operators():
    """Operators of torch.library in Python that do nothing but return an empty tensor: without and with a derivative."""
    library = torch.library.Library("trigen_bench", "DEF")
    arguments = "(Tensor x, Tensor weight, Tensor? bias, Tensor? gate, Tensor? residual, int pad, str layout, str fill, int diag, " \
                "str activation, str math) -> Tensor"
    for name in ("nothing", "nothing_autograd"):
        library.define(name + arguments)
        library.impl(name, lambda x, *rest: torch.empty(x.shape, dtype=x.dtype, device=x.device), "CUDA")
    torch.library.register_autograd("trigen_bench::nothing_autograd", lambda ctx, grad: (grad,) + (None,) * 10,
                                    setup_context=lambda ctx, inputs, output: None, lib=library)
    return library, torch.ops.trigen_bench.nothing.default, torch.ops.trigen_bench.nothing_autograd.default


def bench_call(report, rounds=25, calls=300):
    device = "cuda"
    tokens, features = 128, 64
    a, b = (torch.randn(128, 128, device=device, dtype=torch.bfloat16) for _ in range(2))
    x = torch.randn(1, tokens, features, device=device, dtype=torch.bfloat16)
    weight = torch.randn(tokens, tokens, 1, device=device, dtype=torch.bfloat16)
    bias = torch.randn(tokens, device=device, dtype=torch.bfloat16)
    xg, wg, bg = (t.clone().requires_grad_() for t in (x, weight, bias))
    ag = a.clone().requires_grad_()
    keep, nothing, nothing_autograd = nothing_operators()
    rest = (None, None, 0, "btd", "lower", 0, "none", "default")
    functional, operator = tt.triangular_conv1d, tt.forward
    mixer = tt.TriangularConv1d(tokens, device=device, dtype=torch.bfloat16)
    frozen = tt.freeze(mixer, x)
    functional(x, weight, bias)
    plan = next(launch.plan for launch in tt.cuda._launches.values() if launch.plan is not None)
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    tensors = dict(x=trigen.DeviceTensor(x.data_ptr()), y=trigen.DeviceTensor(y.data_ptr()), w=weight.data_ptr(), bias=bias.data_ptr(),
                   stream=stream)
    with_grad = {"torch.mm": lambda: torch.mm(ag, b), "nothing operator with derivative": lambda: nothing_autograd(xg, wg, bg, *rest),
                 "trigen functional": lambda: functional(xg, wg, bg), "trigen operator": lambda: operator(xg, wg, bg, *rest),
                 "conv1d": lambda: F.conv1d(xg, wg, bg)}
    no_grad = {"torch.mm": lambda: torch.mm(a, b), "torch.empty": lambda: torch.empty(x.shape, dtype=x.dtype, device=device),
               "nothing operator": lambda: nothing(x, weight, bias, *rest),
               "nothing operator with derivative": lambda: nothing_autograd(x, weight, bias, *rest),
               "trigen functional": lambda: functional(x, weight, bias), "trigen operator": lambda: operator(x, weight, bias, *rest),
               "trigen module": lambda: mixer(x), "trigen frozen": lambda: frozen(x), "trigen plan": lambda: plan.run(**tensors),
               "conv1d": lambda: F.conv1d(x, weight, bias)}
    for mode, arms in (("no_grad", no_grad), ("grad", with_grad)):
        samples = {name: [] for name in arms}
        with torch.set_grad_enabled(mode == "grad"):
            for round_number in range(rounds + 2):
                for name, call in arms.items():
                    torch.cuda.synchronize()
                    began = time.perf_counter()
                    for _ in range(calls):
                        call()
                    elapsed = time.perf_counter() - began
                    if round_number >= 2:
                        samples[name].append(1e6 * elapsed / calls)
        medians = {name: round(statistics.median(values), 3) for name, values in samples.items()}
        report.add(part="call", mode=mode, shape=f"B=1 T={tokens} D={features} bf16", host_us=medians,
                   functional_over_mm=round(medians["trigen functional"] / medians["torch.mm"], 3),
                   operator_over_nothing=round(medians["trigen operator"] / medians["nothing operator with derivative"], 3))


# ---- one mixer's training step -------------------------------------------------------------------------------------------


def mixers(weight, bias):
    """{name: (mixer, its own weight and bias)}: parameters of their own, since the first arm replaces its weight's memory."""

    def conv_data(x, weight, bias):
        weight.data = torch.tril(weight.data.squeeze(-1)).unsqueeze(-1)
        return F.conv1d(x, weight, bias)

    def conv_graph(x, weight, bias):
        return F.conv1d(x, torch.tril(weight.squeeze(-1)).unsqueeze(-1), bias)

    def tril_matmul(x, weight, bias):
        return torch.matmul(torch.tril(weight.squeeze(-1)), x) + bias.to(x.dtype).unsqueeze(-1)

    arms = {"masked conv1d (weight.data)": conv_data, "masked conv1d (tril in the graph)": conv_graph, "tril + matmul": tril_matmul,
            "compiled tril + matmul": torch.compile(tril_matmul, dynamic=False), "trigen": tt.triangular_conv1d}
    return {name: (mixer, torch.nn.Parameter(weight.clone()), torch.nn.Parameter(bias.clone())) for name, mixer in arms.items()}


def tune_step(report, shapes, dtype, budget):
    """Tunes the three problems of a training step at every shape, under the same autocast."""
    with trigen.record() as seen:
        for B, T, D in shapes:
            x = torch.randn(B, T, D, device="cuda", dtype=dtype, requires_grad=True)
            weight = torch.zeros(T, T, 1, device="cuda", requires_grad=True)
            bias = torch.zeros(T, device="cuda", requires_grad=True)
            with torch.autocast("cuda", dtype):
                tt.triangular_conv1d(x, weight, bias).sum().backward()
    began = time.perf_counter()
    seen.tune(budget=budget)
    tt.forget_plans()
    report.add(part="tune", problems=seen.problems, seconds=round(time.perf_counter() - began, 1))


def bench_step(report, B, T, D, dtype, rounds=15, repeats=8):
    device = "cuda"
    generator = torch.Generator(device).manual_seed(0)
    weight = torch.tril(torch.randn(T, T, device=device, generator=generator) / T**0.5).unsqueeze(-1)
    bias = torch.randn(T, device=device, generator=generator)
    rotation = max(2, -(-256 * 2**20 // (B * T * D * 2)))
    xs = [torch.randn(B, T, D, device=device, dtype=dtype, generator=generator).requires_grad_() for _ in range(rotation)]
    dy = torch.randn(B, T, D, device=device, dtype=dtype, generator=generator)

    def step(arm, x):
        mixer, *parameters = arm
        with torch.autocast("cuda", dtype):
            y = mixer(x, *parameters)
        return torch.autograd.grad(y, (x, *parameters), dy)

    arms = mixers(weight, bias)
    results, expected = {}, None
    for name, arm in arms.items():
        for _ in range(3):
            got = step(arm, xs[0])
        got = [got[0].float(), got[1].squeeze(-1).tril().float(), got[2].float()]
        if expected is None:
            expected = got
        worst = max(float((one - two).norm() / two.norm()) for one, two in zip(got, expected))
        if not worst < 2e-2:
            raise SystemExit(f"{name} disagrees with the first arm by {worst:.2g} (relative norm); no time is reported for wrong numbers")
        results[name] = {"eager": [], "graph": [], "difference": worst}

    graphs = {}
    for name, arm in arms.items():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for x in xs[:3]:
                    step(arm, x)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for x in xs:
                    step(arm, x)
            graphs[name] = graph
        except RuntimeError as error:
            torch.cuda.synchronize()
            results[name]["graph_error"] = str(error).splitlines()[0]
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def timed(run, steps):
        torch.cuda.synchronize()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / steps

    turns = repeats // rotation + 1

    def run_eager(arm):
        for _ in range(turns):
            for x in xs:
                step(arm, x)

    for round_number in range(rounds + 2):
        for name, arm in arms.items():
            eager = timed(lambda: run_eager(arm), turns * rotation)
            replay = timed(graphs[name].replay, rotation) if name in graphs else None
            if round_number >= 2:
                results[name]["eager"].append(eager)
                if replay is not None:
                    results[name]["graph"].append(replay)
    table = {}
    for name, values in results.items():
        table[name] = {"eager_us": round(statistics.median(values["eager"]), 2),
                       "graph_us": round(statistics.median(values["graph"]), 2) if values["graph"] else None,
                       "difference": values["difference"], **({"graph_error": values["graph_error"]} if "graph_error" in values else {})}
    plain = {name: row for name, row in table.items() if name != "trigen"}
    best_eager = min(row["eager_us"] for row in plain.values())
    best_graph = min(row["graph_us"] for row in plain.values() if row["graph_us"])
    report.add(part="step", shape=f"B={B} T={T} D={D}", dtype=str(dtype), weights="float32", rotation=rotation, arms=table,
               eager_ratio=round(best_eager / table["trigen"]["eager_us"], 3),
               graph_ratio=round(best_graph / table["trigen"]["graph_us"], 3) if table["trigen"]["graph_us"] else None,
               plans=[f"{info.problem} {info.candidate} {info.provenance} {info.match}" for info in tt.plans()])


# ---- a model's training step ---------------------------------------------------------------------------------------------


def bench_model(report, B, T, D, layers, dtype, compiled=True, warm=4, steps=12):
    spec = importlib.util.spec_from_file_location("train_mixer", ROOT / "examples/python/train_mixer.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    device, vocabulary = "cuda", 8192
    arms = ["plain", "trigen"] + (["plain compiled", "trigen compiled"] if compiled else [])
    tokens = torch.randint(vocabulary, (B, T + 1), device=device)
    for arm in arms:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = example.MaskedMixer(vocabulary, T, D, layers).to(device)
        if arm.startswith("trigen"):
            tt.convert(model, tokens=T, select=lambda name, _: name.endswith("mixer"))
        run = torch.compile(model, dynamic=False) if arm.endswith("compiled") else model
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        times, losses = [], []
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        for number in range(warm + steps):
            start = torch.cuda.Event(enable_timing=True)
            stop = torch.cuda.Event(enable_timing=True)
            start.record()
            with torch.autocast("cuda", dtype):
                loss = run(tokens)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            stop.record()
            if number == warm - 1:
                torch.cuda.synchronize()
                first = time.perf_counter() - began
            if number >= warm:
                times.append((start, stop))
            losses.append(loss.detach())
        torch.cuda.synchronize()
        milliseconds = statistics.median(start.elapsed_time(stop) for start, stop in times)
        report.add(part="model", arm=arm, shape=f"B={B} T={T} D={D} layers={layers} vocabulary={vocabulary}", dtype=str(dtype),
                   step_ms=round(milliseconds, 3), tokens_per_s=round(1e3 * B * T / milliseconds), first_steps_s=round(first, 2),
                   peak_GiB=round(torch.cuda.max_memory_allocated() / 2**30, 3),
                   losses=[round(float(value), 4) for value in (losses[0], losses[-1])])
        del model, run, optimiser, loss, losses
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="call,step,model")
    parser.add_argument("--out", help="also write the lines to this file")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--shapes", default="32,512,1024;16,1024,1024", help="B,T,D;... of the parts step and model")
    parser.add_argument("--tune", metavar="BUDGET", help="tune the step's problems first, so long for each (20s, 1m)")
    parser.add_argument("--no-compiled-models", action="store_true")
    options = parser.parse_args()
    parts = options.parts.split(",")
    unknown = set(parts) - {"call", "step", "model"}
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; allowed: call, step, model")
    if not torch.cuda.is_available():
        print("[SKIP] no CUDA device", file=sys.stderr)
        return 0
    report = Report(options.out)
    dtype = getattr(torch, options.dtype)
    shapes = [tuple(int(size) for size in shape.split(",")) for shape in options.shapes.split(";")]
    if options.tune:
        tune_step(report, shapes, dtype, options.tune)
    if "call" in parts:
        bench_call(report)
    if "step" in parts:
        for shape in shapes:
            bench_step(report, *shape, dtype)
    if "model" in parts:
        for shape in shapes:
            bench_model(report, *shape, options.layers, dtype, not options.no_compiled_models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
