"""A sweep's problems beside what `torch.compile(mode="max-autotune")` makes of the same product and epilogue.

    bench/sweep.sh 200 build/sweep --seed 7                          # first: trigen tuned, beside cuBLAS
    python bench/torch_sweep.py --sweep build/sweep                  # then: appends a line a problem to build/sweep/sweep.jsonl

trigen runs what the sweep tuned (its cache, through the C interface). The peers get weights that were masked and rounded to the data's
type beforehand, so that neither costs them anything, and each form of the product that PyTorch users write: one product a batch, one
product over all batches with the copies that it takes (which the compiler may fuse), einsum for heads, conv1d for taps. Every result
is compared with trigen's before anything is timed. One CUDA graph an arm over rotating tensors larger than the L2, arms in turn,
medians. Compiling takes long: two functions took over a minute a shape (docs/experiments/pytorch.md).
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import time_graphs
from torch_tables import DTYPES, MOST_SETS, common_of

TABLE, TITLE = "beside PyTorch", "tuned, beside torch.compile"
FIELDS = {"dtype", "B", "H", "T", "D", "K", "pad", "layout", "wdtype", "math", "epilogue"}
EPILOGUES = {"bias", "gelu", "residual", "gate", "zero_outside"}


class Problem:
    """A problem of a sweep. `size`: how [B, T, H * D] (btd) or [B, H * D, T] (bdt) its activations lie."""

    def __init__(self, text):
        self.text = text
        self.op, *fields = text.split(",")
        words = dict(field.split("=", 1) for field in fields)
        self.epilogue = set(words.get("epilogue", "").split("+")) - {""}
        unknown = sorted((set(words) - FIELDS) | (self.epilogue - EPILOGUES))
        if unknown or self.op not in ("forward", "grad_input", "grad_weight"):
            raise ValueError(f"{text}: no PyTorch peer for {', '.join(unknown) or self.op}")
        self.dtype = DTYPES[words["dtype"]]
        self.wdtype = DTYPES[words.get("wdtype", words["dtype"])]
        self.exact = words.get("math") in ("f16x3", "simt")
        self.B, self.H, self.T, self.D, self.K = (int(words.get(key, 1)) for key in ("B", "H", "T", "D", "K"))
        self.pad = int(words.get("pad", (self.K - 1) // 2))
        self.bdt = words.get("layout") == "bdt"
        if self.H > 1 and self.K > 1:
            raise ValueError(f"{text}: heads with taps have no PyTorch peer here")
        width = self.H * self.D
        self.size = (self.B, width, self.T) if self.bdt else (self.B, self.T, width)

    @property
    def tensor_bytes(self):
        each = self.B * self.T * self.H * self.D * self.dtype.itemsize
        return (
            each * (2 + len(self.epilogue & {"residual", "gate"}))
            + self.H * self.T * self.T * self.K * self.wdtype.itemsize
        )

    def rows(self, tensor):
        """[B, T, H * D] of a tensor of activations as it lies, and the other way round."""
        return tensor.transpose(1, 2) if self.bdt else tensor


class Tensors:
    """One set: `x` is what the product reads (dy for grad_input), `dy` grad_weight's other operand, None elsewhere. The peers read `masked`, [H,T,T,K] in
    the data's type with zeros outside; trigen reads `weight`. `put` places a tensor on the device."""

    def __init__(self, p, put, generator):
        def random(*size):
            return torch.randn(*size, device=generator.device, generator=generator)

        triangle = torch.ones(p.T, p.T, device=generator.device).tril()[None, :, :, None]
        weight = (random(p.H, p.T, p.T, p.K) / (p.T * p.K) ** 0.5 * triangle).to(p.dtype)
        self.masked = put(weight)
        self.weight = put(weight.to(p.wdtype))
        self.x = put(random(*p.size).to(p.dtype))
        self.dy = put(random(*p.size).to(p.dtype)) if p.op == "grad_weight" else None
        self.residual, self.gate = (
            put(random(*p.size).to(p.dtype)) if name in p.epilogue else None for name in ("residual", "gate")
        )
        self.bias = put(random(p.H, p.T).to(p.wdtype)) if "bias" in p.epilogue and p.op != "grad_weight" else None
        if p.op == "grad_weight":
            self.result = [put(torch.zeros(p.H, p.T, p.T, p.K, dtype=p.wdtype))]
            if "bias" in p.epilogue:
                self.result.append(put(torch.zeros(p.H, p.T, dtype=p.wdtype)))
        else:
            self.result = [put(torch.zeros(*p.size, dtype=p.dtype))]


def products(p):
    """{name: function of (weight [H,T,T,K], rows [B,T,H*D]) -> [B,T,H*D]} for forward and grad_input."""
    across = p.op == "grad_input"

    def square(weight):
        return weight[0, :, :, 0].t() if across else weight[0, :, :, 0]

    def batched(weight, rows):
        return torch.matmul(square(weight), rows)

    def flat(weight, rows):
        return torch.matmul(square(weight), rows.transpose(0, 1).reshape(p.T, -1)).view(p.T, p.B, p.D).transpose(0, 1)

    def einsum(weight, rows):
        of = "hts,bthd->bshd" if across else "hts,bshd->bthd"
        return torch.einsum(of, weight[..., 0], rows.unflatten(2, (p.H, p.D))).flatten(2)

    def loop(weight, rows):
        return torch.cat(
            [
                torch.matmul(w[:, :, 0].t() if across else w[:, :, 0], part)
                for w, part in zip(weight, rows.split(p.D, 2))
            ],
            2,
        )

    def conv1d(weight, rows):
        taps, before = weight[0], p.pad
        if across:  # dx[s, d] = sum over t, j of W[t, s, j] dy[t, d - j + pad]
            taps, before = taps.transpose(0, 1).flip(2), p.K - 1 - p.pad
        return F.conv1d(F.pad(rows, (before, p.K - 1 - before)), taps)

    def im2col(weight, rows):
        taps, before = weight[0], p.pad
        if across:
            taps, before = taps.transpose(0, 1).flip(2), p.K - 1 - p.pad
        columns = F.pad(rows, (before, p.K - 1 - before)).unfold(2, p.D, 1).transpose(1, 2)  # [B, K, T, D]
        return torch.matmul(taps.permute(0, 2, 1).flatten(1), columns.reshape(p.B, -1, p.D))

    if p.K > 1:
        return {"conv1d": conv1d, "im2col": im2col}
    return {"einsum": einsum, "loop": loop} if p.H > 1 else {"batched": batched, "flat": flat}


def weight_gradients(p):
    """{name: function of (dy, x), both [B,T,H*D] -> [H,T,T,K]}."""

    def shifted(x):
        return F.pad(x, (p.pad, p.K - 1 - p.pad)).unfold(2, p.D, 1)  # [B, T, K, D]

    def flat(dy, x):
        columns = shifted(x).permute(1, 2, 0, 3).reshape(p.T * p.K, -1)
        return torch.matmul(dy.transpose(0, 1).reshape(p.T, -1), columns.t()).view(1, p.T, p.T, p.K)

    def summed(dy, x):
        return torch.bmm(dy, x.transpose(1, 2)).sum(0, dtype=torch.float32)[None, :, :, None]

    def einsum(dy, x):
        return torch.einsum("bthd,bshd->hts", dy.unflatten(2, (p.H, p.D)), x.unflatten(2, (p.H, p.D)))[..., None]

    if p.H > 1:
        return {"einsum": einsum}
    return {"flat": flat} if p.K > 1 else {"flat": flat, "a batch each": summed}


def peers(p):
    """{name: function of Tensors -> list of results as trigen writes them}: y or dx as x lies; dW [H,T,T,K] and grad_bias [H,T]."""

    def of_product(product):
        def call(t):
            y = product(t.masked, p.rows(t.x))
            if t.bias is not None:
                bias = t.bias.to(p.dtype).t()  # [T, H]
                y = y + (bias if p.H == 1 else bias.repeat_interleave(p.D, 1))
            if "gelu" in p.epilogue:
                y = F.gelu(y)
            if t.gate is not None:
                y = y * p.rows(t.gate)
            if t.residual is not None:
                y = y + p.rows(t.residual)
            return [p.rows(y).contiguous()]

        return call

    def of_gradient(gradient):
        def call(t):
            results = [gradient(p.rows(t.dy), p.rows(t.x)).to(p.wdtype)]
            if "bias" in p.epilogue:
                results.append(p.rows(t.dy).unflatten(2, (p.H, p.D)).sum((0, 3), dtype=torch.float32).t().to(p.wdtype))
            return results

        return call

    if p.op == "grad_weight":
        return {name: of_gradient(function) for name, function in weight_gradients(p).items()}
    return {name: of_product(function) for name, function in products(p).items()}


def difference(p, got, expected):
    """The largest relative norm; dW inside the triangle, as peers fill the other one."""
    worst = 0.0
    for number, (one, other) in enumerate(zip(got, expected)):
        one, other = one.double(), other.double()
        if p.op == "grad_weight" and number == 0:
            inside = torch.ones(p.T, p.T, device=one.device).tril()[None, :, :, None] > 0
            one, other = torch.where(inside, one, 0), torch.where(inside, other, 0)
        worst = max(worst, float((one - other).norm() / other.norm()))
    return worst


def trigen_arm(p, plan, workspace, stream_of):
    """workspace: an address; stream_of(): the stream to launch on."""
    import trigen

    def view(tensor):
        return trigen.DeviceTensor() if tensor is None else trigen.DeviceTensor(tensor.data_ptr())

    def run(t):
        weight, bias = t.weight, t.bias
        if p.op == "grad_weight":
            (weight, bias), x, y = (*t.result, None)[:2], t.x, t.dy
        elif p.op == "forward":
            x, y = t.x, t.result[0]
        else:
            x, y = t.result[0], t.x
        plan.run(
            x=view(x),
            y=view(y),
            gate=view(t.gate),
            residual=view(t.residual),
            w=weight.data_ptr(),
            bias=0 if bias is None else bias.data_ptr(),
            workspace=workspace,
            workspace_size=plan.workspace_size,
            stream=stream_of(),
        )
        return t.result

    return run


def run_problem(line, p, runtime, row_time, rounds):
    torch.set_float32_matmul_precision("highest" if p.exact else "high")
    plan = runtime.plan(p.text)
    info = plan.describe()
    line.update(kernel=info.candidate, provenance=info.provenance)
    generator = torch.Generator("cuda").manual_seed(0)
    l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    sets = [
        Tensors(p, lambda tensor: tensor.cuda(), generator)
        for _ in range(min(MOST_SETS, max(2, 2 * l2 // p.tensor_bytes + 2)))
    ]
    workspace = torch.empty(max(16, plan.workspace_size), dtype=torch.uint8, device="cuda")
    ours = trigen_arm(p, plan, workspace.data_ptr(), lambda: torch.cuda.current_stream().cuda_stream)
    expected = [result.clone() for result in ours(sets[0])]
    torch.cuda.synchronize()
    arms, notes = {"trigen": ours}, []
    for name, function in peers(p).items():
        torch._dynamo.reset()
        # without CUDA graphs of its own: every arm is captured here
        compiled = torch.compile(function, dynamic=False, mode="max-autotune-no-cudagraphs")
        try:
            off = difference(p, compiled(sets[0]), expected)
        except RuntimeError as error:  # the other forms remain
            notes.append(f"{name}: {str(error).splitlines()[0]}")
            continue
        if not off < 2e-2:
            raise RuntimeError(
                f"trigen and {name} differ by {off:.2g} (relative norm); no time is reported for wrong numbers"
            )
        arms[f"max-autotune {name}"] = compiled
    line["ran"] = True
    if notes:
        line["note"] = "; ".join(notes)
    samples = time_graphs(arms, sets, row_time, rounds)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    line["arms"] = [
        {"name": name, "us": medians[name], "quartiles_us": statistics.quantiles(samples[name], n=4)[::2]}
        for name in arms
    ]
    line.update(us=medians["trigen"], rounds=len(samples["trigen"]))
    if len(arms) > 1:
        best = min((name for name in medians if name != "trigen"), key=medians.get)
        line.update(
            got=statistics.median(peer / own for own, peer in zip(samples["trigen"], samples[best])),
            peer=best,
            peer_us=medians[best],
        )


def problems_of(results):
    """(problem, its tuned row) of a sweep's results, in order."""
    rows = [json.loads(line) for line in Path(results).read_text().splitlines() if line.strip()]
    return [(row["problem"], row) for row in rows if row["table"] == "tuned"]


def first_line(problem, tuned, common):
    line = {
        "table": TABLE,
        "title": TITLE,
        "problem": problem,
        "over": "torch",
        "ran": False,
        "rounds": 0,
        "arms": [],
        "verdict": "missing",
        **common,
    }
    return {**line, **{key: tuned[key] for key in ("floor_us", "bound") if key in tuned}}


def summary(figures):
    """One line, as the sweep's own tables have it."""
    if not figures:
        return "no figures"
    ordered = sorted(figures)
    tenth = statistics.quantiles(ordered, n=10, method="inclusive")[0] if len(ordered) > 1 else ordered[0]
    return (
        f"{len(ordered)} rows, {sum(one >= 1 for one in ordered)} not slower, geometric mean {statistics.geometric_mean(ordered):.3f}, "
        f"tenth percentile {tenth:.3f}, worst {ordered[0]:.3f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", default="build/sweep", help="folder of bench/sweep.sh: sweep.jsonl, sweep.db")
    parser.add_argument("--row-time", type=float, default=1.0, help="seconds of rounds for one problem")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--limit", type=float, default=0, help="start no problem after so many seconds (0: no limit)")
    options = parser.parse_args()
    results, cache = Path(options.sweep) / "sweep.jsonl", Path(options.sweep) / "sweep.db"
    for path in (results, cache):
        if not path.exists():
            print(f"torch_sweep: no {path}; bench/sweep.sh makes it", file=sys.stderr)
            return 2
    if not torch.cuda.is_available():
        print("[SKIP] no CUDA device", file=sys.stderr)
        return 0
    import trigen

    runtime = trigen.Runtime(layers=[cache], read_only=True)
    common = common_of()
    began = time.perf_counter()
    failed, figures = False, []
    problems = problems_of(results)
    with open(results, "a") as file, torch.no_grad():
        for number, (problem, tuned) in enumerate(problems):
            if options.limit and time.perf_counter() - began > options.limit:
                print(
                    f"the limit of {options.limit:g} s was spent: {len(problems) - number} problems were not started",
                    file=sys.stderr,
                )
                break
            line = first_line(problem, tuned, common)
            try:
                p = Problem(problem)
            except ValueError as error:  # no peer of this kind
                p, line["note"] = None, str(error)
            try:
                if p is not None:
                    run_problem(line, p, runtime, options.row_time, options.rounds)
                    line["verdict"] = "measured" if "got" in line else "runs"
                    figures += [line["got"]] if "got" in line else []
            except RuntimeError as error:
                line.update(note=str(error).splitlines()[0], failed=True, verdict="fails")
                failed = True
            torch.cuda.empty_cache()
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(
                problem,
                line["verdict"],
                {key: round(line[key], 3) for key in ("got", "us", "peer_us") if key in line},
                line.get("peer", ""),
                line.get("note", ""),
                flush=True,
            )
    print(summary(figures))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
