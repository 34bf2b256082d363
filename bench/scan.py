"""A mixer of vectors (column repeat with a decay for each head, bias) three ways on one GPU, all arms in one run, interleaved. Prints one JSON object
a line, and at the end a table on stderr.

    python bench/scan.py --out scan.jsonl                          # 16,1024,1024,4 and 4,4096,1024,1
    python bench/scan.py --problems "16,1024,1024,4;8,512,512,1" --tune 5s
    python bench/scan.py --layout bdt --dtype float16
    python bench/scan.py --device cpu --problems 2,16,8,2 --rounds 1   # no figures

Problems are B,T,D,H: batch, tokens, features of one head, heads.

Arms
    scan             trigen.torch.scan; compiled: torch.compile of the same; module: trigen.torch.StructuredMixer with the same vectors
    matrix           what public layers do: torch.where makes the T x T matrix of the vectors, torch.matmul multiplies with it, on [B, H*D, T] whatever
                     --layout says; compiled: torch.compile of the same
    dense            trigen.torch.triangular_conv1d with as many full triangular weights as there are heads
    copy             the device's copy of x to y: nothing moves the activations faster. Its one time stands in all parts

Parts: forward (no derivative), backward (of a graph that is kept), step (both, by torch.autograd.grad with a given dy; no loss, no zero_grad). x and
dy have --dtype under autocast, vectors and weights are float32. us: medians of interleaved rounds, by CUDA events around --calls calls that
wait for nothing, so host time is in them where the GPU waits for the host; graph_us: CUDA graphs of forward and of
step, the GPU's time alone (null with the reason in "no_graph" where a capture failed). Inputs rotate through more memory than the L2 holds.
ratio: the best of the others (not copy) over the best of scan's, above 1 scan is faster; of_copy: copy's time over it.
"""

import argparse
import sys

import torch
import trigen
import trigen.torch as tt
from timing import Clock, Report, capture, in_turn, median

PARTS = ("forward", "backward", "step")


def by_scan(x, dy, p, layout):
    return tt.scan(x, target=p["vector"], decay=p["decay"], decay_range=(0.9, 1), bias=p["bias"], layout=layout)


def by_matrix(x, dy, p, layout):
    """On [B, H, D, T]."""
    at = torch.arange(x.shape[-1], device=x.device)
    distance = at[None, :] - at[:, None]
    powers = p["decay"].clip(0.9, 1)[:, :, None] ** distance
    m = torch.where(distance >= 0, p["vector"][:, None, :] * powers, torch.zeros((), device=x.device))
    return torch.matmul(x, m.to(x.dtype)) + p["bias"][None, :, None, :].to(x.dtype)


def by_module(x, dy, p, layout):
    return p["module"](x)


def by_dense(x, dy, p, layout):
    return tt.triangular_conv1d(x, p["weight"], p["bias"], layout=layout, padding=0)


class Problem:
    """Inputs and parameters, on as many sets of activations as exceed the L2."""

    def __init__(self, sizes, options):
        self.B, self.T, self.D, self.H = sizes
        device, dtype = options.device, getattr(torch, options.dtype)
        torch.manual_seed(0)
        count = self.B * self.T * self.D * self.H
        sets = 2 if device == "cuda" and count * dtype.itemsize > 64e6 else 6 if device == "cuda" else 1
        shape = (self.B, self.T, self.H * self.D) if options.layout == "btd" else (self.B, self.H * self.D, self.T)
        self.activations = [
            tuple(torch.randn(shape, device=device, dtype=dtype) for _ in range(2)) for _ in range(sets)
        ]
        for x, _ in self.activations:
            x.requires_grad_()
        self.headed = [
            tuple(torch.randn(self.B, self.H, self.D, self.T, device=device, dtype=dtype) for _ in range(2))
            for _ in range(sets)
        ]
        for x, _ in self.headed:
            x.requires_grad_()
        parameters = {
            "vector": torch.randn(self.H, self.T) / self.T**0.5,
            "decay": torch.full((self.H, 1), 0.95),
            "bias": torch.zeros(self.H, self.T),
            "weight": torch.randn(self.H, self.T, self.T, 1) / self.T,
        }
        self.p = {name: value.to(device).requires_grad_() for name, value in parameters.items()}
        decays = "each" if self.H > 1 else "shared"
        module = tt.StructuredMixer(self.T, heads=self.H, decay=decays, layout=options.layout, device=device)
        own = (self.p[name].detach() for name in ("vector", "bias", "decay"))
        module.load_state_dict(dict(zip(("weight", "bias", "decay_value"), own)))
        self.p.update(module.named_parameters(prefix="module"), module=module)


def parts_of(make, sets, p, names, layout, autocast):
    """{part: a function of a set's number}."""
    wanted = [p[name] for name in names]

    def forward(at):
        with torch.autocast(*autocast), torch.no_grad():
            make(*sets[at], p, layout)

    def graph(at):
        with torch.autocast(*autocast):
            return make(*sets[at], p, layout)

    kept = []

    def backward(at):
        while len(kept) < len(sets):
            kept.append(graph(len(kept)))
        torch.autograd.grad(kept[at], [sets[at][0], *wanted], sets[at][1], retain_graph=True)

    def step(at):
        kept.clear()  # their leaves have another stream than a capture's
        torch.autograd.grad(graph(at), [sets[at][0], *wanted], sets[at][1])

    return dict(zip(PARTS, (forward, backward, step)))


def arms_of(problem, options):
    """{arm: {part: a function of a set's number}}."""
    autocast = (options.device, getattr(torch, options.dtype))
    vectors, dense = ("vector", "decay", "bias"), ("weight", "bias")
    own = ("module.weight", "module.bias", "module.decay_value")
    given = {
        "scan": (by_scan, problem.activations, vectors),
        "scan, compiled": (by_scan, problem.activations, vectors),
        "scan, module": (by_module, problem.activations, own),
        "matrix": (by_matrix, problem.headed, vectors),
        "matrix, compiled": (by_matrix, problem.headed, vectors),
        "dense": (by_dense, problem.activations, dense),
    }
    arms = {}
    for name, (make, sets, names) in given.items():
        if "compiled" in name:
            if options.no_compiled:
                continue
            make = torch.compile(make, dynamic=False)
        arms[name] = parts_of(make, sets, problem.p, names, options.layout, autocast)
    outputs = [torch.empty_like(x) for x, _ in problem.activations]

    def copied(at):
        with torch.no_grad():
            outputs[at].copy_(problem.activations[at][0])

    arms["copy"] = dict.fromkeys(PARTS, copied)
    return arms


def check(problem, options):
    """The arms compute the same: scan's and the matrix's outputs on the first set."""
    x, dy = problem.activations[0]
    with torch.no_grad(), torch.autocast(options.device, getattr(torch, options.dtype)):
        y = by_scan(x, dy, problem.p, options.layout)
        y = y if options.layout == "bdt" else y.mT
        x = x if options.layout == "bdt" else x.mT
        want = by_matrix(x.reshape(x.shape[0], problem.H, problem.D, problem.T), None, problem.p, "bdt").flatten(1, 2)
    return float((y.float() - want.float()).norm() / want.float().norm())


def bench(sizes, options, report):
    problem = Problem(sizes, options)
    apart = check(problem, options)
    arms = arms_of(problem, options)
    clock, sets = Clock(options.device), len(problem.activations)
    if options.tune:
        with trigen.record() as seen:
            arms["scan"]["step"](0)
            arms["dense"]["step"](0)
        seen.tune(budget=options.tune)
        tt.forget_plans()
    rows = []
    for part in PARTS:
        runs = {name: parts[part] for name, parts in arms.items()}

        def sample(run):
            def calls():
                for at in range(options.calls):
                    run(at % sets)

            return lambda: clock(calls) / options.calls

        eager = in_turn(
            {name: sample(run) for name, run in runs.items()}, options.rounds, warm=2, seconds=options.seconds
        )
        us, graph_us, no_graph = {name: median(values) for name, values in eager.items()}, {}, {}
        if (
            options.device == "cuda" and part != "backward"
        ):  # which runs on the stream of its forward pass, outside a capture
            replays = {}
            for name, run in runs.items():

                def every(run=run):
                    for at in range(sets):
                        run(at)

                graph, why = capture(every, every)
                if graph is None:
                    graph_us[name], no_graph[name] = None, why
                else:
                    replays[name] = lambda graph=graph: clock(graph.replay) / sets
            times = in_turn(replays, options.rounds, warm=2, seconds=options.seconds)
            graph_us.update({name: median(values) for name, values in times.items()})
        line = dict(zip("BTDH", sizes), part=part, layout=options.layout, dtype=options.dtype, us=us, graph_us=graph_us)
        for key, times in (("", us), ("graph_", graph_us)):
            ours = [value for name, value in times.items() if name.startswith("scan") and value]
            others = [value for name, value in times.items() if not name.startswith(("scan", "copy")) and value]
            if ours and others:
                line[f"{key}ratio"] = round(min(others) / min(ours), 3)
                line[f"{key}of_copy"] = round(times["copy"] / min(ours), 3) if times["copy"] else None
        report.add(**line, no_graph=no_graph, apart=float(f"{apart:.2g}"))
        rows.append(line)
    return rows


def table(rows):
    """The lines as text: microseconds, by events and of graphs."""
    names = list(dict.fromkeys(name for row in rows for name in row["us"]))
    text = [
        f"{'B,T,D,H':20}{'part':10}{'':8}" + "".join(f"{name:>18}" for name in names) + f"{'ratio':>8}{'of copy':>9}"
    ]
    for row in rows:
        sizes = ",".join(str(row[key]) for key in "BTDH")
        for key, label in (("", "eager"), ("graph_", "graph")):
            times = row[f"{key}us"]
            if times:
                cells = "".join(f"{times[name]:18.1f}" if times.get(name) else f"{'-':>18}" for name in names)
                text.append(
                    f"{sizes:20}{row['part']:10}{label:8}{cells}{row.get(f'{key}ratio', '-')!s:>8}{row.get(f'{key}of_copy', '-')!s:>9}"
                )
    return "\n".join(text)


def sizes_of(text):
    """ "B,T,D,H" as integers."""
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if len(sizes) != 4 or min(sizes) < 1:
        raise argparse.ArgumentTypeError(
            f"problem {text!r}; allowed: B,T,D,H, all at least 1, D being the features of one head"
        )
    return sizes


def problems_of(text):
    return [sizes_of(one) for one in text.split(";")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=problems_of, default="16,1024,1024,4;4,4096,1024,1")
    parser.add_argument("--layout", default="btd", choices=("btd", "bdt"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--tune", help="tune scan's and the dense mixer's problems first, so long a problem (5s)")
    parser.add_argument("--no-compiled", action="store_true")
    parser.add_argument("--calls", type=int, default=16, help="of a sample")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=5.0, help="a part at most, beyond seven rounds")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out")
    options = parser.parse_args()
    report = Report(options.out, options.device)
    rows = [row for sizes in options.problems for row in bench(sizes, options, report)]
    print(table(rows), file=sys.stderr)


if __name__ == "__main__":
    main()
