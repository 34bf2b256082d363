"""The rows of a benchmark list whose peers live in PyTorch (over=torch: taps and heads), in the format of `trigen-lab tables`.

    python bench/torch_tables.py --tables bench/hopper.txt --out build/bench/hopper.jsonl     # appends a line a row
    trigen-lab render build/bench/hopper.jsonl                                            # tables and drawing

trigen runs through its C interface. The peers are what models run today, each with weights that were masked beforehand: for taps
conv1d (cuDNN, algorithms searched; for gradients its own backward) and tap-major im2col with one product, copies included; for heads
a loop of products and einsum. Every arm's result is compared with trigen's before anything is timed. One CUDA graph an arm
over rotating tensors larger than the L2, arms in turn, medians. A row takes --row-time seconds of rounds, at least 7 of them.
"""

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import time_graphs

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
MOST_SETS = 256  # of rotating tensors: from 0.5 MB a set on they outgrow a 60 MB L2 twice


def read_rows(path):
    """The list's rows with over=torch, in order: dicts with table, title, problem, asked, stretch, at_most."""
    rows, table, title = [], None, ""
    for line in Path(path).read_text().splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        heading = re.match(r"\[(.+?)\]\s*(.*)", line)
        if heading:
            table, title = heading.groups()
            continue
        problem, _, options = line.partition("|")
        words = dict(word.split("=", 1) for word in options.split())
        if words.get("over") != "torch":
            continue
        rows.append(
            {
                "table": table,
                "title": title,
                "problem": problem.strip(),
                "stretch": float(words.get("stretch", 0)),
                "asked": float(words.get("ask", words.get("at_most", 0))),
                "at_most": "at_most" in words,
            }
        )
    return rows


class Problem:
    """Sizes of a row's problem, as far as these peers go: btd, lower triangle, no epilogue but grad_weight's zeros outside."""

    def __init__(self, text):
        op, *fields = [part.strip() for part in text.split(",")]
        words = dict(field.split("=", 1) for field in fields)
        unknown = set(words) - {"dtype", "B", "H", "T", "D", "K", "pad"}
        if op == "grad_weight" and words.get("epilogue") == "zero_outside":  # the peers write there anyway
            unknown.remove("epilogue")
        if unknown or op not in ("forward", "grad_input", "grad_weight"):
            raise ValueError(f"{text}: no torch peer for {op} with {', '.join(sorted(unknown)) or 'these sizes'}")
        self.op, self.dtype = op, DTYPES[words["dtype"]]
        self.B, self.H, self.T, self.D, self.K = (int(words.get(key, 1)) for key in ("B", "H", "T", "D", "K"))
        self.pad = int(words.get("pad", (self.K - 1) // 2))
        if self.H > 1 and self.K > 1:
            raise ValueError(f"{text}: heads with taps have no torch peer here")
        size = torch.tensor([], dtype=self.dtype).element_size()
        self.bytes = size * (2 * self.B * self.H * self.T * self.D + self.H * self.T * self.T * self.K)


class Tensors:
    """One set of a problem's tensors: x and dy [B,T,H*D], weight [H,T,T,K] zero outside the triangle, and room for results."""

    def __init__(self, p, device, generator):
        def random(*shape):
            return torch.randn(*shape, device=device, generator=generator).to(p.dtype)

        self.x, self.dy = random(p.B, p.T, p.H * p.D), random(p.B, p.T, p.H * p.D)
        weight = torch.randn(p.H, p.T, p.T, p.K, device=device, generator=generator) / (p.T * p.K) ** 0.5
        self.weight = (weight * torch.ones(p.T, p.T, device=device).tril()[None, :, :, None]).to(p.dtype)
        self.tap_major = self.weight[0].permute(0, 2, 1).reshape(p.T, p.K * p.T).contiguous()  # [t, (j, s)]
        self.tap_major_of_input = self.weight[0].permute(1, 2, 0).reshape(p.T, p.K * p.T).contiguous()  # [s, (j, t)]
        self.result = torch.empty_like(self.weight if p.op == "grad_weight" else self.x)
        if p.K > 1:
            self.padded = F.pad(
                self.x, (p.pad, p.K - 1 - p.pad)
            )  # of conv1d's gradients, which keep it from the forward


def peers(p):
    """{name: function of Tensors -> result}: y or dx [B,T,H*D], dW [H,T,T,K]."""
    sides = (p.pad, p.K - 1 - p.pad)

    def conv1d(t):
        if sides[0] == sides[1]:
            return F.conv1d(t.x, t.weight[0], padding=p.pad)
        return F.conv1d(F.pad(t.x, sides), t.weight[0])

    def im2col(t):
        padded = F.pad(t.x, sides)
        columns = torch.stack([padded[:, :, j : j + p.D] for j in range(p.K)], dim=1)  # [B, K, T, D]
        return torch.matmul(t.tap_major, columns.view(p.B, p.K * p.T, p.D))

    def columns_of(t, taps):
        """x, or dy with its taps mirrored, shifted by each tap: a list of [B, T, D]."""
        source, before = (t.x, p.pad) if taps > 0 else (t.dy, p.K - 1 - p.pad)
        padded = F.pad(source, (before, p.K - 1 - before))
        return [padded[:, :, j : j + p.D] for j in range(p.K)][::taps]

    def im2col_grad_input(t):
        columns = torch.stack(columns_of(t, -1), dim=1)  # [B, K, T, D]
        return torch.matmul(t.tap_major_of_input, columns.view(p.B, p.K * p.T, p.D))

    def im2col_grad_weight(t):
        columns = torch.stack([c.transpose(0, 1) for c in columns_of(t, 1)])  # [K, T, B, D]
        flat = t.dy.transpose(0, 1).reshape(p.T, p.B * p.D)
        product = torch.matmul(flat, columns.view(p.K * p.T, p.B * p.D).t())
        return product.view(p.T, p.K, p.T).permute(0, 2, 1)[None]

    def backward(t, mask):
        return torch.ops.aten.convolution_backward(
            t.dy, t.padded, t.weight[0], None, [1], [0], [1], False, [0], 1, mask
        )

    def conv1d_grad_input(t):
        return backward(t, [True, False, False])[0][:, :, p.pad : p.pad + p.D]

    def conv1d_grad_weight(t):
        return backward(t, [False, True, False])[1][None]

    def loop(t):
        y = torch.empty_like(t.x)
        for h in range(p.H):
            part = slice(h * p.D, (h + 1) * p.D)
            y[:, :, part] = torch.matmul(t.weight[h, :, :, 0], t.x[:, :, part])
        return y

    def loop_grad_input(t):
        dx = torch.empty_like(t.dy)
        for h in range(p.H):
            part = slice(h * p.D, (h + 1) * p.D)
            dx[:, :, part] = torch.matmul(t.weight[h, :, :, 0].t(), t.dy[:, :, part])
        return dx

    def split(tensor):
        return tensor.view(p.B, p.T, p.H, p.D)

    def einsum(t):
        return torch.einsum("hts,bshd->bthd", t.weight[..., 0], split(t.x)).reshape(p.B, p.T, p.H * p.D)

    def einsum_grad_input(t):
        return torch.einsum("hts,bthd->bshd", t.weight[..., 0], split(t.dy)).reshape(p.B, p.T, p.H * p.D)

    def einsum_grad_weight(t):
        return torch.einsum("bthd,bshd->hts", split(t.dy), split(t.x))[..., None]

    if p.H > 1 or p.K == 1:
        return {
            "forward": {"loop": loop, "einsum": einsum},
            "grad_input": {"loop": loop_grad_input, "einsum": einsum_grad_input},
            "grad_weight": {"einsum": einsum_grad_weight},
        }[p.op]
    return {
        "forward": {"conv1d": conv1d, "im2col + matmul": im2col},
        "grad_input": {"conv1d backward": conv1d_grad_input, "im2col + matmul": im2col_grad_input},
        "grad_weight": {"conv1d backward": conv1d_grad_weight, "im2col + matmul": im2col_grad_weight},
    }[p.op]


def difference(p, got, expected):
    """Relative norm; dW inside the triangle only, since trigen writes nothing else."""
    got, expected = got.float(), expected.float()
    if p.op == "grad_weight":
        inside = torch.ones(p.T, p.T, device=got.device).tril()[None, :, :, None]
        got, expected = (
            torch.where(inside > 0, tensor, 0) for tensor in (got, expected)
        )  # what trigen left alone may be NaN
    return float((got - expected).norm() / expected.norm())


def trigen_arm(p, plan, workspace):
    import trigen

    def run(t):
        role = {
            "forward": (t.x, t.result, t.weight),
            "grad_input": (t.result, t.dy, t.weight),
            "grad_weight": (t.x, t.dy, t.result),
        }[p.op]
        x, y, w = (tensor.data_ptr() for tensor in role)
        plan.run(
            x=trigen.DeviceTensor(x),
            y=trigen.DeviceTensor(y),
            w=w,
            workspace=workspace.data_ptr(),
            workspace_size=plan.workspace_size,
            stream=torch.cuda.current_stream().cuda_stream,
        )
        return t.result

    return run


def run_row(row, runtime, line, row_time, rounds):
    """Fills `line` with what was found. Raises with the reason when something is missing or wrong."""
    p = Problem(row["problem"])
    plan = runtime.plan(row["problem"])
    info = plan.describe()
    line.update(kernel=info.candidate, provenance=info.provenance)
    generator = torch.Generator("cuda").manual_seed(0)
    l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    sets = [Tensors(p, "cuda", generator) for _ in range(min(MOST_SETS, max(2, 2 * l2 // p.bytes + 2)))]
    if len(sets) * p.bytes <= l2:
        line["note"] = "the input sets together stay in the L2, in every arm alike"
    arms = {
        "trigen": trigen_arm(p, plan, torch.empty(max(16, plan.workspace_size), dtype=torch.uint8, device="cuda")),
        **peers(p),
    }
    expected = arms["trigen"](sets[0])
    torch.cuda.synchronize()
    for name, arm in list(arms.items())[1:]:
        try:
            off = difference(p, arm(sets[0]), expected)
        except RuntimeError as error:  # a peer that this PyTorch cannot run at this size: the others remain
            line["note"] = f"{name}: {str(error).splitlines()[0]}"
            del arms[name]
            continue
        if not off < 2e-2:
            raise RuntimeError(
                f"trigen and {name} differ by {off:.2g} (relative norm); no time is reported for wrong numbers"
            )
    line["ran"] = True
    samples = time_graphs(arms, sets, row_time, rounds)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    best = min((name for name in medians if name != "trigen"), key=medians.get)
    ratios = [ours / peer if row["at_most"] else peer / ours for ours, peer in zip(samples["trigen"], samples[best])]
    line.update(
        rounds=len(ratios),
        got=statistics.median(ratios),
        us=medians["trigen"],
        peer=best,
        peer_us=medians[best],
        arms=[
            {"name": name, "us": medians[name], "quartiles_us": statistics.quantiles(samples[name], n=4)[::2]}
            for name in arms
        ],
    )


def common_of():
    """Fields of every line of a run: device, driver, library."""
    version = Path("/proc/driver/nvidia/version")
    driver = (
        next((line.split()[7] for line in version.read_text().splitlines() if line.startswith("NVRM")), "?")
        if version.exists()
        else "?"
    )
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver,
        "library": f"torch {torch.__version__}, cudnn {torch.backends.cudnn.version()}",
    }


def verdict(line):
    asked, got = line.get("asked", line.get("asked_at_most", 0)), line.get("got", 0)
    if line.get("failed"):
        return "fails"
    if not got:
        return "runs" if line["ran"] else "missing"
    reaches = (lambda figure: got <= figure) if "asked_at_most" in line else (lambda figure: got >= figure)
    if not asked:
        return "measured"
    if line.get("stretch") and reaches(line["stretch"]):
        return "met (stretch)"
    return "met" if reaches(asked) else "missed"


def first_line(row, common):
    line = {
        "table": row["table"],
        "title": row["title"],
        "problem": row["problem"],
        "over": "torch",
        "ran": False,
        "rounds": 0,
        "arms": [],
        **common,
    }
    line["asked_at_most" if row["at_most"] else "asked"] = row["asked"]
    if row["stretch"]:
        line["stretch"] = row["stretch"]
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="bench/hopper.txt", help="list of tables")
    parser.add_argument("--only", help="names of tables, by commas")
    parser.add_argument("--out", default="build/bench/hopper.jsonl", help="JSON lines are appended here")
    parser.add_argument("--row-time", type=float, default=1.0, help="seconds of rounds for one row")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--limit", type=float, default=0, help="start no row after so many seconds (0: no limit)")
    options = parser.parse_args()
    rows = read_rows(options.tables)
    if options.only:
        rows = [row for row in rows if row["table"] in options.only.split(",")]
    if not torch.cuda.is_available():
        print("[SKIP] no CUDA device", file=sys.stderr)
        return 0
    import trigen

    torch.backends.cudnn.benchmark = True
    common = common_of()
    runtime = trigen.Runtime()
    began = time.perf_counter()
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    with open(options.out, "a") as file, torch.no_grad():
        for row in rows:
            line = first_line(row, common)
            if options.limit and time.perf_counter() - began > options.limit:
                line["note"] = f"not started: the limit of {options.limit:g} s was spent"
            else:
                try:
                    run_row(row, runtime, line, options.row_time, options.rounds)
                except (RuntimeError, ValueError) as error:
                    line["note"], line["failed"] = str(error).splitlines()[0], True
                torch.cuda.empty_cache()
            line["verdict"] = verdict(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(
                row["table"],
                row["problem"],
                line["verdict"],
                {key: round(line[key], 3) for key in ("got", "us", "peer_us") if key in line},
                line.get("peer", ""),
                line.get("note", ""),
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
