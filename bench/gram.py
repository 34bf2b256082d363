"""gram, orthogonalize and Muon against what people run today, on one GPU, all arms in one run, interleaved. Prints one JSON object a line.

    python bench/gram.py --out gram.jsonl
    python bench/gram.py --parts product --shapes "2048,2048;1024,1024,8" --tune 5s
    python bench/gram.py --parts product --unseen 60 --seed 7        # problems that nobody chose, and a line that sums them up
    PYTHONPATH=dion python bench/gram.py --peer dion=newton_schulz_triton     # a Triton SYRK: a module with ns_line_1, ns_line_2
    python bench/gram.py --device cpu --parts orthogonalize,train --matrices "48x32,32x32" --shape 2,16,8 --layers 2 --steps 2   # no figures

Parts
    product        A A^T of `--shapes` (m,k or m,k,batch), and alpha A A^T + beta C with A symmetric (m,m): torch's matmul and baddbmm,
                   the same compiled, each --peer, trigen. CUDA graphs over inputs that the L2 does not hold; ratio: best other arm / trigen;
                   apart: relative difference of trigen's result from the first arm's
    orthogonalize  Newton-Schulz, five steps, of a list of matrices (`--matrices`: a model's, or "rows x columns, ..."): the steps that torch.optim.Muon makes,
                   the same compiled, each --peer, trigen; eager, by CUDA events, and trigen's first call. With the largest relative error of each arm
                   against the same steps in double precision
    train          `--steps` of the mixer language model of examples/python on the bytes of docs/, with torch.optim.Muon and with trigen.torch.Muon
                   for its matrices (AdamW for the rest), from the same weights on the same tokens: losses, milliseconds of the optimizer's step
"""

import argparse
import importlib
import random
import statistics
import time

import torch
import trigen
import trigen.torch as tt
from timing import Clock, Report, in_turn, median, parameters_of, synchronize, time_graphs, training_steps
from torch_model import load_example, texts

SHAPES = (
    "512,512;512,2048,4;1024,1024;1024,1024,8;1024,8192;1536,1536;1536,6144;2048,2048;2048,8192;"
    "3072,3072;4096,4096;4096,11008;8192,8192;256,256,32;256,1024,16"
)
# Hidden matrices of public models. Qwen3-1.7B: 28 layers, 2048 features, 16 query and 8 key heads of 128, 6144 hidden.
MODELS = {
    "qwen3-1.7b": [(2048, 2048)] * 56 + [(1024, 2048)] * 56 + [(6144, 2048)] * 56 + [(2048, 6144)] * 28,
    "gpt2": [(768, 768)] * 48 + [(3072, 768)] * 12 + [(768, 3072)] * 12,
}


def sizes_of(text):
    sizes = [int(size) for size in text.split(",")]
    if len(sizes) not in (2, 3) or min(sizes) < 1:
        raise ValueError(f"shape {text!r}; allowed: m,k or m,k,batch, all at least 1")
    return (*sizes, 1)[:3]


def matrices_of(text):
    if text in MODELS:
        return MODELS[text]
    sizes = [tuple(int(side) for side in one.split("x")) for one in text.split(",")]
    if any(len(one) != 2 or min(one) < 1 for one in sizes):
        raise ValueError(f"matrices {text!r}; allowed: {', '.join(MODELS)}, or ROWSxCOLUMNS,...")
    return sizes


def peers_of(options):
    return {name: importlib.import_module(module) for name, module in (one.split("=") for one in options.peer)}


# ---- product -----------------------------------------------------------------------------------------------------------


DTYPES = ("bfloat16", "float16")


def draw(count, seed, most=2e9):
    """`count` problems (m, k, batch, dtype): m 64 to 4096, k 64 to 8192, in multiples of 8, batch 1 to 64, their logarithms uniform; A and D of at
    most `most` bytes, else the sizes are drawn again."""
    source = random.Random(seed)

    def size(low, high, step):
        return max(low, round(low * (high / low) ** source.random() / step) * step)

    drawn = []
    while len(drawn) < count:
        m, k, batch = size(64, 4096, 8), size(64, 8192, 8), size(1, 64, 1)
        if 2 * batch * m * (k + m) <= most:
            drawn.append((m, k, batch, DTYPES[len(drawn) % 2]))
    return drawn


def summary(ratios):
    """What ratios (best other arm / trigen) say together; a mean is geometric, of ratios cut at 2."""
    ordered = sorted(ratios)
    tenths = statistics.quantiles(ordered, n=10, method="inclusive") if len(ordered) > 1 else ordered
    return {
        "not_slower": round(sum(one >= 1 for one in ordered) / len(ordered), 3),
        "mean_cut_at_2": round(statistics.geometric_mean(min(one, 2) for one in ordered), 3),
        "tenth_percentile": round(tenths[0], 3),
        "worst": ordered[0],
    }


def time_product(m, k, batch, dtype, with_c, options):
    """({arm: microseconds}, trigen's relative difference from the first arm) of A A^T [batch, m, m], or of a polynomial's product with C."""
    device, kind = options.device, getattr(torch, dtype)
    count = max(2, min(64, int(256e6 / (2 * batch * m * (k + 2 * m)))))
    sets = []
    for _ in range(count):
        a = torch.randn(batch, m, k, device=device, dtype=kind) / k**0.5
        if with_c:
            a = (a + a.mT).contiguous() / 2
        sets.append((a, a, torch.empty(batch, m, m, device=device, dtype=kind)))
    torch.compiler.reset()  # of so many shapes a function is compiled, and not of more
    if with_c:
        compiled = torch.compile(lambda a, c: torch.baddbmm(c, a, a, beta=-4.775, alpha=2.0315), dynamic=False)
        arms = {
            "baddbmm": lambda s: torch.baddbmm(s[1], s[0], s[0], beta=-4.775, alpha=2.0315, out=s[2]),
            "trigen": lambda s: tt.gram(s[0], c=s[1], alpha=2.0315, beta=-4.775, out=s[2]),
        }
    else:
        compiled = torch.compile(lambda a, c: a @ a.mT, dynamic=False)
        arms = {
            "matmul": lambda s: torch.bmm(s[0], s[0].mT, out=s[2]),
            "trigen": lambda s: tt.gram(s[0], out=s[2]),
        }
    if not options.no_compiled:
        arms["compiled"] = lambda s: compiled(s[0], s[1])
    for name, module in options.peers.items():
        if with_c:
            arms[name] = lambda s, run=module.ns_line_2: run(s[0], alpha=2.0315, beta=-4.775, out=s[2])
        else:
            arms[name] = lambda s, run=module.ns_line_1: run(s[0], out=s[2])
    with torch.no_grad():
        if options.tune:
            with trigen.record() as seen:
                arms["trigen"](sets[0])
            seen.tune(budget=options.tune)
        first, ours = (arm(sets[0]).float() for arm in (next(iter(arms.values())), arms["trigen"]))
        apart = float((ours - first).norm() / first.norm())
        del first, ours
        if device == "cuda":
            times = time_graphs(arms, sets, options.seconds, options.rounds)
        else:
            clock = Clock(device)
            times = in_turn(
                {name: lambda arm=arm: clock(lambda: [arm(s) for s in sets]) / count for name, arm in arms.items()},
                options.rounds,
                seconds=options.seconds,
            )
    return {name: median(samples) for name, samples in times.items()}, float(f"{apart:.2g}")


def bench_product(options, report):
    if options.unseen:
        problems = [(*one, False) for one in draw(options.unseen, options.seed, options.most)]
    else:
        sizes = [sizes_of(text) for text in options.shapes.split(";")]
        problems = [(m, k, batch, options.dtype, c) for m, k, batch in sizes for c in (False, True) if m == k or not c]
    ratios, failed = [], 0
    for m, k, batch, dtype, with_c in problems:
        row = {"part": "polynomial" if with_c else "product", "m": m, "k": k, "batch": batch, "dtype": dtype}
        try:
            us, apart = time_product(m, k, batch, dtype, with_c, options)
        except RuntimeError as error:
            if not options.unseen:
                raise
            failed += 1
            report.add(**row, error=str(error).splitlines()[0])
            continue
        best = min((value, name) for name, value in us.items() if name != "trigen")
        ratios.append(round(best[0] / us["trigen"], 3))
        report.add(**row, us=us, best=best[1], ratio=ratios[-1], apart=apart)
    if options.unseen:
        sums = summary(ratios) if ratios else {}
        report.add(part="unseen", seed=options.seed, problems=len(problems), failed=failed, tune=options.tune, **sums)


# ---- orthogonalize ------------------------------------------------------------------------------------------------------


def steps_in(x, dtype, steps):
    """Newton-Schulz as torch.optim.Muon has it, in `dtype`."""
    tall = x.shape[0] > x.shape[1]
    y = (x.mT if tall else x).to(dtype)
    y = y / y.norm().clamp(min=1e-7)
    a, b, c = tt.JORDAN
    for _ in range(steps):
        square = y @ y.mT
        y = torch.addmm(y, torch.addmm(square, square, square, beta=b, alpha=c), y, beta=a)
    return y.mT if tall else y


def bench_orthogonalize(options, report):
    device = options.device
    sizes = matrices_of(options.matrices)
    given = [torch.randn(*size, device=device, dtype=torch.float32) for size in sizes]
    one = torch.compile(lambda x: steps_in(x, torch.bfloat16, 5), dynamic=False)
    synchronize(device)
    began = time.perf_counter()
    tt.orthogonalize(given)
    synchronize(device)
    first = time.perf_counter() - began
    arms = {
        "torch": lambda: [steps_in(x, torch.bfloat16, 5) for x in given],
        "compiled": lambda: [one(x) for x in given],
        "trigen": lambda: tt.orthogonalize(given),
    }

    def triton(module, x):  # its own steps, Jordan's coefficients
        tall = x.shape[0] > x.shape[1]
        y = (x.mT if tall else x).to(torch.bfloat16)
        y = (y / y.norm().clamp(min=1e-7)).contiguous()
        a, b, c = tt.JORDAN
        square, polynomial = (torch.empty(y.shape[0], y.shape[0], device=y.device, dtype=y.dtype) for _ in range(2))
        for _ in range(5):
            module.ns_line_1(y, out=square)
            module.ns_line_2(square, alpha=c, beta=b, out=polynomial)
            y = torch.addmm(y, polynomial, y, beta=a)
        return y.mT if tall else y

    for name, module in options.peers.items():
        arms[name] = lambda module=module: [triton(module, x) for x in given]
    with torch.no_grad():
        clock = Clock(device)
        samples = in_turn(
            {name: lambda arm=arm: clock(arm) for name, arm in arms.items()},
            options.rounds,
            warm=2,
            seconds=4 * options.seconds,
        )
        errors = {}
        kinds = {size: x for size, x in zip(sizes, given)}
        exact = {size: steps_in(x.double(), torch.float64, 5) for size, x in kinds.items()}
        for name, arm in arms.items():
            made = dict(zip(sizes, arm()))
            errors[name] = max(float((made[size].double() - exact[size]).norm() / exact[size].norm()) for size in kinds)
    ms = {name: round(statistics.median(values) / 1e3, 3) for name, values in samples.items()}
    best = min((value, name) for name, value in ms.items() if name != "trigen")
    report.add(
        part="orthogonalize",
        matrices=options.matrices,
        count=len(sizes),
        ms=ms,
        best=best[1],
        ratio=round(best[0] / ms["trigen"], 3),
        relative_error={name: float(f"{value:.2g}") for name, value in errors.items()},
        first_call_s=round(first, 3),
    )


# ---- train --------------------------------------------------------------------------------------------------------------


class Both:
    """Muon for matrices, AdamW for the rest, as one optimizer; counts what Muon's step takes."""

    def __init__(self, muon, rest, device):
        self.muon, self.rest, self.device, self.seconds = muon, rest, device, []

    def zero_grad(self, **options):
        self.muon.zero_grad(**options)
        self.rest.zero_grad(**options)

    def step(self):
        synchronize(self.device)
        began = time.perf_counter()
        self.muon.step()
        synchronize(self.device)
        self.seconds.append(time.perf_counter() - began)
        self.rest.step()


def bench_train(options, report):
    device = options.device
    B, T, D, *_ = parameters_of(options.shape)
    every = {}
    for name, kind in (("torch.optim.Muon", torch.optim.Muon), ("trigen.torch.Muon", tt.Muon)):
        torch.manual_seed(0)
        source = texts(B, T + 1, device)
        model = load_example().MaskedMixer(256, T, D, options.layers).to(device)
        hidden = [p for path, p in model.named_parameters() if p.dim() == 2 and "blocks" in path]
        ids = {id(p) for p in hidden}
        rest = [p for p in model.parameters() if id(p) not in ids]

        both = Both(kind(hidden, lr=0.02), torch.optim.AdamW(rest, lr=1e-3), device)
        losses, seconds = training_steps(
            lambda ids, model=model: model(next(ids)), both, source, torch.bfloat16, device, 3, options.steps
        )
        every[name] = torch.stack(losses).float().cpu()
        report.add(
            part="train",
            arm=name,
            matrices=len(hidden),
            steps=options.steps,
            step_ms=round(1e3 * statistics.median(seconds), 3),
            optimizer_ms=round(1e3 * statistics.median(both.seconds[3:]), 3),
            first_loss=round(float(losses[0]), 5),
            last_loss=round(float(losses[-1]), 5),
        )
    apart = (every["trigen.torch.Muon"] - every["torch.optim.Muon"]).abs()
    report.add(part="train", losses_apart=float(f"{float(apart.max()):.2g}"), at_step=int(apart.argmax()))


PARTS = {"product": bench_product, "orthogonalize": bench_orthogonalize, "train": bench_train}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    parser.add_argument(
        "--unseen",
        type=int,
        default=0,
        help="so many products from the seed in place of --shapes, of both dtypes in turn",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=float, default=2e9, help="bytes of an unseen problem's A and D")
    parser.add_argument("--matrices", default="qwen3-1.7b")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        help="NAME=MODULE with ns_line_1(A, out=) and ns_line_2(A, alpha, beta, out=)",
    )
    parser.add_argument(
        "--no-compiled",
        action="store_true",
        help="product: without torch.compile's arm, 5 s a problem, within 2 %% of matmul where there is no C",
    )
    parser.add_argument("--tune", help="tune the products first, so long a problem (5s)")
    parser.add_argument("--shape", default="16,512,1024", help="train: B,T,D")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=1.0, help="a row at most, beyond seven rounds")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out")
    options = parser.parse_args()
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"parts {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    if options.unseen < 0 or options.most < 16 * 1024 * 2:
        parser.error("--unseen is 0 or more; --most is at least 32768 bytes, the smallest problem's")
    options.peers = peers_of(options)
    report = Report(options.out, options.device)
    for part in options.parts.split(","):
        PARTS[part](options, report)


if __name__ == "__main__":
    main()
